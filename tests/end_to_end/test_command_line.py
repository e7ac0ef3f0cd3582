"""The pack's ``tune``: what a user types, what is started, what is said, and the exit code."""

import custom_components.compat  # noqa: F401

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torchtune._recipe_registry import get_all_recipes

from custom_components import cli, launch
from custom_components.registry import TORCHTUNE_DIR, recipe_of_config, register

ROOT = Path(__file__).parents[2]
TUNE = Path(sys.executable).with_name("tune")
LITERAL = "run --nproc_per_node 4 custom_lora configs/llama3_8b_grammar.yaml".split()

SMALL = (
    "model._component_=custom_components.models.tiny.tiny_lora_llama3_8b device=cpu dtype=fp32 "
    "checkpoint_dir=random tokenizer=custom_components.models.byte_tokenizer.byte_tokenizer "
    "tokenizer.path=null dataset.max_rows=16"
).split()
"""Overrides that make the 8B config run on a CPU without any file."""


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Catch what would be started: (torchrun's arguments or None, script, its arguments, env)."""
    starts = []
    names = (launch.RUN_NAME_VARIABLE, launch.CHECKED_VARIABLE, "OMP_NUM_THREADS")

    def record(args, script, words):
        starts.append((args, Path(script), list(words), {n: os.environ.get(n) for n in names}))
        return 0

    monkeypatch.setattr(launch, "run_script", lambda script, words: record(None, script, words))
    monkeypatch.setattr(
        cli, "run", lambda args: record(args, args.training_script, args.training_script_args)
    )
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return starts


def run(*words):
    return cli.main(["run", *map(str, words)])


# ---- The literal command -------------------------------------------------------------------------
def test_the_literal_command_lists_all_that_is_missing_once_and_in_time():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        [TUNE, *LITERAL],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if Path("/tmp/Meta-Llama-3-8B-Instruct").exists():
        pytest.skip("the checkpoint is there")
    assert result.returncode == 2 and result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0] == "error: 3 problems:" and len(lines) == 4
    for number, words in enumerate(
        (
            ["no CUDA device", "device=cpu dtype=fp32"],
            ["checkpoint_dir: ", "tune download meta-llama/Meta-Llama-3-8B-Instruct"],
            ["tokenizer.path: ", "tokenizer.model"],
        ),
        start=1,
    ):
        assert lines[number].startswith(f"  {number}. "), lines
        assert all(word in lines[number] for word in words), lines
    # 15 s is the promise on a quiet machine; CPU time does not depend on who else is running
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used_s < 15


# ---- Finding recipe and config, in this process or through torchrun ------------------------------
@pytest.mark.parametrize(
    "options",
    [
        ["--nproc_per_node", "4"],
        ["--nproc_per_node=4"],
        ["--nproc-per-node", "4"],
        ["--nproc-per-node=4"],
        ["--nnodes", "1", "--nproc_per_node", "4"],
        ["--standalone", "--nproc_per_node", "4", "--max-restarts=2"],
    ],
    ids=" ".join,
)
def test_torchruns_options_start_that_many_ranks(started, options):
    """Torchtune counts words of sys.argv, which takes some of these forms for one process."""
    assert run(*options, "custom_lora", "llama3_8b_grammar", *SMALL, "run_name=x") == 0
    ((args, script, words, environment),) = started
    assert (args.nproc_per_node, args.standalone) == ("4", True)
    assert script == Path(launch.__file__)
    assert words[0] == str(ROOT / "recipes" / "custom_lora.py")
    assert words[1:3] == ["--config", str(ROOT / "configs" / "llama3_8b_grammar.yaml")]
    assert words[3:] == [*SMALL, "run_name=x"]
    assert environment[launch.RUN_NAME_VARIABLE] == "x"
    threads = max(1, len(os.sched_getaffinity(0)) // 4)
    assert environment["OMP_NUM_THREADS"] == str(threads)
    assert launch.RUN_NAME_VARIABLE not in os.environ


def test_one_process_stays_in_this_process(started):
    assert run("custom_lora", "llama3_8b_grammar", *SMALL) == 0
    ((args, script, _, environment),) = started
    assert args is None and script == ROOT / "recipes" / "custom_lora.py"
    assert re.fullmatch(r"llama3_8b_grammar-\d{8}-\d{6}", environment[launch.RUN_NAME_VARIABLE])


def test_torchruns_environment_variables_count_as_options(started, monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    assert run("custom_lora", "llama3_8b_grammar", *SMALL) == 0
    assert started[0][0].nproc_per_node == "3"


def test_a_rendezvous_of_several_nodes_is_left_alone(started):
    """Torchtune makes every run without an rdzv_endpoint standalone, two nodes included."""
    words = "--nnodes 2 --node_rank 1 --master_addr 10.0.0.1 --nproc_per_node 2 custom_lora".split()
    assert run(*words, "llama3_8b_grammar", *SMALL) == 0
    args = started[0][0]
    assert not args.standalone and (args.nnodes, args.master_addr) == ("2", "10.0.0.1")


@pytest.mark.parametrize("form", ["name", "absolute", "dot", "folder", "option", "option="])
def test_recipe_and_config_are_found_in_every_form(started, tmp_path, form):
    """Torchtune fails on absolute paths, on ./x.py and on a folder called recipes/."""
    for folder, name in (("recipes", "mine.py"), ("configs", "mine.yaml")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("{}" if folder == "configs" else "")
    recipe, config = tmp_path / "recipes" / "mine.py", tmp_path / "configs" / "mine.yaml"
    forms = {
        "name": ["recipes/mine", config],
        "absolute": [recipe, config],
        "dot": ["./recipes/mine.py", "./configs/mine.yaml"],
        "folder": ["recipes/mine.py", "configs/mine.yaml"],
        "option": [recipe, "--config", "configs/mine.yaml"],
        "option=": [recipe, "--config=configs/mine.yaml"],
    }
    assert run(*forms[form], "a=b=c", "~d") == 0
    assert started[0][1:3] == (recipe, ["--config", str(config), "a=b=c", "~d"])


def test_dollar_signs_reach_the_ranks_as_they_are(started):
    """Torchrun takes every argument for a template: $$ would become $."""
    assert (
        run("--nproc_per_node=2", "custom_lora", "llama3_8b_grammar", *SMALL, "run_name=$$x") == 0
    )
    assert started[0][2][-1] == "run_name=$$$$x"


def test_allowed_packages_stand_before_or_after_the_recipe(started, tmp_path, monkeypatch, capsys):
    (tmp_path / "own_model.py").write_text(
        "from custom_components.models.tiny import tiny_lora_llama3_8b as build\n"
        "def mine(**kwargs): return build(**kwargs)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ["custom_lora", "llama3_8b_grammar", *SMALL, "model=own_model.mine"]
    assert run(*words) == 2
    assert "run with --allow-component own_model" in capsys.readouterr().err
    assert run("--allow-component", "own_model", *words) == 0
    assert run(*words, "--allow-component=own_model") == 0
    for _, _, arguments, _ in started:
        assert arguments[-1] == "--allow-component=own_model"
    assert run(*words, "allow_component=[own_model]") == 2  # never from the config


# ---- Refusals ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["custom_lorra", "llama3_8b_grammar"], "the nearest is custom_lora;"),
        (["custom_lora", "llama3_8b_gramar"], "the nearest is llama3_8b_grammar;"),
        (["custom_lora"], "no config given"),
        (["custom_lora", "llama3_8b_grammar", "smollm2_135m_grammar"], "is not key=value"),
        (["custom_lora", "llama3_8b_grammar", "--nproc_per_node", "4"], "before the recipe"),
        (["--nproc_per_node", "four", "custom_lora", "llama3_8b_grammar"], "four"),
        (["--nproc_per_node", "0", "custom_lora", "llama3_8b_grammar"], "at least 1"),
        (["--nnodes", "x", "custom_lora", "llama3_8b_grammar"], "torchrun: "),
        (
            ["--nproc_per_node", "2", "lora_finetune_single_device", "llama3/8B_lora"],
            "runs in one process",
        ),
        (["--nproc_per_node", "2", "custom_data", "llama3_8b_grammar"], "runs in one process"),
        # of a config: each by name with the nearest
        (["custom_lora", "llama3_8b_grammar", *SMALL, "bach_size=2"], "nearest is batch_size"),
        (["custom_lora", "llama3_8b_grammar", *SMALL, "model.lora_ranl=2"], "model.lora_rank"),
        (["custom_lora", "llama3_8b_grammar", *SMALL, "batch_size=two"], "a whole number"),
        (["custom_lora", "llama3_8b_grammar", *SMALL, "optimizer=torch.optim.AdmaW"], "AdamW"),
        (["custom_lora", "llama3_8b_grammar", *SMALL, "optimizer=os.system"], "outside the allow"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_mistakes_end_with_one_message_and_code_2(started, capsys, words, expected):
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert expected in err and not started


def test_an_existing_run_is_refused(started, tmp_path, capsys):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    assert run("custom_lora", "llama3_8b_grammar", *SMALL, "run_name=one") == 2
    assert "exists already" in capsys.readouterr().err


# ---- Exit codes of torchrun ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("exit_codes", "code", "text"),
    [
        ({0: 2, 1: 2}, 2, ""),
        ({1: 1}, 1, ""),
        ({1: 77}, 1, ""),
        ({1: -9}, 1, "error: rank 1 was ended by SIGKILL, often for want of memory\n"),
        ({0: -11}, 1, "error: rank 0 was ended by SIGSEGV\n"),
    ],
)
def test_the_first_failing_ranks_code_is_returned(monkeypatch, capsys, exit_codes, code, text):
    failures = {r: ProcessFailure(r, 100 + r, c, "<N/A>") for r, c in exit_codes.items()}

    def fail(args):
        raise ChildFailedError("recipe", failures)

    monkeypatch.setattr(cli, "run", fail)
    assert run("--nproc_per_node=2", "lora_finetune_distributed", "llama3/8B_lora") == code
    assert capsys.readouterr().err == text


def test_a_signal_gives_the_shells_code(monkeypatch):
    def interrupt(args):
        raise SignalException("SIGINT", signal.SIGINT)

    monkeypatch.setattr(cli, "run", interrupt)
    assert run("--nproc_per_node=2", "lora_finetune_distributed", "llama3/8B_lora") == 130


def test_a_fault_of_the_command_itself_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail(args):
        raise OSError("no port")

    monkeypatch.setattr(cli, "run", fail)
    assert run("--nproc_per_node=2", "lora_finetune_distributed", "llama3/8B_lora") == 1
    assert capsys.readouterr().err.startswith("error: OSError: no port (traceback: ")


# ---- Real ranks ----------------------------------------------------------------------------------
RECIPE = """
import custom_components.compat
import json, os, sys, time
from custom_components.errors import UserError
from custom_components.launch import run_recipe

def main(cfg):
    import datasets  # the installed package, not custom_components/datasets
    rank = os.environ["RANK"]
    seen = dict(cfg, threads=os.environ["OMP_NUM_THREADS"], datasets=datasets.__file__)
    with open(f"rank{rank}.json", "w") as file:
        json.dump(seen, file)
    if rank == "1":
        while not os.path.exists("rank0.json"):
            time.sleep(0.01)
        raise UserError("row 3: empty")
    time.sleep(60)

if __name__ == "__main__":
    sys.exit(run_recipe(main))
"""


def test_a_mistake_on_one_real_rank_is_said_once_with_code_2(
    tmp_path, monkeypatch, capfd, signals_kept
):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.py").write_text(RECIPE)
    (tmp_path / "mine.yaml").write_text("text: a\n")
    monkeypatch.chdir(tmp_path)
    words = ["--nproc_per_node", "2", "./recipes/mine.py", "mine.yaml", "text=a=b $$"]
    assert run(*words) == 2
    out, err = capfd.readouterr()
    assert (out, err) == ("", "error: row 3: empty\n")
    first, second = (json.loads((tmp_path / f"rank{r}.json").read_text()) for r in (0, 1))
    assert first == second  # run_name included, which nobody gave
    assert first["text"] == "a=b $$" and re.fullmatch(r"mine-\d{8}-\d{6}", first["run_name"])
    assert "custom_components" not in first["datasets"]


def test_plain_torchrun_says_a_mistake_once(tmp_path):
    result = subprocess.run(
        [
            *(TUNE.with_name("torchrun"), "--standalone", "--nproc_per_node", "2"),
            *(ROOT / "recipes" / "custom_lora.py", "--config", "llama3_8b_grammar"),
            *(*SMALL, "model.lora_ranl=3", "optimizer=own_optimizer.build"),
            *("--allow-component", "own_optimizer"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode != 0
    assert result.stderr.count("unknown key model.lora_ranl; the nearest is model.lora_rank") == 1
    assert "importing own_optimizer failed" in result.stderr  # allowed, so it was tried


# ---- ls, cp, cat, validate -----------------------------------------------------------------------
def test_ls_shows_the_pack_first_and_torchtune_after_it(capsys):
    assert cli.main(["ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["custom_lora", "llama3_8b_grammar"]
    assert any(line.split()[0] == "full_finetune_distributed" for line in lines)


def test_cp_copies_a_config_and_a_recipe(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["cp", "llama3_8b_grammar", "."]) == 0
    assert cli.main(["cp", "custom_lora", "mine.py"]) == 0
    for copy, original in (
        ("llama3_8b_grammar.yaml", "configs/llama3_8b_grammar.yaml"),
        ("mine.py", "recipes/custom_lora.py"),
    ):
        assert (tmp_path / copy).read_text() == (ROOT / original).read_text()


def test_cat_shows_a_config(capsys):
    assert cli.main(["cat", "llama3_8b_grammar"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["model"]["_component_"] == "torchtune.models.llama3.lora_llama3_8b"


def test_validate_takes_names_and_paths_and_finds_the_recipe(tmp_path, capsys):
    good = ["llama3_8b_grammar", ROOT / "configs" / "smollm2_135m_grammar_eval.yaml"]
    copy = tmp_path / "mine.yaml"
    copy.write_text((ROOT / "configs" / "smollm2_135m_grammar_eval.yaml").read_text())
    for config in (*good, copy):
        assert cli.main(["validate", str(config)]) == 0
    assert capsys.readouterr().out == "Config is well-formed!\n" * 3
    assert cli.main(["validate", str(copy), "--recipe", "custom_lora"]) == 2
    assert "optimizer is missing" in capsys.readouterr().err


def test_validate_refuses_misspelt_keys_with_the_nearest(tmp_path, capsys):
    """Torchtune's own validate passes them."""
    text = (ROOT / "configs" / "llama3_8b_grammar.yaml").read_text()
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("batch_size:", "bach_size:").replace("lora_rank:", "lora_ranl:"))
    assert cli.main(["validate", str(path)]) == 2
    err = capsys.readouterr().err
    assert "unknown key bach_size; the nearest is batch_size" in err
    assert "unknown key model.lora_ranl; the nearest is model.lora_rank" in err


def test_torchtunes_own_configs_are_known_for_what_they_are():
    register()
    for recipe in get_all_recipes():
        for config in recipe.configs:
            path = TORCHTUNE_DIR / "configs" / config.file_path
            if path.is_file():  # torchtune left one out of its wheel
                is_own = path.is_relative_to(ROOT / "configs")
                own = recipe_of_config(config.name) if is_own else None
                assert cli._guess_recipe(set(yaml.safe_load(path.read_text()))) == own, path


def test_validate_leaves_torchtunes_configs_to_torchtune(tmp_path, capsys):
    assert cli.main(["validate", "llama3_2/1B_lora_single_device"]) == 0
    assert capsys.readouterr().out == "Config is well-formed!\n"
    path = tmp_path / "x.yaml"
    path.write_text("checkpointer: 1\nmodel: {_component_: torchtune.models.nowhere}\n")
    assert cli.main(["validate", str(path)]) == 2
    assert "torchtune.models.nowhere" in capsys.readouterr().err


def test_no_command_shows_the_commands(capsys):
    assert cli.main([]) == 0
    assert "{download,ls,cp,run,validate,cat}" in capsys.readouterr().out


def test_only_download_pays_for_the_hubs_libraries():
    """They take most of a second to import, which torchtune's tune pays on every start."""
    parser = cli._build_parser(["run"])
    choices = next(a.choices for a in parser._actions if a.choices)
    assert list(choices) == ["run"]

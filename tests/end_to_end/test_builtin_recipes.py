"""torchtune's built-in recipes run under the pack's command line as they are."""

import custom_components.compat  # noqa: F401

import contextlib
import importlib.util
import io
import json
import os
import re
import tempfile

import pytest
import torch
import torchtune.config
import torchtune.training
from torchtune._recipe_registry import get_all_recipes
from torchtune.models.llama3 import llama3

from custom_components import cli, launch
from custom_components.registry import RECIPE_CONFIGS, find_config, find_recipe
from tests.ranks import find_free_port, run_ranks

BUILTIN = {r.name: r for r in get_all_recipes() if r.name not in RECIPE_CONFIGS}
FIRST_CONFIG = {name: recipe.configs[0].name for name, recipe in BUILTIN.items()}
NOT_IN_THE_WHEEL = {"dev/early_exit_finetune_distributed": "llama2/7B_full"}
"""A recipe whose config torchtune registers and does not ship, and one that it can read."""


def script_and_words(name):
    config = NOT_IN_THE_WHEEL.get(name, FIRST_CONFIG[name])
    return find_recipe(name).path, ["--config", str(find_config(config, name)), "seed=123"]


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_every_built_in_recipe_reads_its_config_under_the_launcher(
    name, monkeypatch, tmp_path, capsys
):
    """The last thing a recipe does before it starts its work is to log its config."""
    logged = {}

    def stop(recipe_name, cfg):
        logged[recipe_name] = cfg
        raise SystemExit(0)

    monkeypatch.setattr(torchtune.config, "log_config", stop)
    monkeypatch.setattr(torchtune.training, "is_distributed", lambda: True)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *args, **kwargs: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = launch.run_script(*script_and_words(name))
    if name == "eleuther_eval" and importlib.util.find_spec("lm_eval") is None:
        assert code == 1  # its library is not installed, which is one line
        assert "No module named 'lm_eval'" in capsys.readouterr().err
        return
    assert code == 0
    (cfg,) = logged.values()
    assert cfg.seed == 123 and "checkpointer" in cfg


def test_the_single_device_recipe_takes_two_steps_on_the_cpu(tmp_path, monkeypatch):
    torch.manual_seed(0)
    from custom_components.models import tiny

    (tmp_path / "base").mkdir()
    torch.save(llama3(**tiny._SIZES).state_dict(), tmp_path / "base" / "tiny.pt")
    rows = [{"input": f"He go home {i}.", "output": f"He goes home {i}."} for i in range(6)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    (tmp_path / "own_tokenizer.py").write_text(
        "from custom_components.models.byte_tokenizer import ByteTokenizer\n"
        "class Build(ByteTokenizer):\n"
        "    def __init__(self, path, max_seq_len):\n"
        "        super().__init__()\n"
        "    def __call__(self, sample, inference=False):\n"
        "        tokens, mask = self.tokenize_messages(sample.pop('messages'))\n"
        "        return {**sample, 'tokens': tokens, 'mask': mask}\n"
    )
    monkeypatch.chdir(tmp_path)  # a module beside the user is importable, as with torchtune
    words = (
        "run lora_finetune_single_device --config llama3/8B_lora_single_device "
        "device=cpu dtype=fp32 seed=1 output_dir=out "
        "model=custom_components.models.tiny.tiny_lora_llama3_8b "
        "model.lora_attn_modules=[q_proj,v_proj] tokenizer=own_tokenizer.Build "
        "checkpointer=torchtune.training.FullModelTorchTuneCheckpointer "
        "checkpointer.checkpoint_dir=base checkpointer.checkpoint_files=[tiny.pt] "
        "dataset=torchtune.datasets.instruct_dataset dataset.source=json dataset.split=train "
        "dataset.data_files=rows.json dataset.cache_dir=cache "
        "max_steps_per_epoch=2 gradient_accumulation_steps=1 lr_scheduler.num_warmup_steps=0 "
        "optimizer.lr=0.01 log_peak_memory_stats=False enable_activation_checkpointing=False"
    )
    assert cli.main(words.split()) == 0
    (log,) = (tmp_path / "out" / "logs").glob("*.txt")
    losses = [float(loss) for loss in re.findall(r"loss:([\d.]+)", log.read_text())]
    assert len(losses) == 2 and losses[1] < losses[0]
    adapter = torch.load(tmp_path / "out" / "epoch_0" / "adapter_model.pt")
    trained = [v for k, v in adapter.items() if k.endswith("lora_b.weight")]
    assert trained and all(v.abs().sum() > 0 for v in trained)


def _refusals(ports, folder):
    """Run every distributed recipe as a world of one; return code and message by name."""
    tempfile.tempdir = folder  # of tracebacks
    results = {}
    for name, port in ports.items():
        os.environ["MASTER_PORT"] = str(port)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            script, words = script_and_words(name)
            code = launch.run_script(script, [*words, "dtype=fp32"])
        results[name] = (code, said.getvalue())
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
    return results


@pytest.mark.skipif(torch.cuda.is_available(), reason="they run on a GPU")
def test_distributed_recipes_reach_torchtunes_own_refusal_of_a_cpu(tmp_path):
    names = [name for name, recipe in BUILTIN.items() if recipe.supports_distributed]
    ports = {name: find_free_port() for name in names}
    (results,) = run_ranks(1, _refusals, ports, str(tmp_path))
    assert results.keys() == set(names)
    for name, (code, said) in results.items():
        assert code == 1, name
        assert re.fullmatch(r"error: ValueError: [^\n]*no GPUs found![^\n]*\n", said), (name, said)


@pytest.mark.skipif(torch.cuda.is_available(), reason="it runs on a GPU")
def test_a_distributed_recipe_is_refused_once_under_tune_run(
    tmp_path, monkeypatch, capfd, signals_kept
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of the ranks, for their tracebacks
    words = "run --nproc_per_node 2 lora_finetune_distributed --config llama3/8B_lora".split()
    assert cli.main(words) == 1
    out, err = capfd.readouterr()
    assert err.count("\n") == 1 and err.startswith("error: ")
    assert "no GPUs found" in err and "Running with torchrun" not in out

"""The worker's side: reading arguments, running a recipe, telling failures and exit codes."""

import os
import re
import tempfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from custom_components import launch
from custom_components.errors import UserError
from custom_components.launch import (
    choose_run_name,
    parse_recipe_arguments,
    report_failure,
    run_recipe,
    run_script,
)


@pytest.fixture(autouse=True)
def outside_torchrun(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("TORCHELASTIC_ERROR_FILE", launch.RUN_NAME_VARIABLE, launch.CHECKED_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def attempt(tmp_path, monkeypatch):
    """The folder torchrun makes for one attempt of this machine's ranks."""
    folder = tmp_path / "run" / "attempt_0"
    (folder / "0").mkdir(parents=True)
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(folder / "0" / "error.json"))
    return folder


# ---- Arguments -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "words",
    [
        ["--config", "c.yaml", "a=1", "~b"],
        ["--config=c.yaml", "a=1", "~b"],
        ["c.yaml", "a=1", "~b"],
        ["a=1", "~b", "c.yaml"],
        ["a=1", "--config", "c.yaml", "~b"],
    ],
)
def test_the_config_stands_anywhere_with_or_without_its_option(words):
    arguments = parse_recipe_arguments(words)
    assert (arguments.config, arguments.overrides) == ("c.yaml", ("a=1", "~b"))


def test_a_config_path_may_contain_an_equals_sign(tmp_path):
    path = tmp_path / "lr=3.yaml"
    path.write_text("")
    assert parse_recipe_arguments([str(path), "a=b=c"]).config == str(path)
    assert parse_recipe_arguments([str(path), "a=b=c"]).overrides == ("a=b=c",)


def test_allowed_packages_are_gathered():
    words = ["--allow-component", "one", "c.yaml", "--allow-component=two", "a=1"]
    assert parse_recipe_arguments(words).allowed == {"one", "two"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no config given"),
        (["a=1"], "no config given"),
        (["--config"], "expected one argument"),
        (["c.yaml", "d.yaml"], "'d.yaml' is not key=value"),
        (["--config", "c.yaml", "d"], "'d' is not key=value"),
        (["c.yaml", "--nproc_per_node", "2"], "torchrun's options stand before the recipe"),
        (["c.yaml", "--lr=3"], "unknown option --lr=3"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(words, message):
    with pytest.raises(UserError, match=re.escape(message)):
        parse_recipe_arguments(words)


# ---- Names ---------------------------------------------------------------------------------------
def test_the_run_is_named_by_the_config_then_the_parent_then_the_clock(monkeypatch):
    config = Path("/x/llama3.yaml")
    unnamed = OmegaConf.create({"run_name": None})
    assert re.fullmatch(r"llama3-\d{8}-\d{6}", choose_run_name(unnamed, config))
    monkeypatch.setenv(launch.RUN_NAME_VARIABLE, "from-parent")
    assert choose_run_name(unnamed, config) == "from-parent"
    assert choose_run_name(OmegaConf.create({"run_name": "mine"}), config) == "mine"


def test_ranks_under_plain_torchrun_choose_one_name(attempt):
    """Each rank's own clock would give several names."""
    os.utime(attempt.parent, (1_000_000_000, 1_000_000_000))
    name = choose_run_name(OmegaConf.create({}), Path("c.yaml"))
    assert re.fullmatch(r"c-2001090[89]-\d{6}", name)


# ---- Running -------------------------------------------------------------------------------------
def run(tmp_path, monkeypatch, main, *overrides):
    config = tmp_path / "c.yaml"
    config.write_text("value: 1\n")
    monkeypatch.setattr("sys.argv", [str(tmp_path / "r.py"), "--config", str(config), *overrides])
    return run_recipe(main)


def test_a_recipe_gets_its_config_and_a_run_name(tmp_path, monkeypatch):
    seen = []
    assert run(tmp_path, monkeypatch, seen.append, "value=2", "text=a=b") == 0
    assert (seen[0].value, seen[0].text) == (2, "a=b")
    assert seen[0].run_name.startswith("c-")


def test_a_mistake_in_an_override_ends_with_code_2(tmp_path, monkeypatch, capsys):
    assert run(tmp_path, monkeypatch, lambda cfg: None, "value") == 2
    assert capsys.readouterr().err == (
        "error: 'value' is not key=value, and the config is "
        + f"{str(tmp_path / 'c.yaml')!r}: give one config\n"
    )


def test_a_users_mistake_is_one_message_without_traceback(tmp_path, monkeypatch, capsys):
    def main(cfg):
        raise UserError("row 3: empty", "row 9: empty")

    assert run(tmp_path, monkeypatch, main) == 2
    assert capsys.readouterr().err == ("error: 2 problems:\n  1. row 3: empty\n  2. row 9: empty\n")


def test_any_other_failure_is_one_line_and_a_traceback_in_the_run_folder(
    tmp_path, monkeypatch, capsys
):
    run_dir = tmp_path / "runs" / "one"
    run_dir.mkdir(parents=True)

    def main(cfg):
        return 1 / 0

    overrides = [f"output_dir={tmp_path / 'runs'}", "run_name=one"]
    assert run(tmp_path, monkeypatch, main, *overrides) == 1
    path = run_dir / "traceback_rank0.txt"
    expected = f"error: ZeroDivisionError: division by zero (traceback: {path})\n"
    assert capsys.readouterr().err == expected
    assert "return 1 / 0" in path.read_text()


def test_an_interrupt_is_code_130_and_one_line(tmp_path, monkeypatch, capsys):
    def main(cfg):
        raise KeyboardInterrupt

    assert run(tmp_path, monkeypatch, main) == 130
    assert capsys.readouterr().err == "stopped by SIGINT\n"


def test_a_recipe_may_exit_by_itself(tmp_path, monkeypatch):
    def main(cfg):
        raise SystemExit(7)

    with pytest.raises(SystemExit, match="7"):
        run(tmp_path, monkeypatch, main)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", 0),
        ("sys.exit()", 0),
        ("sys.exit(5)", 5),
        ("sys.exit('no')", 1),
        ("raise UserErrorHere", 1),
        ("raise KeyboardInterrupt", 130),
        ("assert sys.argv[1:] == ['--config', 'x', 'a=b']", 0),
        ("assert __name__ == '__main__'", 0),
        ("import beside; assert beside.here", 0),
    ],
)
def test_a_script_runs_as_main_and_its_code_is_returned(tmp_path, body, code):
    (tmp_path / "beside.py").write_text("here = True\n")
    script = tmp_path / "r.py"
    script.write_text(f"import sys\n{body}\n")
    assert run_script(script, ["--config", "x", "a=b"]) == code


# ---- Failing on several ranks --------------------------------------------------------------------
def test_the_first_rank_that_fails_speaks_and_its_code_holds(attempt, capsys):
    assert report_failure(UserError("row 3: empty")) == 2
    assert report_failure(UserError("row 3: empty")) == 2
    assert report_failure(RuntimeError("connection closed by peer")) == 2
    assert capsys.readouterr().err == "error: row 3: empty\n"


def test_a_later_failure_still_has_its_traceback_in_a_file(attempt, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    report_failure(UserError("first"))
    report_failure(RuntimeError("second"), folder=tmp_path)
    assert "RuntimeError: second" in (tmp_path / "traceback_rank3.txt").read_text()

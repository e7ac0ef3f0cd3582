"""The README says what is there and what works: its tree, its commands, its names."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from custom_components.cli import main
from custom_components.components import instantiate
from custom_components.config import load_config, read_options
from custom_components.datasets.collate import IGNORE_INDEX
from custom_components.models.byte_tokenizer import ByteTokenizer
from custom_components.options import LoraOptions
from custom_components.registry import find_config

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()


def read_tree() -> set[str]:
    """Paths of the README's tree: two blanks of indent a level, a gloss after two blanks."""
    [block] = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)
    paths, folders = set(), []
    for line in block.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.strip().split("  ")[0]
        folders[depth:] = [name]
        paths.add("".join(folders))
    return paths


def read_disk() -> set[str]:
    """Every tracked or new file that the tree should show, and the folders above it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    shown = [
        path
        for path in listed
        if (ROOT / path).is_file()
        and not path.endswith("__init__.py")
        and path != ".gitignore"
        and not path.startswith(("tests/", "docs/"))
    ]
    folders = {f"{parent}/" for path in shown for parent in Path(path).parents if parent.name}
    return {*shown, *folders, "tests/"} | ({"docs/"} if (ROOT / "docs").is_dir() else set())


def test_the_tree_is_what_is_on_disk() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    assert read_tree() == read_disk()


def read_commands(program: str) -> list[list[str]]:
    blocks = "".join(re.findall(r"```bash\n(.*?)```", README, flags=re.DOTALL))
    lines = blocks.replace("\\\n", " ").splitlines()
    commands = [part.strip() for line in lines for part in line.split("&&")]
    return [shlex.split(c, comments=True) for c in commands if c.startswith(f"{program} ")]


def read_examples() -> list[tuple[str, list[str]]]:
    """Every row that is shown, with the command below it."""
    found = re.findall(r"```json\n(.*?)\n```\n+```bash\n(.*?)```", README, flags=re.DOTALL)
    return [(row, shlex.split(command.replace("\\\n", " "))) for row, command in found]


def find_source(words: list[str]) -> str:
    [source] = [word for word in words if word.startswith("dataset.source=")]
    return source.removeprefix("dataset.source=/data/")


def write_data(folder: Path) -> None:
    for row, words in read_examples():
        (folder / find_source(words)).write_text(f"{row}\n")


def test_there_is_a_worked_example_for_every_layout_and_it_can_be_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    layouts = set()
    for row, words in read_examples():
        overrides = [w.replace("/data/", f"{tmp_path}/") for w in words if "=" in w]
        config = next(word for word in words if word.endswith(".yaml"))
        cfg = load_config(find_config(config), overrides)
        dataset = instantiate(read_options(LoraOptions, cfg).dataset, ByteTokenizer())
        labels = [label for label in dataset[0]["labels"] if label != IGNORE_INDEX]
        assert json.loads(row) and ByteTokenizer().decode(labels) in (
            "He goes home.", "Two miles.", "Paris",
        )  # fmt: skip
        layouts.add(cfg.dataset.get("layout", Path(config).stem))
    assert layouts == {"llama3_8b_grammar", "llama3_8b_instruct", "sharegpt", "alpaca"}


def test_every_run_command_asks_only_for_what_this_machine_lacks(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys, components and data of the commands are right; GPU and weights are missing here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # never start a real run here
    write_data(tmp_path)
    commands = [command for command in read_commands("tune") if command[1] == "run"]
    assert len(commands) >= 3
    for command in commands:
        words = [word.replace("/data/", f"{tmp_path}/") for word in command[1:]]
        code = main(words)
        said = capfd.readouterr().err
        assert code == 2, said
        found = [line for line in said.splitlines() if re.match(r"\s+\d+\.|error: \D", line)]
        lacking = ("no CUDA device", "visible GPUs", "checkpoint_dir", "tokenizer.path")
        assert found and all(any(word in line for word in lacking) for line in found), said


def test_the_other_tune_commands_work(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in read_commands("tune"):
        if command[1] in ("cp", "validate", "ls"):
            assert main(command[1:]) == 0, command
    said = capfd.readouterr().out
    assert "Config is well-formed!" in said and "custom_lora" in said


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    documents = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`?make ([a-z-]+)", documents)) - {"are"}
    assert {"demo", "test"} <= named
    for target in named:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target

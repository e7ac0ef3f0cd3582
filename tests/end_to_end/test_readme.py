"""The README says what is there and what works: its tree, its commands, its names."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from custom_components.cli import main

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


def test_every_run_command_asks_only_for_what_this_machine_lacks(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys, components and data of the commands are right; GPU and weights are missing here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # never start a real run here
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"wrong": "He go home.", "right": "He goes home."}\n')
    commands = [command for command in read_commands("tune") if command[1] == "run"]
    assert len(commands) >= 3
    for command in commands:
        words = [word.replace("/data/pairs.jsonl", str(data)) for word in command[1:]]
        code = main(words)
        said = capfd.readouterr().err
        assert code == 2, said
        found = [line for line in said.splitlines() if re.match(r"\s+\d+\.", line)]
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

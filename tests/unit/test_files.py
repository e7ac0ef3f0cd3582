"""Atomic writes: the old file or the new one, and no staging file left behind."""

from pathlib import Path

import pytest

from custom_components.files import write_atomically


def test_text_and_bytes_replace_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomically(path, "één")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    write_atomically(path, "old")

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]

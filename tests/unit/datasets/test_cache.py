import custom_components.compat  # noqa: F401

from importlib.metadata import version

import pytest

from custom_components.datasets import cache
from custom_components.datasets.cache import cache_root, find_or_build, fingerprint
from custom_components.datasets.token_store import DatasetReport, TokenStoreWriter


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TUNEPACK_CACHE", str(tmp_path / "cache"))
    cache._versions.cache_clear()
    yield
    cache._versions.cache_clear()


class Words:
    def fingerprint(self):
        return "words"


class Letters:
    def fingerprint(self):
        return "words"


# --- The fingerprint ---


@pytest.mark.parametrize(
    "name",
    ["datasets/sft.py", "models/byte_tokenizer.py", "models/tokenizer_checks.py"],
)
def test_code_that_decides_the_tokens_is_part_of_the_fingerprint(tmp_path, monkeypatch, name):
    for folder in ("datasets", "models"):
        (tmp_path / folder).mkdir()
    (tmp_path / name).write_text("old")
    monkeypatch.setattr(cache, "_PACKAGE_DIR", tmp_path)
    before = fingerprint({}, Words())
    assert fingerprint({}, Words()) == before
    (tmp_path / name).write_text("new")
    cache._versions.cache_clear()
    assert fingerprint({}, Words()) != before


@pytest.mark.parametrize("library", ["tiktoken", "tokenizers", "torchtune"])
def test_another_version_of_a_tokenizers_library_is_another_data_set(monkeypatch, library):
    before = fingerprint({}, Words())
    monkeypatch.setattr(cache, "version", lambda name: "0" if name == library else version(name))
    cache._versions.cache_clear()
    assert fingerprint({}, Words()) != before


def test_tokenizers_of_two_kinds_with_like_settings_are_told_apart():
    """They are written in one file, so only their names tell."""
    assert fingerprint({}, Words()) == fingerprint({}, Words())
    assert fingerprint({}, Words()) != fingerprint({}, Letters())


# --- Several processes at once ---


def write_store(folder, author):
    TokenStoreWriter(folder).close(DatasetReport())
    (folder / "author").write_text(author)


@pytest.mark.parametrize("look", [1, 2])
def test_of_two_that_build_at_once_the_later_takes_what_the_first_left(monkeypatch, look):
    """Another process finishes right after this one has looked, in vain, whether it is there.

    What the first finished is in use by then: it may not be replaced.
    """
    is_whole, num_looks, built = cache.is_whole, 0, []

    def finish(folder, author):
        write_store(folder, author)
        built.append(author)

    def look_then_be_overtaken(folder):
        nonlocal num_looks
        found = is_whole(folder)
        num_looks += 1
        if num_looks == look and not found:
            monkeypatch.setattr(cache, "is_whole", is_whole)
            find_or_build("name", lambda folder: finish(folder, "first"))
        return found

    monkeypatch.setattr(cache, "is_whole", look_then_be_overtaken)
    folder = find_or_build("name", lambda folder: finish(folder, "later"))
    assert (folder / "author").read_text() == min(built)  # "first" wherever it got its turn
    assert [path.name for path in cache_root().iterdir()] == ["name"]

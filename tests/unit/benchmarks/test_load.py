"""``make bench-load`` on a model of a few hundred kilobytes."""

import custom_components.compat  # noqa: F401

import json
import shutil
from collections import namedtuple
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from custom_components.benchmarks import load
from custom_components.benchmarks.load_ranks import (
    Case,
    Memory,
    build_on_meta,
    count_stored_bytes,
    watch_load,
)
from custom_components.errors import UserError
from custom_components.hardware.memory import GIB
from custom_components.models.tiny import tiny_lora_llama3_8b

BF16 = Case(
    "tiny", partial(tiny_lora_llama3_8b, ["q_proj"], lora_rank=8), "shard", 2, max_pss_bytes=8 * GIB
)
NUM_BASE, NUM_ADAPTERS = 139_584, 2 * 2 * 8 * 64
NUM_IN_LAYERS = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    load.write_random_checkpoint(build_on_meta(BF16), folder)
    return folder


def test_the_8b_checkpoint_has_the_published_number_of_parameters() -> None:
    adapters = 32 * 8 * (4096 + 4096 + 4096 + 1024)
    assert count_stored_bytes(load.SHARD_BF16) == 2 * 8_030_261_248 + 4 * adapters
    in_layers = 8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096
    assert count_stored_bytes(load.WHOLE_NF4) == (
        2 * (8_030_261_248 - in_layers + adapters)
        + in_layers // 2 + in_layers // 64 + 2 * in_layers // 64 // 256
    )  # fmt: skip


def test_stored_bytes_follow_the_mode() -> None:
    assert count_stored_bytes(BF16) == 2 * NUM_BASE + 4 * NUM_ADAPTERS
    replicated = replace(BF16, data_parallel="replicate")
    assert count_stored_bytes(replicated) == 2 * 2 * (NUM_BASE + NUM_ADAPTERS)
    nf4 = partial(tiny_lora_llama3_8b, ["q_proj"], lora_rank=8, quantize_base=True)
    plain = NUM_BASE - NUM_IN_LAYERS + NUM_ADAPTERS
    in_nf4 = NUM_IN_LAYERS // 2 + NUM_IN_LAYERS // 64 + 2 * NUM_IN_LAYERS // 64 // 8
    one = Case("nf4", nf4, "replicate", 1, max_pss_bytes=GIB)
    assert count_stored_bytes(one) == 2 * plain + in_nf4


def test_a_complete_checkpoint_is_used_again_and_any_other_folder_refused(
    folder: Path, tmp_path: Path
) -> None:
    decoder = build_on_meta(BF16)
    with load.open_checkpoint(decoder, tmp_path / "new") as written:
        (shard,) = load.find_shards(written)
    written_at = shard.stat().st_mtime_ns
    assert shard.read_bytes() == (folder / shard.name).read_bytes()
    with load.open_checkpoint(decoder, tmp_path / "new"):
        assert shard.stat().st_mtime_ns == written_at
    shard.write_bytes(b"another model")
    with pytest.raises(UserError, match="FOLDER: "), load.open_checkpoint(decoder, shard.parent):
        pass
    assert shard.read_bytes() == b"another model"


def test_without_a_folder_nothing_is_left() -> None:
    with load.open_checkpoint(build_on_meta(BF16), None) as folder:
        assert load.find_shards(folder)
    assert not folder.exists()


def test_a_full_disk_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "free")(100_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"FOLDER: .* takes 0\.0 GB and .* free: give a folder"):
        load.write_random_checkpoint(build_on_meta(BF16), tmp_path)
    assert not list(tmp_path.iterdir())


def test_pages_that_stay_in_memory_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "drop_cached_pages", lambda path: path.read_bytes())
    with pytest.raises(UserError, match="stay in memory and would be timed"):
        load.empty_page_cache(folder)


def test_two_ranks_are_watched(folder: Path) -> None:
    memory = watch_load(BF16, folder)
    assert 0.2 * GIB < memory.base_bytes < 4 * GIB
    assert 0.9 * memory.base_bytes < memory.peak_bytes < memory.base_bytes + GIB


def test_a_broken_bound_is_said_and_returned(capsys: pytest.CaptureFixture[str]) -> None:
    assert load.report_memory(BF16, Memory(GIB, 8 * GIB, 3.0))
    assert "peak PSS 8.00 GiB, within the bound of 8.00" in capsys.readouterr().err
    assert not load.report_memory(BF16, Memory(GIB, 8 * GIB + 1, 3.0))
    captured = capsys.readouterr()
    assert "BREAKS the bound" in captured.err
    peak, _, seconds, formula = map(json.loads, captured.out.splitlines())
    assert (peak["metric"], peak["unit"], peak["measured"]) == ("peak PSS", "GiB", True)
    assert (seconds["metric"], seconds["value"]) == ("load time, watched", 3.0)
    assert not formula["measured"]


def test_the_share_of_the_disks_rate_is_taken_round_by_round(
    capsys: pytest.CaptureFixture[str],
) -> None:
    timings = load.Timings(plain_read=[1.0, 3.0, 4.0], tensor_read=[1, 1, 1], load=[2.0, 4.0, 4.0])
    load.report_timings(BF16, timings, 10**9)
    by_metric = {
        line["metric"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())
    }
    share = by_metric["load rate / disk rate"]
    assert (share["value"], share["spread"], share["n"]) == (0.75, [0.5, 1.0], 3)
    assert by_metric["load rate"]["value"] == 0.25e9

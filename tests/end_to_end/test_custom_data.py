"""``tune run custom_data``: the audit of a training config's data."""

import json
import time

import pytest

from custom_components.cli import main
from tests.lora_runs import ON_CPU

BYTES = [word for word in ON_CPU if word.startswith(("tokenizer", "wandb"))]


def audit(output_dir, config, *overrides):
    """Return exit code and run folder."""
    words = [config, *BYTES, f"output_dir={output_dir}", "run_name=audit", *overrides]
    return main(["run", "custom_data", *words]), output_dir / "audit"


def write_rows(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def read_summary(run_dir):
    return json.loads((run_dir / "summary.json").read_text())


def test_audit_runs_on_the_config_of_a_gpu_run_and_shows_what_is_trained_on(tmp_path, capfd):
    code, run_dir = audit(tmp_path, "llama3_8b_grammar", "dataset.max_rows=20")
    assert code == 0
    summary = read_summary(run_dir)
    assert summary["status"] == "finished"
    assert summary["dataset"]["rows"] == summary["dataset"]["samples"] == 20
    assert summary["dataset"]["supervised_share"] < 0.6
    page = (run_dir / "preview.html").read_text()
    assert page.count("<section>") == 2 * 5  # the training and the held-out set
    assert "<mark>" in page and "&lt;|eot_id|&gt;" in page
    out = capfd.readouterr()
    assert "20 read, 20 kept" in out.out + out.err
    assert (run_dir / "bad_rows.jsonl").read_text() == ""


def test_rows_that_the_config_says_nothing_about_end_with_code_1_each_by_number(tmp_path, capfd):
    rows = [{"input": "good", "output": "Good."}, {"input": "bad", "output": None},
            {"input": "x" * 900, "output": "y"}]  # fmt: skip
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    path.write_bytes(path.read_bytes() + b'{"input": "\xff"}\n{"input": 1\n')
    source = [f"dataset.source={path}", "dataset.truncation=error"]
    code, run_dir = audit(tmp_path, "llama3_8b_grammar", *source)
    assert code == 1
    bad = [json.loads(line) for line in (run_dir / "bad_rows.jsonl").read_text().splitlines()]
    assert [(row["file"], row["row"], row["fate"], row["reason"]) for row in bad] == [
        (str(path), 2, "refused", "no text"),
        (str(path), 3, "refused", "too long"),
        (str(path), 4, "refused", "unreadable"),
        (str(path), 5, "refused", "unreadable"),
    ]
    assert read_summary(run_dir)["refused_rows"] == 4
    assert f"{path}:2 has no output" in "".join(capfd.readouterr())


def test_rows_that_the_config_drops_end_with_code_0(tmp_path):
    rows = [{"input": "good", "output": "Good."}, {"input": "bad", "output": None}]
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    code, run_dir = audit(
        tmp_path, "llama3_8b_grammar", f"dataset.source={path}", "dataset.unusable_rows=drop"
    )
    assert code == 0
    assert read_summary(run_dir)["dataset"]["dropped"] == {"no text": 1}


def test_data_without_a_usable_row_ends_with_code_1(tmp_path):
    path = write_rows(tmp_path / "pairs.jsonl", [{"input": "bad", "output": None}])
    code, _ = audit(
        tmp_path, "llama3_8b_grammar", f"dataset.source={path}", "dataset.unusable_rows=drop"
    )
    assert code == 1


def test_missing_file_is_a_mistake_of_the_config(tmp_path, capfd):
    code, _ = audit(tmp_path, "llama3_8b_grammar", f"dataset.source={tmp_path}/none.jsonl")
    assert code == 2
    assert "none.jsonl" in capfd.readouterr().err


def test_held_out_file_that_breaks_off_is_named_by_its_key(tmp_path, capfd):
    path = tmp_path / "val.csv"
    path.write_text("input,output\n" + "a,b\n" * 150 + 'c,"open\n' + "d,e\n" * 3)
    overrides = [f"dataset_val.source={path}", "dataset_val.split=train", "dataset.max_rows=5"]
    code, _ = audit(tmp_path, "llama3_8b_grammar", *overrides)
    assert code == 2
    said = capfd.readouterr().err
    assert "error: dataset_val.source: " in said and f"{path}:152" in said


def test_real_data_is_audited(tmp_path, data_dir):
    """JFLEG with four references, DialogSum, and conversations in ShareGPT's layout."""
    jfleg = data_dir / "jfleg"
    texts = [(jfleg / name).read_text(encoding="utf-8").splitlines()
             for name in ("dev.src", "dev.ref0", "dev.ref1", "dev.ref2", "dev.ref3")]  # fmt: skip
    rows = [{"sentence": source, "corrections": list(others)}
            for source, *others in zip(*texts, strict=True)]  # fmt: skip
    path = write_rows(tmp_path / "jfleg.jsonl", rows)
    columns = "dataset.column_map={input: sentence, output: corrections}"
    code, run_dir = audit(
        tmp_path / "1", "llama3_8b_grammar", f"dataset.source={path}", columns,
        "dataset.truncation=error", "dataset.max_seq_len=1024",
    )  # fmt: skip
    assert (code, read_summary(run_dir)["dataset"]["samples"]) == (0, 754)

    columns = "dataset.column_map={input: dialogue, output: summary}"
    code, run_dir = audit(
        tmp_path / "2", "llama3_8b_summarize", columns, "dataset_val=null",
        f"dataset.source={data_dir / 'dialogsum' / 'dev.jsonl'}", "dataset.max_seq_len=8192",
        "dataset.truncation=error",
    )  # fmt: skip
    assert (code, read_summary(run_dir)["dataset"]["samples"]) == (0, 500)

    path = data_dir / "chat" / "identity_sharegpt.json"
    code, run_dir = audit(
        tmp_path / "3", "llama3_8b_instruct", f"dataset.source={path}", "dataset.layout=sharegpt",
        "dataset_val=null", "dataset.truncation=error",
    )  # fmt: skip
    summary = read_summary(run_dir)["dataset"]
    assert (code, summary["samples"]) == (0, len(json.loads(path.read_text())))
    assert summary["supervised_share"] > 0.3  # every answer, not the last alone


@pytest.mark.parametrize("num_rows", [100_000])
def test_a_hundred_thousand_rows_are_audited_in_a_minute(tmp_path, num_rows):
    """With SmolLM2's tokenizer, which is the slower one. Idle, this machine takes half of it."""
    from custom_components.corpora.grammar_corpus import build_grammar_corpus

    pairs = build_grammar_corpus("train")
    rows = ({"input": f"{n} {pairs[n % len(pairs)].source}", "output": pairs[n % len(pairs)].target}
            for n in range(num_rows))  # fmt: skip
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    started = time.monotonic()
    words = ["smollm2_135m_grammar", f"dataset.source={path}", f"output_dir={tmp_path}",
             "run_name=audit", "wandb.mode=disabled"]  # fmt: skip
    assert main(["run", "custom_data", *words]) == 0
    assert time.monotonic() - started < 60
    assert read_summary(tmp_path / "audit")["dataset"]["rows"] == num_rows


def test_held_out_rows_that_are_trained_on_are_counted_and_named(tmp_path, capfd):
    rows = [{"input": f"row {n}", "output": f"Row {n}."} for n in range(4)]
    train = write_rows(tmp_path / "train.jsonl", rows)
    held_out = [rows[2], {**rows[3], "output": "other"}, {"input": "new", "output": "New."}]
    val = write_rows(tmp_path / "val.jsonl", held_out)
    sources = [f"dataset.source={train}", f"dataset_val.source={val}", "dataset_val.split=train"]
    code, run_dir = audit(tmp_path, "llama3_8b_grammar", *sources)
    assert code == 0
    assert read_summary(run_dir)["overlap"] == {"conversations": 1, "prompts": 2}
    assert f"{val}:1 = {train}:3" in "".join(capfd.readouterr())


def test_steps_and_padding_are_those_of_the_configs_batches(tmp_path):
    """Rows of two lengths in turn: batches of two are half padding unless like rows meet."""
    rows = [{"input": "x" * 10, "output": "y" * (10 if n % 2 else 100)} for n in range(10)]
    path = write_rows(tmp_path / "pairs.jsonl", rows)
    common = [f"dataset.source={path}", "dataset_val=null", "shuffle=false", "batch_size=2"]

    def read(name, *overrides):
        code, run_dir = audit(tmp_path / name, "llama3_8b_grammar", *common, *overrides)
        assert code == 0
        return read_summary(run_dir)["dataset"]

    plain = read("plain")
    short, long = plain["length_percentiles"]["0"] - 1, plain["length_percentiles"]["100"] - 1
    assert long == short + 90
    assert plain["padding_unpacked"] == pytest.approx(1 - (short + long) / (2 * long))
    assert plain["steps_per_epoch"] == {"1": 5, "2": 3, "4": 2, "8": 1}
    grouped = read("grouped", "group_by_length=true")  # four short ones, one of each, four long
    num_positions = 4 * short + 2 * long + 4 * long
    assert grouped["padding_unpacked"] == pytest.approx(1 - 5 * (short + long) / num_positions)
    packs_of_two = ["packed=true", f"dataset.max_seq_len={short + long}"]
    packed = read("packed", *packs_of_two, "batch_size=1")
    assert packed["steps_per_epoch"] == {"1": 5, "2": 3, "4": 2, "8": 1}
    accumulated = read("accumulated", *packs_of_two, "gradient_accumulation_steps=2")
    assert accumulated["steps_per_epoch"] == {"1": 2, "2": 1, "4": 1, "8": 1}

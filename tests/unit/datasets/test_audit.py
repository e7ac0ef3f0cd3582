import json

import pytest

from custom_components.datasets.audit import audit_dataset, find_overlap
from custom_components.datasets.instruct import instruct_dataset
from custom_components.datasets.plan import DataPlan
from custom_components.datasets.supervised import RefusedDataError
from tests.unit.datasets.word_tokenizer import PAD, WordTokenizer


def write_rows(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def pair(question, answer):
    return {"input": question, "output": answer}


def build(path, rows, tokenizer=None, **options):
    return instruct_dataset(
        tokenizer or WordTokenizer(),
        source=write_rows(path, rows),
        layout="prompt_response",
        **options,
    )


def plan_of(dataset, *, world_size=1, **options):
    defaults = {"batch_size": 2, "gradient_accumulation_steps": 1, "seed": 0, "shuffle": False}
    return DataPlan(
        dataset=dataset, world_size=world_size, rank=0, pad_id=PAD, epochs=1, max_steps=None,
        **(defaults | options),
    )  # fmt: skip


# A row of q words and a words has 9 + q + a tokens: bos, two headers of three, two ends.
# One fewer is an input; a + 1 are trained on.


def test_numbers_of_a_data_set_are_those_worked_out_by_hand(tmp_path):
    rows = [pair("q", "a"), pair("q " * 5, "a a"), pair("q", "a"), pair("q " * 9, "a")]
    dataset = build(tmp_path / "rows.jsonl", rows)
    audit = audit_dataset(plan_of(dataset))
    lengths = [11, 16, 11, 19]
    assert dataset.lengths.tolist() == lengths
    assert (audit.rows, audit.samples, audit.tokens) == (4, 4, sum(lengths))
    assert audit.supervised_share == (2 + 3 + 2 + 2) / sum(lengths)
    assert audit.length_percentiles == {0: 11, 5: 11, 25: 11, 50: 11, 75: 16, 95: 19, 100: 19}
    assert audit.repeated == 1
    inputs, positions = sum(lengths) - 4, 2 * 15 + 2 * 18  # two batches of two
    assert audit.padding_unpacked == pytest.approx(1 - inputs / positions)
    assert audit.steps_per_epoch == {1: 2, 2: 1, 4: 1, 8: 1}
    assert audit.steps_per_epoch == {
        n: plan_of(dataset, world_size=n).steps_per_epoch for n in audit.steps_per_epoch
    }
    assert audit.refused == audit.truncated == audit.trimmed == 0
    assert audit.dropped == {}


def test_padding_of_packs_is_what_is_left_of_their_capacity(tmp_path):
    rows = [pair("q", "a"), pair("q " * 5, "a a"), pair("q", "a"), pair("q " * 9, "a")]
    dataset = build(tmp_path / "rows.jsonl", rows, max_seq_len=30)
    # inputs 10, 15, 10, 18 in packs of 30: 18 + 10, 15 + 10
    audit = audit_dataset(plan_of(dataset, packed=True))
    assert audit.padding_packed == pytest.approx(1 - 53 / 60)
    assert audit.steps_per_epoch[1] == 1


def test_rows_that_are_lost_are_counted_by_fate(tmp_path):
    rows = [pair("q", "a"), pair("q", ""), pair("q " * 50, "a"), pair("q", None)]
    options = {"max_seq_len": 20}
    with pytest.raises(RefusedDataError) as error:
        build(tmp_path / "rows.jsonl", rows, **options)
    audit = audit_dataset(plan_of(error.value.dataset))
    assert (audit.rows, audit.samples, audit.refused) == (4, 1, 3)
    options |= {"truncation": "drop", "unusable_rows": "drop"}
    dataset = build(tmp_path / "rows.jsonl", rows, **options)
    audit = audit_dataset(plan_of(dataset))
    assert audit.dropped == {"no text": 2, "too long": 1}
    assert audit.refused == 0


def test_held_out_rows_that_are_trained_on_are_found(tmp_path):
    tokenizer = WordTokenizer()
    train = build(tmp_path / "train.jsonl", [pair("q", "a"), pair("p", "b")], tokenizer)
    heldout = build(
        tmp_path / "val.jsonl", [pair("p", "b"), pair("q", "other"), pair("new", "a")], tokenizer
    )
    overlap = find_overlap(train, heldout)
    assert (overlap.conversations, overlap.prompts) == (1, 2)
    assert overlap.ids == [(f"{tmp_path}/val.jsonl:1", f"{tmp_path}/train.jsonl:2")]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True},
        {"shuffle": True, "seed": 1},
        {"group_by_length": True},
        {"group_by_length": True, "shuffle": True, "gradient_accumulation_steps": 30},
    ],
    ids=str,
)
def test_padding_is_that_of_the_batches_which_training_takes(tmp_path, options):
    """A window of 90 rows holds those of two shuffled blocks, sorted again by length."""
    rows = [pair("q " * (1 + 37 * n % 101), "a") for n in range(150)]
    dataset = build(tmp_path / "rows.jsonl", rows)
    options = {"batch_size": 3} | options
    plan = plan_of(dataset, **options)
    batches = [batch for step in plan.steps() for batch in step]
    assert sum(len(batch.ids) for batch in batches) == 150
    padding = 1 - sum(b.num_tokens for b in batches) / sum(b.num_positions for b in batches)
    assert audit_dataset(plan).padding_unpacked == pytest.approx(padding)

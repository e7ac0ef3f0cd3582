"""What a data set holds and what training will make of it, in numbers and by row.

``audit_dataset`` describes one data set, ``find_overlap`` two of them. Nothing is computed on a
model: lengths, labels and row numbers say it all.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from custom_components.datasets.packing import count_packs
from custom_components.datasets.plan import DataPlan
from custom_components.datasets.preview import make_visible
from custom_components.datasets.rows import Unusable
from custom_components.datasets.sampler import GlobalBatchSampler, SequenceOrder
from custom_components.datasets.supervised import SupervisedDataset

PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
NUM_RANKS = (1, 2, 4, 8)
"""Numbers of ranks whose steps an epoch are told."""


@dataclass(frozen=True, kw_only=True)
class DatasetAudit:
    """One data set.

    Args:
        tables: What was read: files, hub ids, an embedded corpus.
        unused_columns: Columns of these that the layout does not read.
        rows: Rows read.
        left_out: Rows of a mixture that its weights leave out.
        samples: Rows kept.
        tokens: Tokens kept.
        length_percentiles: Tokens of a sample, by percentile.
        supervised_share: Share of the tokens that are trained on.
        truncated: Rows cut to ``max_seq_len``.
        trimmed: Rows that lost turns behind their last answer.
        dropped: Rows left out as the config says, by reason.
        refused: Rows that the config says nothing about: training would not start.
        repeated: Samples whose conversation an earlier sample has too.
        padding_unpacked: Share of padding in batches of the config's ``batch_size``.
        padding_packed: Share of padding in packs of ``max_seq_len``.
        steps_per_epoch: Optimizer steps of one pass, by number of ranks.
    """

    tables: list[str]
    unused_columns: list[str]
    rows: int
    left_out: int
    samples: int
    tokens: int
    length_percentiles: dict[int, int]
    supervised_share: float
    truncated: int
    trimmed: int
    dropped: dict[str, int]
    refused: int
    repeated: int
    padding_unpacked: float
    padding_packed: float
    steps_per_epoch: dict[int, int]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return asdict(self)

    def describe(self) -> dict[str, str]:
        """Return name and value of every number, as they should read."""
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
        lengths = " / ".join(f"{value:,}" for value in self.length_percentiles.values())
        percent = " / ".join(f"{value}" for value in self.length_percentiles)
        steps = ", ".join(f"{count:,} on {n}" for n, count in self.steps_per_epoch.items())
        return {
            "read from": ", ".join(map(make_visible, self.tables)),
            "columns not read": ", ".join(map(make_visible, self.unused_columns)) or "none",
            "rows": f"{self.rows:,} read, {self.samples:,} kept",
            "left out by weight": f"{self.left_out:,}",
            "dropped, as the config says": dropped or "none",
            "refused": f"{self.refused:,}" if self.refused else "none",
            "cut to max_seq_len": f"{self.truncated:,}",
            "turns left off behind the last answer": f"{self.trimmed:,} rows",
            "repeated conversations": f"{self.repeated:,}",
            "tokens": f"{self.tokens:,}, of these {self.supervised_share:.1%} trained on",
            f"tokens a row ({percent} %)": lengths,
            "padding in batches": f"{self.padding_unpacked:.1%}",
            "padding when packed": f"{self.padding_packed:.1%}",
            "optimizer steps an epoch": f"{steps} ranks",
        }


@dataclass(frozen=True)
class Overlap:
    """What a held-out set shares with the training set.

    Args:
        conversations: Held-out samples that are training samples, to the last token.
        prompts: Held-out samples whose first prompt is that of a training sample.
        ids: Ids of the first ones with an equal conversation, else prompt, and its twin's.
    """

    conversations: int
    prompts: int
    ids: list[tuple[str, str]]


def audit_dataset(plan: DataPlan) -> DatasetAudit:
    """Return the numbers of a data set.

    Args:
        plan: What training would follow on one rank; its data set has at least one sample.
    """
    dataset = plan.dataset
    report, lengths = dataset.report, dataset.lengths
    seen: set[bytes] = set()
    num_repeated = 0
    for _, conversation in dataset.iter_digests():
        num_repeated += conversation in seen
        seen.add(conversation)
    percentiles = np.percentile(lengths, PERCENTILES, method="inverted_cdf").tolist()
    return DatasetAudit(
        tables=report.tables,
        unused_columns=report.unused_columns,
        rows=report.rows,
        left_out=report.left_out,
        samples=len(dataset),
        tokens=report.tokens,
        length_percentiles=dict(zip(PERCENTILES, map(int, percentiles), strict=True)),
        supervised_share=report.supervised_tokens / report.tokens,
        truncated=len(report.truncated),
        trimmed=len(report.trimmed),
        dropped={reason: len(rows) for reason, rows in report.dropped.items()},
        refused=len(report.refused),
        repeated=num_repeated,
        padding_unpacked=_padding_unpacked(plan),
        padding_packed=_padding_packed(dataset),
        steps_per_epoch={
            num: -(-plan.num_sequences // (plan.sequences_per_step * num)) for num in NUM_RANKS
        },
    )


def _padding_unpacked(plan: DataPlan) -> float:
    """Return the padding of one rank's first epoch, every batch as long as its longest row."""
    lengths = plan.dataset.lengths - 1  # the last token of a sample is predicted only
    order = SequenceOrder(
        lengths=lengths,
        seed=plan.seed,
        shuffle=plan.shuffle,
        capacity=None,
        group_by_length=plan.group_by_length,
    )
    sampler = GlobalBatchSampler(
        order, batch_size=plan.batch_size, world_size=1, rank=0,
        gradient_accumulation_steps=plan.gradient_accumulation_steps,
    )  # fmt: skip
    batches = ([row for rows in batch for row in rows] for batch in sampler)
    num_positions = sum(len(rows) * int(lengths[rows].max()) for rows in batches)
    return 1 - int(lengths.sum()) / num_positions


def _padding_packed(dataset: SupervisedDataset) -> float:
    inputs = dataset.lengths - 1
    num_packs = count_packs(inputs, capacity=dataset.max_seq_len)
    return 1 - int(inputs.sum()) / (num_packs * dataset.max_seq_len)


def find_overlap(train: SupervisedDataset, heldout: SupervisedDataset) -> Overlap:
    """Return what two data sets have in common; a model is not tested by what it was shown.

    Args:
        train: Samples that are trained on.
        heldout: Samples that are evaluated.
    """
    prompts: dict[bytes, int] = {}
    conversations: dict[bytes, int] = {}
    for index, (prompt, conversation) in enumerate(train.iter_digests()):
        prompts.setdefault(prompt, index)
        conversations.setdefault(conversation, index)
    same_prompt, same_conversation = [], []
    for index, (prompt, conversation) in enumerate(heldout.iter_digests()):
        if prompt in prompts:
            same_prompt.append((index, prompts[prompt]))
        if conversation in conversations:
            same_conversation.append((index, conversations[conversation]))
    pairs = (same_conversation or same_prompt)[:3]
    ids = [(heldout[ours]["id"], train[theirs]["id"]) for ours, theirs in pairs]
    return Overlap(len(same_conversation), len(same_prompt), ids)


def iter_bad_rows(dataset: SupervisedDataset) -> Iterator[tuple[str, Unusable]]:
    """Yield what happens to every row that is not kept (``refused`` or ``dropped``), and the row.

    Args:
        dataset: With its report.
    """
    for row in dataset.report.refused:
        yield "refused", row
    for rows in dataset.report.dropped.values():
        for row in rows:
            yield "dropped", row

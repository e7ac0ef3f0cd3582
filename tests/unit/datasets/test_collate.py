import torch

from custom_components.datasets.collate import IGNORE_INDEX, collate, collate_packs

X = IGNORE_INDEX


def test_batch_agrees_with_the_case_worked_out_by_hand():
    samples = [
        {"tokens": [1, 2, 3, 4], "labels": [X, X, 3, 4], "id": "f:1"},
        {"tokens": [5, 6], "labels": [X, 6], "id": "f:2"},
        {"tokens": [7, 8, 9], "labels": [7, X, 9], "id": "f:3"},
    ]
    batch = collate(samples, pad_id=0)
    assert batch.tokens.tolist() == [[1, 2, 3], [5, 0, 0], [7, 8, 0]]
    # Row 0 predicts 3 at column 1 and 4 at column 2; row 1 predicts 6 at column 0; row 2 predicts 9
    # at column 1. The label of a first token has nothing to be predicted from.
    assert batch.positions.tolist() == [1, 2, 3, 7]
    assert batch.targets.tolist() == [3, 4, 6, 9]
    assert batch.ids == ["f:1", "f:2", "f:3"]
    assert batch.num_tokens == 6
    assert batch.num_supervised == 4
    assert batch.sum_of_squares == 3 * 3**2
    assert (batch.input_pos, batch.documents) == (None, None)
    assert {t.dtype for t in (batch.tokens, batch.positions, batch.targets)} == {torch.int64}


def test_positions_find_the_token_before_each_target():
    tokens = [[3, 1, 4, 1, 5], [9, 2, 6]]
    samples = [{"tokens": t, "labels": [X, *t[1:]], "id": str(i)} for i, t in enumerate(tokens)]
    batch = collate(samples, pad_id=0)
    inputs = batch.tokens.flatten()[batch.positions].tolist()
    assert list(zip(inputs, batch.targets.tolist(), strict=True)) == [
        (3, 1), (1, 4), (4, 1), (1, 5), (9, 2), (2, 6),
    ]  # fmt: skip


def test_rank_without_a_row_gets_one_padding_token_and_nothing_supervised():
    batch = collate([], pad_id=42)
    assert batch.tokens.tolist() == [[42]]
    assert batch.positions.shape == batch.targets.shape == (0,)
    assert batch.positions.dtype == batch.targets.dtype == torch.int64
    assert (batch.ids, batch.num_tokens, batch.num_supervised) == ([], 0, 0)


def test_no_label_crosses_a_boundary_inside_a_pack():
    """torchtune trains the last token of a sample on the first of the next (#2613).

    Nothing is masked; inputs of 3, 2 and 1 positions and two of padding, worked out by hand.
    """
    first, second, third = [
        {"tokens": t, "labels": t, "id": f"f:{t[0]}"} for t in ([1, 2, 3, 4], [5, 6, 7], [8, 9])
    ]
    batch = collate_packs([[first, second], [third]], pad_id=0, capacity=5)
    assert batch.tokens.tolist() == [[1, 2, 3, 5, 6], [8, 0, 0, 0, 0]]
    assert batch.input_pos.tolist() == [[0, 1, 2, 0, 1], [0, 0, 0, 0, 0]]
    assert batch.documents == [[3, 2], [1]]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.targets.tolist() == [2, 3, 4, 6, 7, 9]
    assert batch.ids == ["f:1", "f:5", "f:8"]
    assert (batch.num_tokens, batch.num_positions) == (6, 10)
    assert batch.sum_of_squares == 3**2 + 2**2 + 1 + 4 * 1  # padding attends to itself alone


def test_packed_rows_are_as_wide_as_the_longest_in_steps_of_128_up_to_the_capacity():
    """Few different widths: attention on CUDA is compiled for each."""

    def width(num_inputs: int, capacity: int) -> int:
        sample = {"tokens": [1] * (num_inputs + 1), "labels": [1] * (num_inputs + 1), "id": "f:1"}
        return collate_packs([[sample]], pad_id=0, capacity=capacity).tokens.shape[1]

    assert [width(n, 300) for n in (1, 128, 129, 257, 300)] == [128, 128, 256, 300, 300]


def test_rank_without_a_pack_gets_one_row_of_padding():
    batch = collate_packs([], pad_id=7, capacity=4)
    assert batch.tokens.tolist() == [[7] * 4]
    assert batch.documents == [[]]
    assert (batch.num_tokens, batch.num_supervised, batch.sum_of_squares) == (0, 0, 4)

from custom_components.models.tensor_names import compare_shapes, shorten_names


def test_names_that_differ_in_the_layer_become_one():
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in (0, 1, 2, 7)]
    assert shorten_names([*names, "lm_head.weight"]) == (
        "model.layers.[0-2,7].mlp.up_proj.weight, lm_head.weight"
    )


def test_a_single_layer_keeps_its_plain_name():
    assert shorten_names(["blk.3.ffn_up.weight"]) == "blk.3.ffn_up.weight"


def test_missing_unexpected_and_misshapen_are_told_apart():
    problems = compare_shapes(
        {"a": (1,), "x": (2,), "b.0.w": (3,), "b.1.w": (3,)},
        {"a": (1,), "m": (2,), "b.0.w": (4,), "b.1.w": (4,)},
    )
    assert problems == [
        "tensors that the model needs are missing: m",
        "tensors that the model has no place for: x",
        "tensors of shape [3] where the model has [4]: b.[0-1].w",
    ]


def test_equal_shapes_give_no_problem():
    assert compare_shapes({"a": (1,)}, {"a": (1,)}) == []

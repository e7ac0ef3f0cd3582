"""The data sets of a run: tokenised by one rank of each node, and the same on all ranks."""

import custom_components.compat  # noqa: F401

from collections.abc import Mapping
from typing import Any

from custom_components.components import instantiate
from custom_components.datasets.supervised import SupervisedDataset, check_dataset, name_key
from custom_components.errors import UserError
from custom_components.training.distributed import World


def setup_dataset(
    component: Mapping[str, Any], tokenizer: Any, *, world: World, key: str
) -> SupervisedDataset:
    """Build a data set of a config. Every rank must call it.

    Args:
        component: The config's node.
        tokenizer: The model's.
        world: The ranks.
        key: Its key in the config, for messages.

    Raises:
        UserError: If data are refused, the component builds something else, or the ranks read
            different rows.
    """
    try:
        built = world.build_in_turn(lambda: instantiate(component, tokenizer))
    except UserError as error:
        raise UserError(*name_key(error.problems, key)) from error
    dataset = check_dataset(built, component, key=key)
    if len(set(world.gather(dataset.digest))) > 1:
        raise UserError(
            f"{key}: the ranks read different rows: a file was changed while they started, or the "
            "nodes hold different files; run this again with the same files everywhere"
        )
    return dataset

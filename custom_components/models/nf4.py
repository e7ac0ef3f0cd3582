"""NF4 base weights: the 4-bit format of QLoRA (https://arxiv.org/abs/2305.14314), by torchao.

A matrix is cut into blocks of 64 numbers; each block has a scaler, and ``scaler_block_size``
scalers at a time are quantised together. A matrix therefore needs ``in * out`` divisible by
``64 * scaler_block_size``, times the number of ranks when it is sharded by rows.

A decoder says with a parameter on the meta device that a matrix is to be stored so: torchtune's
builders do it with ``quantize_base``, ``quantize_layers`` does it with any scaler block size.
``load_weights`` quantises whole matrices as it reads them.
"""

import custom_components.compat  # noqa: F401

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torchao.dtypes.nf4tensor import NF4Tensor, to_nf4
from torchtune.modules import TransformerDecoder
from torchtune.modules.peft import get_adapter_params

from custom_components.errors import UserError
from custom_components.models.tensor_names import shorten_names

BLOCK_SIZE = 64
"""Numbers that share a scaler; torchao's default and the QLoRA paper's."""


def local_part(parameter: torch.Tensor) -> torch.Tensor:
    """Return what this rank holds of a parameter: its shard, or all of it."""
    if isinstance(parameter, DTensor):
        local: torch.Tensor = parameter.to_local()
        return local
    return parameter


def is_nf4(parameter: torch.Tensor) -> bool:
    """Say whether a parameter is, or is to be, stored in NF4, whole or sharded."""
    return isinstance(local_part(parameter.detach()), NF4Tensor)


def has_nf4(decoder: nn.Module) -> bool:
    """Say whether any parameter is stored in NF4: whether this is QLoRA."""
    return any(is_nf4(parameter) for parameter in decoder.parameters())


def quantize_layers(decoder: TransformerDecoder, *, scaler_block_size: int) -> TransformerDecoder:
    """Mark every base matrix of the layers for NF4. Embeddings, norms and output stay as they are.

    Args:
        decoder: On the meta device.
        scaler_block_size: Scalers quantised together; every matrix must divide into such blocks.

    Returns:
        The same decoder.
    """
    adapters = get_adapter_params(decoder)
    matrices = {
        name: parameter
        for name, parameter in decoder.named_parameters()
        if name.startswith("layers.") and parameter.dim() == 2 and name not in adapters
    }
    for name, parameter in matrices.items():
        assert parameter.numel() % (BLOCK_SIZE * scaler_block_size) == 0, f"{name} does not divide"
        path, _, leaf = name.rpartition(".")
        marked = to_nf4(parameter.detach(), BLOCK_SIZE, scaler_block_size)
        setattr(decoder.get_submodule(path), leaf, nn.Parameter(marked, requires_grad=False))
    return decoder


def quantize_like(parameter: torch.Tensor, values: torch.Tensor) -> NF4Tensor:
    """Quantise a whole matrix with the block sizes of ``parameter``.

    Args:
        parameter: In NF4, whole or sharded; may be on the meta device.
        values: The matrix, contiguous. Its dtype is the one that NF4 computes in.
    """
    like = local_part(parameter.detach())
    assert isinstance(like, NF4Tensor)
    return to_nf4(values, like.block_size, like.scaler_block_size)


def dequantize_like(parameter: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return what a matrix becomes by being stored as ``parameter`` is; plain ones do not change.

    Args:
        parameter: A base parameter of the model, which may be on the meta device.
        values: Its whole values in the model's dtype.
    """
    if not is_nf4(parameter):
        return values
    weight: torch.Tensor = quantize_like(parameter, values.contiguous()).get_original_weight()
    return weight


def shard_rows(matrix: NF4Tensor, rank: int, num_ranks: int) -> NF4Tensor:
    """Return this rank's rows of a quantised matrix, in memory of their own.

    A slice that was quantised alone would have another mean scaler, hence other numbers.
    """
    rows = torch.chunk(matrix, num_ranks, dim=0)[rank]
    own = matrix.new_zeros(rows.size())
    own.copy_(rows)
    return own


def check_nf4(decoder: nn.Module, *, num_shards: int) -> None:
    """Check that every NF4 matrix can be split over the ranks.

    Args:
        decoder: On the meta device, not yet sharded.
        num_shards: Ranks that share the model.

    Raises:
        UserError: With one sentence, and its numbers, for each size of matrix that cannot.
    """
    unfit: dict[tuple[int, int, int], list[str]] = {}
    for name, parameter in decoder.named_parameters():
        if num_shards == 1 or not isinstance(parameter, NF4Tensor):
            continue
        unit = parameter.block_size * parameter.scaler_block_size * num_shards
        rows, columns = parameter.shape
        if parameter.numel() % unit or rows % num_shards:
            unfit.setdefault((rows, columns, unit), []).append(name)
    if unfit:
        raise UserError(
            *(
                f"data_parallel: shard cannot split NF4 matrices of shape [{rows}, {columns}] over "
                f"{num_shards} ranks ({shorten_names(names)}): {rows} * {columns} = "
                f"{rows * columns:,} must be divisible by {unit:,}, and {rows} by {num_shards}: "
                "set data_parallel=replicate"
                for (rows, columns, unit), names in unfit.items()
            )
        )

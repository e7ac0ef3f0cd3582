"""Give one parameter its memory: whole or this rank's rows, plain or NF4.

A parameter on the meta device says how it is to be stored; whoever has its whole values calls
``place``. Only the part that this rank keeps is copied.
"""

import custom_components.compat  # noqa: F401

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torchao.dtypes.nf4tensor import NF4Tensor

from custom_components.models.nf4 import is_nf4, quantize_like, shard_rows


def place(
    decoder: nn.Module,
    name: str,
    values: torch.Tensor,
    *,
    device: torch.device,
    dtype: torch.dtype,
) -> None:
    """Make ``name`` a parameter with memory of its own.

    Args:
        decoder: Its owner.
        name: Full name of the parameter, perhaps on the meta device and perhaps sharded.
        values: Its whole values, or for a sharded vector just this rank's part.
        device: Where it goes. NF4 is computed there too.
        dtype: What ``values`` are rounded to and stored in; sharded parameters that train are
            stored in fp32, because the optimizer works on them directly.
    """
    path, _, leaf = name.rpartition(".")
    module = decoder.get_submodule(path)
    old = module.get_parameter(leaf)
    if isinstance(old, DTensor):
        new: torch.Tensor = _place_shard(old, values, device=device, dtype=dtype)
    elif is_nf4(old):
        new = quantize_like(old, values.to(device, dtype).contiguous())
    else:
        new = torch.empty(old.shape, dtype=dtype, device=device).copy_(values)
    parameter = nn.Parameter(new, requires_grad=old.requires_grad)
    # Unlike a plain assignment it tells FSDP of the new parameter, whose shards it may pad.
    module.load_state_dict({leaf: parameter}, assign=True, strict=False)


def _place_shard(
    old: DTensor, values: torch.Tensor, *, device: torch.device, dtype: torch.dtype
) -> DTensor:
    mesh = old.device_mesh
    rank, num_ranks = mesh.get_local_rank(), mesh.size()
    local: torch.Tensor
    if is_nf4(old):
        whole: NF4Tensor = quantize_like(old, values.to(device, dtype).contiguous())
        local = shard_rows(whole, rank, num_ranks)
    else:
        like = old.to_local()
        if values.shape != like.shape:
            values = rows_of(values, rank, num_ranks)
        stored = torch.float32 if old.requires_grad else dtype
        local = torch.empty(like.shape, dtype=stored, device=device).copy_(values.to(dtype))
    return DTensor.from_local(
        local, mesh, old.placements, run_check=False, shape=old.shape, stride=old.stride()
    )


def rows_of(values: torch.Tensor, rank: int, num_ranks: int) -> torch.Tensor:
    """Return this rank's rows as FSDP counts them: ceil(n / ranks) each, the last ones fewer."""
    num_rows = -(-len(values) // num_ranks)
    return values[rank * num_rows : (rank + 1) * num_rows]

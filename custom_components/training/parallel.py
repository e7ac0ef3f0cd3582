"""The one place that decides in which order a model is wrapped, and why.

Order: compile, then checkpointing around it, then sharding.

- Each layer is compiled on its own, so the layers share one compiled graph instead of unrolling 32
  copies of it. Whatever is wrapped around it may then break the graph between layers, not inside.
- Checkpointing keeps a layer's input and calls the layer again in backward, so that backward
  re-runs the same compiled forward.
- Sharding gathers a layer's parameters before its forward and again before its backward. That
  second gather also serves the recomputed forward, so checkpointing costs no communication.
"""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)

from custom_components.models.causal_lm import CausalLM
from custom_components.options import ActivationCheckpointing, DataParallel
from custom_components.training.distributed import World


def parallelize(
    model: CausalLM,
    world: World,
    *,
    data_parallel: DataParallel,
    activation_checkpointing: ActivationCheckpointing,
    compile_layers: bool,
    dtype: torch.dtype,
) -> None:
    """Wrap ``model`` in place, before its weights are loaded, so that a rank loads its shard only.

    Args:
        model: Its decoder on the meta device, what is frozen marked as such.
        world: The ranks. One rank alone has nobody to share with and does not shard.
        data_parallel: ``replicate`` needs no wrapper: the step sums the gradients itself.
        activation_checkpointing: ``none`` or ``full`` (keep only each layer's input).
        compile_layers: Compile each layer with dynamic shapes: batches differ in length, and
            a graph for each length would cost more than it gains.
        dtype: What sharded parameters are gathered and computed in. Gradients are summed in fp32.
    """
    if compile_layers:
        # Frozen embeddings need no gradient, all other layers' inputs do: two graphs to compile.
        # Asking for it costs one layer's input gradient and saves a third of the first step.
        model.embeddings_need_grad = True
        for layer in model.decoder.layers:
            layer.compile(dynamic=True)
    model.activation_checkpointing = activation_checkpointing
    if data_parallel == "shard" and world.size > 1:
        _shard(model, world.mesh(), dtype)


def _shard(model: CausalLM, mesh: DeviceMesh, dtype: torch.dtype) -> None:
    """Split every parameter by rows over the ranks: a unit a layer, one for the head, the rest.

    The head stays gathered from forward to backward, which follows at once, and so does the root,
    which is left with the final norm and the embeddings: let go after forward as a unit of their
    own, FSDP would fetch even frozen ones again in backward. Tied embeddings are the head's
    parameter and are gathered once for both ends.
    """
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in model.decoder.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    head: list[nn.Module] = [model.head]
    if not list(model.head.parameters()):
        head.insert(0, model.decoder.tok_embeddings)
    fully_shard(head, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(
        model, mesh=mesh, mp_policy=policy, reshard_after_forward=False,
        # The head's, which the root would find a second time as the decoder's output.
        ignored_params=set(model.head.parameters()),
    )  # fmt: skip
    register_fsdp_forward_method(model, "next_logits")  # generation gathers weights too
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # The loss is divided by the tokens of all ranks: gradients are summed, not averaged.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no other reduction

"""The one place that decides in which order a model is wrapped, and why."""

from custom_components.models.causal_lm import CausalLM
from custom_components.options import ActivationCheckpointing


def parallelize(
    model: CausalLM, *, activation_checkpointing: ActivationCheckpointing, compile_layers: bool
) -> None:
    """Apply checkpointing and compilation to ``model`` in place.

    Order: compile, then checkpoint around it. Each layer is compiled on its own, so the layers
    share one compiled graph instead of unrolling 32 copies of it, and checkpointing stays outside,
    so that backward re-runs the same compiled forward. ``replicate`` needs no wrapper: the step
    sums the gradients itself.

    Args:
        model: The model, weights loaded and base frozen.
        activation_checkpointing: ``none`` or ``full`` (keep only each layer's input).
        compile_layers: Compile each layer with dynamic shapes: batches differ in length, and
            a graph for each length would cost more than it gains.
    """
    if compile_layers:
        # Frozen embeddings need no gradient, all other layers' inputs do: two graphs to compile.
        # Asking for it costs one layer's input gradient and saves a third of the first step.
        model.embeddings_need_grad = True
        for layer in model.decoder.layers:
            layer.compile(dynamic=True)
    model.activation_checkpointing = activation_checkpointing

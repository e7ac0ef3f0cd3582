"""The models that ``custom_eval`` compares: the base model first, then those of ``models``.

Each is a whole model folder, an adapter on one, or both; what an entry leaves out is as at the top
level of the config. ``ModelLoader`` keeps one model in memory and reads a folder again only if the
next model needs another one.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torchtune.modules import TransformerDecoder
from torchtune.training.precision import PRECISION_STR_TO_DTYPE

from custom_components.components import instantiate
from custom_components.errors import UserError
from custom_components.models.adapters import check_adapter, load_adapter
from custom_components.models.causal_lm import CausalLM
from custom_components.models.lora_settings import apply_rslora, switch_adapters
from custom_components.models.tokenizer_checks import check_token_ids
from custom_components.models.weights import check_weights, load_weights
from custom_components.options import Component, EvalOptions
from custom_components.signatures import check_component

BASE = "base model"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One model to evaluate, complete.

    Args:
        name: What the table calls it.
        model: The builder.
        checkpoint_dir: Its weights.
        adapter_path: A PEFT adapter on them, or None.
        use_rslora: How adapters are scaled.
    """

    name: str
    model: Component
    checkpoint_dir: str
    adapter_path: str | None
    use_rslora: bool

    def has_base_of(self, other: "ModelSpec | None") -> bool:
        """Return whether the two differ in nothing but the adapter."""
        return other is not None and (self.model, self.checkpoint_dir, self.use_rslora) == (
            other.model,
            other.checkpoint_dir,
            other.use_rslora,
        )


def list_models(options: EvalOptions) -> list[ModelSpec]:
    """Return the base model and those of ``models``, in order.

    Args:
        options: The recipe's options.
    """
    base = ModelSpec(
        name=BASE,
        model=options.model,
        checkpoint_dir=options.checkpoint_dir,
        adapter_path=None,
        use_rslora=options.use_rslora,
    )
    others = [
        ModelSpec(
            name=entry.name or entry.adapter_path or entry.checkpoint_dir or f"models[{index}]",
            model=options.model if entry.model is None else entry.model,
            checkpoint_dir=entry.checkpoint_dir or options.checkpoint_dir,
            adapter_path=entry.adapter_path,
            use_rslora=options.use_rslora if entry.use_rslora is None else entry.use_rslora,
        )
        for index, entry in enumerate(options.models)
    ]
    return [base, *others]


def find_model_problems(options: EvalOptions) -> list[str]:
    """Return one sentence for each thing wrong with ``models`` and ``reference``.

    Files are looked at as far as their headers; the base model is checked with the config.

    Args:
        options: The recipe's options.
    """
    specs = list_models(options)
    names = [spec.name for spec in specs]
    problems = [
        f"models[{index}].name: {name!r} names an earlier model too: give each its own"
        for index, name in enumerate(names[1:])
        if name in names[: index + 1]
    ]
    if options.reference is not None and options.reference not in names:
        problems.append(
            f"reference: {options.reference!r} is none of the models: choose one of "
            f"{', '.join(map(repr, names))}"
        )
    for index, spec in enumerate(specs[1:]):
        decoder, found = _try_to_build(spec)
        if decoder is None and spec.model == options.model:
            continue  # reported with the config, as are the base model's weights
        if decoder is not None and not spec.has_base_of(specs[0]):
            found += check_weights(decoder, spec.checkpoint_dir)
        if decoder is not None and spec.adapter_path is not None:
            found += check_adapter(decoder, spec.adapter_path)
        problems += [f"models[{index}].{problem}" for problem in found]
    return problems


def _try_to_build(spec: ModelSpec) -> tuple[TransformerDecoder | None, list[str]]:
    """Return the decoder on the meta device, or None and why it cannot be built."""
    if "_component_" not in spec.model:
        return None, ["model has no _component_: the dotted path of what to build"]
    if check_component("models.model", spec.model, places=()):
        return None, []  # reported with the config
    try:
        decoder = build_decoder(spec)
    except UserError as error:
        return None, list(error.problems)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return None, [f"model: {spec.model['_component_']} refuses its arguments: {reason}"]
    if not isinstance(decoder, TransformerDecoder):
        return None, [f"model: it builds a {type(decoder).__name__}, not a torchtune decoder"]
    return decoder, []


def build_decoder(spec: ModelSpec) -> TransformerDecoder:
    """Return the decoder on the meta device."""
    with torch.device("meta"):
        decoder: TransformerDecoder = instantiate(spec.model)
    if spec.use_rslora:
        apply_rslora(decoder)
    return decoder


class ModelLoader:
    """Makes one model after the other ready to evaluate, with one in memory at a time.

    Args:
        options: The recipe's options.
        ids: Token ids that every model must embed.
        device: Where the models go.
    """

    def __init__(self, options: EvalOptions, ids: Sequence[int], *, device: torch.device) -> None:
        self._options = options
        self._ids = ids
        self._device = device
        self._spec: ModelSpec | None = None
        self._model: CausalLM | None = None

    def load(self, spec: ModelSpec) -> CausalLM:
        """Return the model, its adapter switched on if it has one.

        Keep no reference to what an earlier call returned: two models might not fit in memory.

        Args:
            spec: One of ``list_models``.

        Raises:
            UserError: If weights or adapter do not fit, or an id is not embedded.
        """
        if self._model is None or not spec.has_base_of(self._spec):
            self._model = None  # before the next is read
            self._model = self._load_base(spec)
        self._spec = spec
        decoder = self._model.decoder
        switch_adapters(decoder, on=spec.adapter_path is not None)
        if spec.adapter_path is not None:
            load_adapter(decoder, spec.adapter_path)
        return self._model

    def _load_base(self, spec: ModelSpec) -> CausalLM:
        decoder = build_decoder(spec)
        check_token_ids([*self._ids], decoder)
        load_weights(
            decoder,
            spec.checkpoint_dir,
            device=self._device,
            dtype=PRECISION_STR_TO_DTYPE[self._options.dtype],
            seed=self._options.seed,
        )
        return CausalLM(decoder)

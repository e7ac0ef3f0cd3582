"""Typed options of every recipe. Every default of the pack stands here and nowhere else.

A recipe reads its config once, ``options = read_options(LoraOptions, cfg)``, and from then on
uses attributes. Keys that name a component (``_component_``) stay dictionaries; their arguments
are checked against the signature of what they name (see ``config.py``).
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

Component = dict[str, Any]
"""A ``_component_`` dotted path and the keyword arguments of what it names."""

Device = Literal["cuda", "cpu"]
Precision = Literal["bf16", "fp32"]
"""Dtype of weights and activations. ``bf16`` needs hardware support to be fast: on most CPUs it
is hundreds of times slower than ``fp32``."""
DataParallel = Literal["replicate", "shard"]
"""``replicate``: every rank holds the whole model; one all-reduce of gradients a step.
``shard``: every rank holds its part of each parameter and gathers a layer when it needs it: less
memory for more communication. One rank alone holds everything either way."""
TaskMetric = Literal["gleu", "rouge_1", "rouge_2", "rouge_l", "exact_match"]
"""Scores of generated answers, see ``inference/task_metrics.py``."""
ActivationCheckpointing = Literal["none", "full"]
"""``full``: keep each layer's input and recompute the rest in backward; less memory, one more
forward."""

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # torch's CPU generator takes 32 bits
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]

STRICT = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, kw_only=True)
class WandbOptions:
    """Where a run is shown. ``auto``: online when a key is there, else offline."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    project: str = "tunepack"
    entity: str | None = None
    group: str | None = None
    tags: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DataLoaderOptions:
    """How batches reach the device, as in ``torch.utils.data.DataLoader``.

    ``num_workers=0`` prepares them in the rank's own process; ``non_blocking`` copies from pinned
    memory while the device computes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    num_workers: NonNegativeInt = 0
    prefetch_factor: PositiveInt | None = None
    persistent_workers: bool = False
    pin_memory: bool = False
    non_blocking: bool = True


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Task metrics at every validation: answers to a fixed subset of ``dataset_val``, scored.

    ``num_samples`` rows are taken, spread evenly over the data set and shared among the ranks. An
    answer is generated from the whole prompt, cut or not in training. Without metrics nothing is
    generated.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    metrics: list[TaskMetric] = field(default_factory=list)
    num_samples: PositiveInt = 64
    batch_size: PositiveInt = 16
    max_new_tokens: PositiveInt = 64


@dataclass(frozen=True, kw_only=True)
class MonitorOptions:
    """Which validation is the best: what it saw is exported, and training may stop after it.

    ``metric`` is a name of ``observability/metrics.py`` such as ``eval/loss``; without one the last
    step is exported. ``patience``: stop after as many validations without a better one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    metric: str | None = None
    mode: Literal["min", "max"] = "min"
    patience: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """What every fine-tuning recipe takes. Batch counts are per rank unless said otherwise.

    ``packed``: rows are packed into sequences of ``dataset.max_seq_len`` and ``batch_size`` counts
    those. ``group_by_length``: unpacked rows of like length share a batch. ``dataset_val`` is
    validated on every ``run_val_every_n_steps`` steps and after the last one.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    # Model and data
    model: Component
    tokenizer: Component
    checkpoint_dir: str
    dataset: Component
    # The run and its records
    output_dir: str = "runs"
    run_name: str | None = None
    log_every_n_steps: PositiveInt = 10
    wandb: WandbOptions = field(default_factory=WandbOptions)
    # Batches and length of training
    seed: Seed = 0
    shuffle: bool = True
    batch_size: PositiveInt = 4
    gradient_accumulation_steps: PositiveInt = 1
    epochs: PositiveInt | None = 1
    max_steps: PositiveInt | None = None
    packed: bool = False
    group_by_length: bool = False
    dataloader: DataLoaderOptions = field(default_factory=DataLoaderOptions)
    # Validation
    dataset_val: Component | None = None
    run_val_every_n_steps: PositiveInt | None = None
    batch_size_val: PositiveInt | None = None
    generation: GenerationOptions = field(default_factory=GenerationOptions)
    monitor: MonitorOptions = field(default_factory=MonitorOptions)
    # Optimization
    optimizer: Component
    lr_scheduler: Component
    clip_grad_norm: PositiveFloat | None = 1.0
    # Hardware
    device: Device = "cuda"
    dtype: Precision = "bf16"
    data_parallel: DataParallel = "replicate"
    activation_checkpointing: ActivationCheckpointing = "none"
    compile: bool = False
    num_threads: PositiveInt | None = None
    num_chunk_tokens: PositiveInt = 1024


@dataclass(frozen=True, kw_only=True)
class LoraOptions(FinetuneOptions):
    """``custom_lora``: the common options, how adapters are scaled, where one starts and ends.

    ``use_rslora`` scales by ``lora_alpha / sqrt(lora_rank)`` (https://arxiv.org/abs/2312.03732);
    ``export_merged`` also writes the whole model, adapter merged, in Hugging Face format.
    """

    use_rslora: bool = False
    adapter_path: str | None = None
    export_merged: bool = False


@dataclass(frozen=True, kw_only=True)
class EvalModel:
    """One model beside the base model: an adapter, a whole model folder, or both.

    What is left out is as at the top level of the config; without ``adapter_path`` adapters are
    switched off. ``name`` is what the table calls it, by default the path that sets it apart.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str | None = None
    model: Component | None = None
    checkpoint_dir: str | None = None
    adapter_path: str | None = None
    use_rslora: bool | None = None


@dataclass(frozen=True, kw_only=True)
class EvalOptions:
    """``custom_eval``: the base model and any number of others on one held-out set.

    ``reference`` names the model that counts as 100 % in the table of accuracy kept:
    ``base model`` or the name of one of ``models``.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: Component
    tokenizer: Component
    checkpoint_dir: str
    dataset: Component
    use_rslora: bool = False
    models: list[EvalModel] = field(default_factory=list)
    reference: str | None = None
    metrics: Annotated[list[TaskMetric], Field(min_length=1)] = field(
        default_factory=lambda: ["gleu", "exact_match"]
    )
    output_dir: str = "runs"
    run_name: str | None = None
    wandb: WandbOptions = field(default_factory=WandbOptions)
    seed: Seed = 0
    batch_size: PositiveInt = 16
    max_new_tokens: PositiveInt = 64
    num_samples_shown: NonNegativeInt = 10
    device: Device = "cuda"
    dtype: Precision = "bf16"
    num_threads: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class DataOptions(LoraOptions):
    """``custom_data``: any training config, and how many samples are shown."""

    num_samples_shown: NonNegativeInt = 5


RECIPE_OPTIONS: dict[str, type[FinetuneOptions] | type[EvalOptions]] = {
    "custom_lora": LoraOptions,
    "custom_data": DataOptions,
    "custom_eval": EvalOptions,
}
"""Options type of each of the pack's recipes, by recipe name."""

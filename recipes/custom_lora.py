"""Fine-tune a LoRA adapter on one or more GPUs, or on a CPU.

Run it::

    tune run --nproc_per_node 4 custom_lora configs/llama3_8b_grammar.yaml
    tune run custom_lora smollm2_135m_grammar max_steps=20

LoRA, QLoRA (``model.quantize_base=true``), DoRA (``model.use_dora=true``) and rsLoRA
(``use_rslora=true``). With ``data_parallel=replicate`` every rank holds the frozen base model
whole; only the adapter has gradients and they are summed once an optimizer step. With ``shard`` the
ranks share the model. Out come ``runs/<run_name>/``: metrics, config, summary, the W&B files,
``export/adapter/`` in PEFT format and, with ``export_merged=true``, ``export/merged/`` in Hugging
Face format.
"""

import custom_components.compat  # noqa: F401

import sys
import time
from pathlib import Path

import torch
from omegaconf import DictConfig
from torchtune.training.precision import PRECISION_STR_TO_DTYPE

from custom_components.components import instantiate
from custom_components.config import read_options
from custom_components.datasets.plan import DataPlan
from custom_components.datasets.sft import SupervisedDataset, check_lengths
from custom_components.errors import UserError
from custom_components.launch import run_recipe
from custom_components.models.adapters import (
    adapter_parameters,
    freeze_base,
    read_adapter,
    save_adapter,
)
from custom_components.models.causal_lm import CausalLM
from custom_components.models.lora_settings import apply_rslora
from custom_components.models.merge import merge_adapter
from custom_components.models.nf4 import check_nf4
from custom_components.models.sources import name_base_model
from custom_components.models.step_flop import build_yardstick
from custom_components.models.tokenizer_checks import check_token_ids
from custom_components.models.weights import load_weights
from custom_components.observability.console import get_logger
from custom_components.observability.records import Records, find_run_dir, open_records
from custom_components.options import LoraOptions
from custom_components.redaction import redact
from custom_components.training.distributed import World, open_world
from custom_components.training.loop import TrainingProgress, train
from custom_components.training.parallel import parallelize
from custom_components.training.trainables import build_trainables


class LoraFinetuneRecipe:
    """LoRA fine-tuning: a frozen base, a trained adapter, the common loop.

    Args:
        options: The typed config.
        world: The ranks of this run.
        records: Where numbers go.
        run_dir: ``<output_dir>/<run_name>``.
    """

    # ---- Construction ------------------------------------------------------------------------
    def __init__(
        self, options: LoraOptions, *, world: World, records: Records, run_dir: Path
    ) -> None:
        self.options = options
        self.world = world
        self.records = records
        self.run_dir = run_dir
        self.log = get_logger()

    # ---- Data, model, weights, optimizer ------------------------------------------------------
    def setup(self) -> None:
        """Build the data plan, the model with its weights, and the optimizer."""
        options, world = self.options, self.world
        self.tokenizer = instantiate(options.tokenizer)
        self.plan = self._setup_data()
        self.model = self._setup_model()
        self.decoder = self.model.decoder
        adapter = adapter_parameters(self.decoder)
        self.trainables = build_trainables(adapter, world)
        if options.adapter_path is not None:
            self.trainables.load(read_adapter(self.decoder, options.adapter_path))
        self.optimizer = instantiate(options.optimizer, self.trainables.masters)
        self.lr_scheduler = instantiate(
            options.lr_scheduler, self.optimizer, num_training_steps=self.plan.num_steps
        )
        torch.manual_seed(options.seed + world.rank)  # dropout differs between ranks
        num_trained = sum(p.numel() for p in adapter.values())
        num_total = sum(p.numel() for p in self.decoder.parameters())
        self.log.info(
            "%d steps of %d rows each; training %s of %s parameters on %d x %s",
            self.plan.num_steps, self.plan.samples_per_step,
            f"{num_trained:,}", f"{num_total:,}", world.size, world.device.type,
        )  # fmt: skip

    def _setup_data(self) -> DataPlan:
        options, tokenizer = self.options, self.tokenizer
        dataset = instantiate(options.dataset, tokenizer)
        if not isinstance(dataset, SupervisedDataset):
            raise UserError(
                f"dataset: {options.dataset['_component_']} builds a {type(dataset).__name__}; "
                "the loop takes a SupervisedDataset, such as custom_components.datasets builds"
            )
        self.log.info("data: %s", dataset.report.describe())
        self.records.summary["dropped_rows"] = dataset.report.dropped
        plan = DataPlan(
            dataset=dataset,
            batch_size=options.batch_size,
            gradient_accumulation_steps=options.gradient_accumulation_steps,
            world_size=self.world.size,
            rank=self.world.rank,
            seed=options.seed,
            shuffle=options.shuffle,
            pad_id=tokenizer.pad_id,
            epochs=options.epochs,
            max_steps=options.max_steps,
        )
        # A schedule that does not fit the number of steps is refused before weights are loaded.
        probe = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        instantiate(options.lr_scheduler, probe, num_training_steps=plan.num_steps)
        return plan

    def _setup_model(self) -> CausalLM:
        options, device = self.options, self.world.device
        dtype = PRECISION_STR_TO_DTYPE[options.dtype]
        with torch.device("meta"):
            decoder = instantiate(options.model)
        if options.use_rslora:
            apply_rslora(decoder)
        check_token_ids([self.tokenizer.pad_id, *self.plan.dataset.largest_ids()], decoder)
        check_lengths(self.plan.dataset, decoder.max_seq_len)
        freeze_base(decoder)
        self.yardstick = build_yardstick(decoder, device, dtype)
        model = CausalLM(decoder, num_chunk_tokens=options.num_chunk_tokens)
        if options.data_parallel == "shard":
            check_nf4(decoder, num_shards=self.world.size)
        parallelize(
            model,
            self.world,
            data_parallel=options.data_parallel,
            activation_checkpointing=options.activation_checkpointing,
            compile_layers=options.compile,
            dtype=dtype,
        )
        load_weights(decoder, options.checkpoint_dir, device=device, dtype=dtype, seed=options.seed)
        return model

    # ---- Training ----------------------------------------------------------------------------
    def train(self) -> TrainingProgress:
        """Run the loop; it saves at the end."""
        return train(
            self.model,
            self.trainables,
            self.optimizer,
            self.lr_scheduler,
            self.plan,
            world=self.world,
            records=self.records,
            clip_grad_norm=self.options.clip_grad_norm,
            log_every_n_steps=self.options.log_every_n_steps,
            save=self.save_checkpoint,
            yardstick=self.yardstick,
        )

    # ---- Saving ------------------------------------------------------------------------------
    def save_checkpoint(self) -> None:
        """Export the adapter in PEFT format: all ranks gather it, rank 0 writes it."""
        adapter = self.trainables.gather()
        if not self.world.is_main:
            return
        folder = self.run_dir / "export" / "adapter"
        started = time.perf_counter()
        save_adapter(
            self.decoder,
            folder,
            base_model=name_base_model(self.options.checkpoint_dir),
            parameters=adapter,
        )
        num_bytes = sum(file.stat().st_size for file in folder.iterdir())
        self.records.log(
            {"ckpt/save_s": time.perf_counter() - started, "ckpt/bytes": num_bytes},
            step=self.plan.num_steps,
        )
        self.log.info("adapter: %s", folder)

    # ---- The end -----------------------------------------------------------------------------
    def cleanup(self, progress: TrainingProgress) -> None:
        """Leave what the run did in the summary, and the merged model if it is asked for."""
        self.records.summary |= {
            "global_step": progress.global_step,
            "tokens_seen": progress.tokens_seen,
            "supervised_tokens": progress.supervised_tokens,
            "skipped_steps": progress.skipped_steps,
        }
        if self.options.export_merged:
            self.world.leave()  # no rank waits for the one that writes
            if self.world.is_main:
                self._export_merged()

    def _export_merged(self) -> None:
        """Stream the base model and the adapter just saved into a Hugging Face folder."""
        options, export = self.options, self.run_dir / "export"
        merge_adapter(
            self.decoder,
            read_adapter(self.decoder, export / "adapter"),
            export / "merged",
            checkpoint_dir=options.checkpoint_dir,
            device=self.world.device,
            dtype=PRECISION_STR_TO_DTYPE[options.dtype],
            seed=options.seed,
            tokenizer=self.tokenizer,
        )
        self.log.info("merged model: %s", export / "merged")


def main(cfg: DictConfig) -> None:
    """Run the recipe on this rank."""
    options = read_options(LoraOptions, cfg)
    assert options.run_name is not None  # chosen by the launcher, the same on every rank
    run_dir = find_run_dir(options.output_dir, options.run_name)
    with (
        open_world(options.device, num_threads=options.num_threads) as world,
        open_records(
            run_dir,
            wandb=options.wandb,
            recipe="custom_lora",
            config=redact(cfg),
            is_main=world.is_main,
        ) as records,
    ):
        recipe = LoraFinetuneRecipe(options, world=world, records=records, run_dir=run_dir)
        recipe.setup()
        recipe.cleanup(recipe.train())


if __name__ == "__main__":
    sys.exit(run_recipe(main))

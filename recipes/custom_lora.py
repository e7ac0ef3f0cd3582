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
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torchtune.training.precision import PRECISION_STR_TO_DTYPE

from custom_components.components import instantiate
from custom_components.config import read_options
from custom_components.datasets.plan import DataPlan
from custom_components.datasets.supervised import SupervisedDataset, check_lengths
from custom_components.errors import UserError
from custom_components.inference.evaluate import (
    choose_examples,
    evaluate_generation,
    find_example_problems,
)
from custom_components.inference.validation import measure_validation_loss
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
from custom_components.training.data import setup_dataset
from custom_components.training.distributed import World, open_world
from custom_components.training.loop import TrainingProgress, train
from custom_components.training.monitor import Monitor
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
        self.plan_val = self._setup_validation()
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
            "%d steps of %d sequences each; training %s of %s parameters on %d x %s",
            self.plan.num_steps, self.plan.sequences_per_step,
            f"{num_trained:,}", f"{num_total:,}", world.size, world.device.type,
        )  # fmt: skip

    def _build_dataset(self, key: str, component: dict[str, Any]) -> SupervisedDataset:
        dataset = setup_dataset(component, self.tokenizer, world=self.world, key=key)
        self.log.info("%s: %s", key, dataset.report.describe())
        self.records.summary.setdefault("dropped_rows", {})[key] = dataset.report.dropped_ids
        return dataset

    def _setup_data(self) -> DataPlan:
        options, world = self.options, self.world
        plan = DataPlan(
            dataset=self._build_dataset("dataset", options.dataset),
            batch_size=options.batch_size,
            gradient_accumulation_steps=options.gradient_accumulation_steps,
            world_size=world.size,
            rank=world.rank,
            seed=options.seed,
            shuffle=options.shuffle,
            pad_id=self.tokenizer.pad_id,
            epochs=options.epochs,
            max_steps=options.max_steps,
            packed=options.packed,
            group_by_length=options.group_by_length,
            dataloader=options.dataloader,
            device=world.device,
        )
        # A schedule that does not fit the number of steps is refused before weights are loaded.
        probe = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        instantiate(options.lr_scheduler, probe, num_training_steps=plan.num_steps)
        return plan

    def _setup_validation(self) -> DataPlan | None:
        options, plan = self.options, self.plan
        if options.dataset_val is None:
            return None
        dataset = self._build_dataset("dataset_val", options.dataset_val)
        if options.generation.metrics:
            self.examples = choose_examples(dataset.examples, options.generation.num_samples)
        return replace(
            plan,
            dataset=dataset,
            batch_size=options.batch_size_val or options.batch_size,
            gradient_accumulation_steps=1,
            epochs=1,
            max_steps=None,
        )

    def _setup_model(self) -> CausalLM:
        options, device = self.options, self.world.device
        dtype = PRECISION_STR_TO_DTYPE[options.dtype]
        with torch.device("meta"):
            decoder = instantiate(options.model)
        if options.use_rslora:
            apply_rslora(decoder)
        for key, plan in (("dataset", self.plan), ("dataset_val", self.plan_val)):
            if plan is not None:
                ids = [self.tokenizer.pad_id, plan.dataset.report.largest_id]
                check_token_ids(ids, decoder)
                check_lengths(plan.dataset, decoder.max_seq_len, key=key)
        if self.plan_val is not None and options.generation.metrics:
            problems = find_example_problems(decoder, self.examples, self.tokenizer)
            if problems:
                raise UserError(*problems)
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
        """Run the loop; it saves the best validated step, or the last one."""
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
            evaluate=None if self.plan_val is None else self.evaluate,
            run_val_every_n_steps=self.options.run_val_every_n_steps,
            monitor=Monitor(self.options.monitor),
            yardstick=self.yardstick,
        )

    def evaluate(self, step: int) -> dict[str, float]:
        """Return validation loss and task metrics, the same on every rank.

        Args:
            step: The optimizer steps done.
        """
        assert self.plan_val is not None, "there is nothing to validate on"
        generation = self.options.generation
        batches = self.plan_val.epoch_batches()
        metrics = {"eval/loss": measure_validation_loss(self.model, batches, world=self.world)}
        if generation.metrics:
            result = evaluate_generation(
                self.model,
                self.examples,
                self.tokenizer,
                metrics=generation.metrics,
                batch_size=generation.batch_size,
                max_new_tokens=generation.max_new_tokens,
                world=self.world,
            )
            self.records.log_samples([record.as_dict() for record in result.records], step=step)
            metrics |= result.as_metrics()
        return metrics

    # ---- Saving ------------------------------------------------------------------------------
    def save_checkpoint(self, step: int) -> None:
        """Export the adapter in PEFT format: all ranks gather it, rank 0 writes it.

        Args:
            step: The optimizer steps done.
        """
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
            step=step,
        )
        self.log.info("adapter of step %d: %s", step, folder)

    # ---- The end -----------------------------------------------------------------------------
    def cleanup(self, progress: TrainingProgress) -> None:
        """Leave what the run did in the summary, and the merged model if it is asked for."""
        self.records.summary |= {
            "global_step": progress.global_step,
            "tokens_seen": progress.tokens_seen,
            "supervised_tokens": progress.supervised_tokens,
            "skipped_steps": progress.skipped_steps,
            "best_step": progress.best_step,
            "best_value": progress.best_value,
            "stopped_early": progress.stopped_early,
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

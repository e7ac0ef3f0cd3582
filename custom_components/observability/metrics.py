"""The one table of metric names: the same in every recipe, in the records and in W&B."""

METRICS: dict[str, str] = {
    "train/loss": "mean loss per supervised token of the step, nats",
    "train/lr": "learning rate of the first parameter group",
    "train/grad_norm": "2-norm of the gradient before clipping",
    "train/epoch": "passes over the data, counted in optimizer steps",
    "train/tokens_seen": "real tokens since the start, all ranks, no padding",
    "train/supervised_tokens": "tokens with a label since the start, all ranks",
    "perf/tokens_per_sec_per_gpu": "real tokens a second and rank since the last line",
    "perf/step_time_s": "mean seconds an optimizer step since the last line, saving excluded",
    "perf/data_time_s": "mean seconds a step waited for its batches since the last line",
    "perf/padding_fraction": "share of padding among the step's input tokens",
    "perf/mfu": "the model's FLOP over the device's peak, since the last line; known GPUs, bf16",
    "mem/peak_allocated_gib": "peak of tensors on the CUDA device, GiB",
    "mem/peak_reserved_gib": "peak reserved by the CUDA allocator, GiB",
    "mem/peak_rss_gib": "peak resident set of the process, GiB",
    "eval/loss": "mean loss per supervised token of the validation data, nats",
    "eval/gleu": "GLEU of the corrections, 0 to 100",
    "eval/rouge_1": "ROUGE-1 F-measure of the outputs, best reference, 0 to 100",
    "eval/rouge_2": "ROUGE-2 F-measure of the outputs, best reference, 0 to 100",
    "eval/rouge_l": "ROUGE-L F-measure of the outputs, best reference, 0 to 100",
    "eval/exact_match": "share of outputs equal to a reference",
    "eval/time_s": "seconds the validation took",
    "ckpt/save_s": "seconds the save took",
    "ckpt/bytes": "bytes the save wrote",
    "health/skipped_steps": "steps without a supervised token, since the start",
}


def check_names(names: set[str]) -> None:
    """Raise if a metric is not in the table.

    Raises:
        KeyError: Naming every unknown metric.
    """
    unknown = sorted(names - METRICS.keys())
    if unknown:
        raise KeyError(f"not in observability/metrics.py: {', '.join(unknown)}")

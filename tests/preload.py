"""Imported once by the forkserver, so that a rank starts in milliseconds instead of seconds."""

import custom_components.compat

import torch.distributed.fsdp
import torch.distributed.tensor  # noqa: F401
import torchtune.models.llama3
import torchtune.training  # noqa: F401

import custom_components.launch
import custom_components.observability.records
import custom_components.training.loop  # noqa: F401

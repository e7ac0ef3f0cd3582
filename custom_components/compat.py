"""Make torchtune 0.6.1 import with torchao 0.15 to 0.18. Import this before torchtune.

torchtune's last release names things that torchao has since moved (NF4 tensors) or removed
(three weight-only quantisers). The moved module is registered under its old name; each removed
name becomes a stand-in that raises when it is called, because nothing in this pack calls it.

Known lines of noise are dropped by exact prefix; anything else still reaches the user.
"""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable
from typing import Any, NoReturn

_NF4_OLD = "torchao.dtypes.nf4tensor"
_NF4_NEW = "torchao.quantization.quantize_.workflows.nf4.nf4_tensor"
_REMOVED = {
    "torchao.dtypes": ("TensorCoreTiledLayout",),
    "torchao.quantization": ("int4_weight_only", "int8_dynamic_activation_int4_weight"),
}
_NOISE = {
    "torch.utils._pytree": "<enum 'KernelPreference'> is an Enum subclass",
    "torchao": "Skipping import of cpp extensions",
    "torch.utils.cpp_extension": "No CUDA runtime is found",  # compile, on a CPU with CUDA's files
}


def _drop_known_noise() -> None:
    for name in _NOISE:
        logging.getLogger(name).addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_NOISE[record.name])


def _removed(name: str) -> Callable[..., NoReturn]:
    def raise_removed(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} no longer exists in the installed torchao")

    return raise_removed


def install() -> None:
    """Supply the names that torchtune 0.6.1 imports from torchao. Repeated calls do nothing."""
    _drop_known_noise()
    if _NF4_OLD not in sys.modules and importlib.util.find_spec(_NF4_OLD) is None:
        sys.modules[_NF4_OLD] = importlib.import_module(_NF4_NEW)
    for module_name, names in _REMOVED.items():
        module = importlib.import_module(module_name)
        for name in names:
            if not hasattr(module, name):
                setattr(module, name, _removed(f"{module_name}.{name}"))


install()

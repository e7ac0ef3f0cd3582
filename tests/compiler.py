"""torch.compile on a CPU needs a C++ compiler; a machine may have none."""

import shutil

import pytest

HAS_COMPILER = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
needs_compiler = pytest.mark.skipif(not HAS_COMPILER, reason="no C++ compiler for torch.compile")

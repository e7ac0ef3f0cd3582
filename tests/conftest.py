"""Settings shared by all tests: no hub, real data where it lies, ranks from one forkserver."""

import os
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
# The forkserver imports its preload before it learns this process's sys.path (cpython#117378).
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), str(ROOT / "recipes"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
_cache = tempfile.TemporaryDirectory(prefix="tunepack-cache-")  # the user's own stays as it is
os.environ["TUNEPACK_CACHE"] = _cache.name
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real data, ``$TUNEPACK_DATA`` or ../shared/data; skips where there is none."""
    folder = Path(os.environ.get("TUNEPACK_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set TUNEPACK_DATA")
    return folder

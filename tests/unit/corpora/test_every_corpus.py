"""What holds for every embedded corpus."""

import importlib
import json
import os
import subprocess
import sys

import pytest

from custom_components.datasets.tables import EMBEDDED

DUMP = """
import importlib, json, sys, time
started = time.perf_counter()
rows = importlib.import_module(sys.argv[1]).build_rows("heldout")
seconds = time.perf_counter() - started
rows = [[row.id, dict(row.values)] for row in rows]
json.dump({"rows": rows, "torch": "torch" in sys.modules, "seconds": seconds}, sys.stdout)
"""


@pytest.mark.parametrize("module", EMBEDDED.values())
def test_corpus_is_the_same_in_every_process_needs_no_torch_and_is_fast(module):
    outputs = []
    for hash_seed in ("1", "2"):
        result = subprocess.run(
            [sys.executable, "-c", DUMP, module],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        outputs.append(json.loads(result.stdout))
    ours = [[r.id, dict(r.values)] for r in importlib.import_module(module).build_rows("heldout")]
    assert outputs[0]["rows"] == outputs[1]["rows"] == ours
    assert not outputs[0]["torch"]
    assert min(output["seconds"] for output in outputs) < 4  # about 1 s on a quiet core


@pytest.mark.parametrize("module", EMBEDDED.values())
def test_unknown_split_is_refused(module):
    with pytest.raises(KeyError):
        importlib.import_module(module).build_rows("test")

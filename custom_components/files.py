"""Write a file so that a crash leaves the old one or the new one, never half of it."""

import os
from pathlib import Path


def write_atomically(path: Path, contents: bytes | str) -> None:
    """Write to a staging name, flush to disk, rename, and flush the folder.

    Args:
        path: A file of that name is replaced.
        contents: Text is written as UTF-8.

    Raises:
        OSError: If it cannot be written; the staging file is gone then.
    """
    data = contents.encode() if isinstance(contents, str) else contents
    staging = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with staging.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

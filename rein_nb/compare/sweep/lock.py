"""One process runs a sweep at a time: two would pay for the same cells. The system lets go of the lock when the process dies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rein_nb.store import StoreError


@contextmanager
def only_one(path: Path, name: str) -> Iterator[None]:
    """Hold the sweep `name`, by a lock on the file `path`.

    Raises
    ------
    StoreError
        When a process that lives holds it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            _lock(fd)
        except OSError as exc:
            raise StoreError(
                f"the sweep {name!r} is being run already; wait for it, stop it, or give this one another name"
            ) from exc
        yield
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

"""A store that cannot be written: on a read-only file system, on a full disk, or in a folder that is somebody else's.

SQLite reads a file with a write-ahead log only where it can make the log's index beside it. A file that was closed cleanly has no log: it is
read as one that does not change, and looked at again once it has.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TypeAlias

State: TypeAlias = tuple[tuple[int, int, int] | None, ...]
"""Inode, size and time of change of a store's file and of its log; None for one that is not there."""


def state(path: Path) -> State:
    """What changes when somebody writes to the store."""
    return _stat(path), _stat(_log(path))


def is_frozen(path: Path) -> bool:
    """Whether all of the store is in its file: there is one, and nobody has left a log beside it."""
    file, log = state(path)
    return file is not None and file[1] > 0 and (log is None or log[1] == 0)


def log_left(path: Path) -> Path | None:
    """The log that somebody left in a folder in which this process cannot make its index."""
    log = _log(path)
    found = _stat(log)
    return log if found is not None and found[1] and not os.access(path.parent, os.W_OK) else None


def open_frozen(path: Path) -> sqlite3.Connection:
    """A connection that reads a file which nobody changes."""
    return sqlite3.connect(
        f"{path.as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None, check_same_thread=False
    )


def in_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A copy that can be changed, in place of `connection`, which is closed."""
    copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.backup(copy)
    connection.close()
    return copy


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns

"""Descriptors of folders, opened without following a symbolic link."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

DIRECTORY_FLAGS = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_STEP_FLAGS = DIRECTORY_FLAGS | getattr(os, "O_PATH", 0)
FILE_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


class Held:
    """A descriptor that is closed when nobody refers to it any more."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)


def open_without_links(path: Path) -> int:
    """A descriptor of the folder at an absolute path that holds no symbolic link."""
    here = os.open(path.anchor, _STEP_FLAGS)
    for name in path.parts[1:]:
        try:
            below = os.open(name, _STEP_FLAGS, dir_fd=here)
        finally:
            os.close(here)
        here = below
    try:
        return os.open(".", DIRECTORY_FLAGS, dir_fd=here)
    finally:
        os.close(here)

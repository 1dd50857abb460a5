"""Walking a confined folder: listing, and finding files by a pattern. No symbolic link is followed."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rein_nb.ir.base import clean_text
from rein_nb.tools.builtin.rooted import DIRECTORY_FLAGS, Root

MAX_ENTRIES = 1_000
MAX_VISITED = 200_000
"""Entries that one search looks at before it gives up."""

SKIPPED = frozenset(
    {".git", "__pycache__", "node_modules", ".ipynb_checkpoints", ".venv", ".mypy_cache", ".ruff_cache"}
)
"""Folders that a search does not enter unless its pattern names them."""


@dataclass(slots=True)
class Entry:
    """One name in a folder.

    Attributes
    ----------
    path
        For people and models: below the starting folder, with what is no text replaced.
    here, name
        For opening it: the descriptor of its folder, valid while it is visited, and the name as it is.
    kind
        ``file``, ``folder``, ``link`` or ``special``.
    size
        Bytes, of files.
    """

    path: str
    here: int
    name: str
    kind: str
    size: int | None


def entries(here: int, prefix: str = "") -> list[Entry]:
    """What a folder holds, sorted by name, without following anything."""
    found: list[Entry] = []
    with os.scandir(here) as scan:
        for item in scan:
            if item.is_symlink():
                kind, size = "link", None
            elif item.is_dir(follow_symlinks=False):
                kind, size = "folder", None
            elif item.is_file(follow_symlinks=False):
                kind, size = "file", _size(item)
            else:
                kind, size = "special", None
            found.append(Entry(prefix + clean_text(item.name), here, item.name, kind, size))
    return sorted(found, key=lambda entry: entry.name)


def _size(item: os.DirEntry[str]) -> int | None:
    try:
        return item.stat(follow_symlinks=False).st_size
    except FileNotFoundError:  # it went away while it was looked at
        return None


def walk(
    here: int, enter: frozenset[str] = frozenset(), prefix: str = "", visited: list[int] | None = None
) -> Iterator[Entry]:
    """Every entry below an open folder, folders before what is in them.

    Parameters
    ----------
    here
        Descriptor of the folder.
    enter
        Names of `SKIPPED` that are entered all the same.
    """
    counter = visited if visited is not None else [0]
    for entry in entries(here, prefix):
        counter[0] += 1
        if counter[0] > MAX_VISITED:
            return
        yield entry
        if entry.kind != "folder" or (entry.name in SKIPPED and entry.name not in enter):
            continue
        try:
            below = os.open(entry.name, DIRECTORY_FLAGS, dir_fd=here)
        except OSError:  # gone, turned into something else, or not readable: there is nothing to look at
            continue
        try:
            yield from walk(below, enter, f"{entry.path}/", counter)
        finally:
            os.close(below)


def matches(path: str, pattern: str) -> bool:
    """Whether a path fits a pattern with ``*``, ``?``, ``[...]`` within names and ``**`` across folders.

    A pattern without a ``/`` is matched against the last name, in whatever folder.

    Examples
    --------
    >>> matches("src/a/b.py", "src/**/*.py"), matches("src/b.py", "*.py"), matches("src/b.py", "doc/*.py")
    (True, True, False)
    """
    if "/" not in pattern and pattern != "**":
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern)
    return _match(tuple(path.split("/")), tuple(part for part in pattern.split("/") if part not in ("", ".")))


@lru_cache(maxsize=4096)
def _match(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        return _match(path, pattern[1:]) or (bool(path) and _match(path[1:], pattern))
    return bool(path) and fnmatch.fnmatchcase(path[0], pattern[0]) and _match(path[1:], pattern[1:])


def find(root: Root, pattern: str, path: str) -> Iterator[Entry]:
    """The files (not folders) below `path` that fit a pattern."""
    enter = frozenset(pattern.split("/")) | frozenset(root.parts(path))
    with root.open_dir(path) as here:
        for entry in walk(here, enter):
            if entry.kind != "folder" and matches(entry.path, pattern):
                yield entry

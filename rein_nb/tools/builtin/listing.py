"""Walking a confined folder: listing, and finding files by a pattern. No symbolic link is followed."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from rein_nb.ir.base import clean_text
from rein_nb.tools.builtin.descriptors import DIRECTORY_FLAGS
from rein_nb.tools.builtin.rooted import Root, spelled

MAX_ENTRIES = 1_000
MAX_VISITED = 200_000
"""Entries that one search looks at before it gives up."""

MAX_DEPTH = 100
"""Folders within folders that a search enters."""

MAX_ALTERNATIVES = 100
"""Patterns that one pattern with braces may stand for."""

SKIPPED = frozenset(
    {".git", "__pycache__", "node_modules", ".ipynb_checkpoints", ".venv", ".mypy_cache", ".ruff_cache"}
)
"""Folders that a search does not enter unless its pattern names them."""


BINARY = "binary"


@dataclass(slots=True)
class NotSearched:
    """What a search left out, and why, so that nobody takes its silence for an answer.

    Attributes
    ----------
    paths
        Paths by reason.
    visited
        Entries that were looked at.
    """

    paths: dict[str, list[str]] = field(default_factory=dict)
    visited: int = 0

    def add(self, reason: str, path: str) -> None:
        """Leave out a path."""
        self.paths.setdefault(reason, []).append(path)

    @property
    def complete(self) -> bool:
        """Whether everything was searched that can be: what is binary cannot."""
        return not self.paths.keys() - {BINARY}

    @property
    def counts(self) -> dict[str, int]:
        """How many paths were left out, by reason."""
        return {reason: len(paths) for reason, paths in self.paths.items()}

    def notes(self) -> list[str]:
        """A line for each reason, with the first few paths."""
        return [f"[not searched, {reason}: {_few(paths)}]" for reason, paths in self.paths.items()]


def unreadable_names(paths: Iterable[str]) -> list[str]:
    """A line about those that are no paths for the tools, if there are any: with a backslash, or bytes that are no text."""
    found = [path for path in dict.fromkeys(paths) if "\\" in path or "\ufffd" in path]
    return (
        [f"[no tool takes these paths, which hold a backslash or bytes that are no text: {_few(found)}]"]
        if found
        else []
    )


def _few(paths: list[str]) -> str:
    return ", ".join(paths[:5]) + (f" and {len(paths) - 5:,} more" if len(paths) > 5 else "")


@dataclass(slots=True)
class Entry:
    """One name in a folder.

    Attributes
    ----------
    path
        For people and models: below the root, with what is no text replaced.
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


def walk(here: int, left_out: NotSearched, enter: frozenset[str] = frozenset(), prefix: str = "") -> Iterator[Entry]:
    """Every entry below an open folder, folders before what is in them.

    Parameters
    ----------
    here
        Descriptor of the folder.
    left_out
        Is told what was not looked into.
    enter
        Names of `SKIPPED` that are entered all the same.
    prefix
        Put before every path.
    """
    for entry in entries(here, prefix):
        left_out.visited += 1
        if left_out.visited > MAX_VISITED:
            if left_out.visited == MAX_VISITED + 1:
                left_out.add(f"after the first {MAX_VISITED:,} names", f"{entry.path} and whatever comes after it")
            return
        yield entry
        if entry.kind != "folder" or (entry.name in SKIPPED and entry.name not in enter):
            continue
        if prefix.count("/") >= MAX_DEPTH:
            left_out.add(f"more than {MAX_DEPTH} folders deep", f"{entry.path}/")
            continue
        try:
            below = os.open(entry.name, DIRECTORY_FLAGS, dir_fd=here)
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):  # gone, or turned into something else
                left_out.add("cannot be opened", f"{entry.path}/")
            continue
        try:
            yield from walk(below, left_out, enter, f"{entry.path}/")
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


def find(root: Root, pattern: str, path: str, left_out: NotSearched) -> Iterator[Entry]:
    """The files (not folders) below the folder `path` that fit a pattern, by their paths below the root.

    The pattern is matched against what comes after `path`. It may hold alternatives in braces, as in ``*.{yaml,yml}``.

    Raises
    ------
    ValueError
        For a pattern that no path can fit, or one with too many alternatives.
    """
    patterns = _alternatives(pattern)
    if any(one.startswith(("/", "~")) or ".." in one.split("/") for one in patterns):
        raise ValueError(
            f"the pattern {pattern!r} must be relative, without '..'; give the folder to search in as path"
        )
    start = root.parts(path)
    enter = frozenset(start).union(*(one.split("/") for one in patterns))
    above = clean_text("".join(f"{name}/" for name in start))
    with root.open_dir(path) as here:
        for entry in walk(here, left_out, enter, above):
            below = entry.path.removeprefix(above)
            if entry.kind != "folder" and any(matches(below, one) for one in patterns):
                entry.path = spelled(entry.path)
                yield entry


_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")


def _alternatives(pattern: str) -> list[str]:
    """The patterns that one with ``{a,b}`` stands for, innermost braces first."""
    waiting, made = [pattern], []
    while waiting:
        one = waiting.pop()
        found = _BRACES.search(one)
        if found is None:
            made.append(one)
        else:
            waiting.extend(one[: found.start()] + choice + one[found.end() :] for choice in found[1].split(","))
        if len(waiting) + len(made) > MAX_ALTERNATIVES:
            raise ValueError(f"the pattern {pattern!r} stands for more than {MAX_ALTERNATIVES} alternatives")
    return list(dict.fromkeys(made))

"""Where the store lies."""

from __future__ import annotations

import os
from pathlib import Path

FILE_NAME = "store.sqlite3"
VARIABLE = "REIN_NB_STORE"


def default_path() -> Path:
    """The store's file: ``REIN_NB_STORE`` (a file, or a folder), else in the platform's folder for user data."""
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        return as_file(given)
    from platformdirs import user_data_path

    return user_data_path("rein_nb", appauthor=False) / FILE_NAME


def fixed(path: str | os.PathLike[str]) -> Path:
    """`path` with ``~`` expanded, and absolute: it names the same file after the working directory has changed."""
    return Path(os.path.abspath(Path(path).expanduser()))


def as_file(path: str | os.PathLike[str]) -> Path:
    """`path` as a file, absolute: a folder, a name that ends in a slash, or one without an extension, holds the default file name."""
    found = fixed(path)
    seps = tuple(filter(None, (os.sep, os.altsep)))
    folder = os.fspath(path).endswith(seps) or found.is_dir() or not found.suffix
    return found / FILE_NAME if folder else found

"""Where the store lies."""

from __future__ import annotations

import os
from pathlib import Path

FILE_NAME = "store.sqlite3"
VARIABLE = "REIN_NB_STORE"


def default_path() -> Path:
    """The store's file: ``REIN_NB_STORE`` (a file, or a folder), else in the platform's folder for user data."""
    given = os.environ.get(VARIABLE)
    if given:
        return as_file(given)
    from platformdirs import user_data_path

    return user_data_path("rein_nb", appauthor=False) / FILE_NAME


def as_file(path: str | os.PathLike[str]) -> Path:
    """`path` as a file: a folder, or a name without an extension, holds the default file name."""
    found = Path(path).expanduser()
    return found / FILE_NAME if found.is_dir() or not found.suffix else found

"""What stores, sessions and recordings are given, looked at before anything is done with it."""

from __future__ import annotations

import os
from typing import Any

from rein_nb.ir.base import clean_text


def as_text(value: Any, what: str) -> str:
    """`value`, when it is a text.

    Raises
    ------
    TypeError
        When it is not.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text, not {named(value)}")
    return value


def as_word(value: Any, what: str) -> str:
    """`value`, when it is a text that is stored and found again as it is.

    Raises
    ------
    TypeError
        When it is no text.
    ValueError
        When it holds an unpaired surrogate.
    """
    if clean_text(as_text(value, what)) != value:
        raise ValueError(f"{what} cannot hold an unpaired surrogate, as {value!r} does")
    return str(value)


def as_limit(limit: Any) -> int:
    """A number of rows as SQLite takes it.

    Raises
    ------
    TypeError
        When it is neither a whole number nor None.
    ValueError
        When it is negative.
    """
    return -1 if limit is None else as_count(limit, "a limit", "None for all")


def as_count(value: Any, what: str, otherwise: str = "") -> int:
    """A whole number from 0 on, no larger than SQLite takes it.

    Raises
    ------
    TypeError
        When it is no whole number.
    ValueError
        When it is negative.
    """
    right = f"{what} is a whole number from 0 on{otherwise and ', or '}{otherwise}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{right}, not {named(value)}")
    if value < 0:
        raise ValueError(f"{right}, not {named(value)}")
    return min(value, 2**62)


def as_path(value: Any, what: str) -> str:
    """The text of a path.

    Raises
    ------
    TypeError
        When it is no path.
    ValueError
        When it is empty, or holds what no path can.
    """
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(path, str):
        raise TypeError(f"{what} is a path, as a text or a pathlib.Path, not {named(value)}")
    if not path or "\0" in path:
        raise ValueError(f"{what} is a path, and {path!r} names no file")
    return path


def as_flag(value: Any, what: str) -> bool:
    """`value`, when it is True or False.

    Raises
    ------
    TypeError
        When it is neither.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{what} is True or False, not {named(value)}")
    return value


def named(value: Any) -> str:
    """A wrong value, in an error's words."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, int) and value.bit_length() > 100:
        return "so large a number"
    return repr(value) if value is None or isinstance(value, int | float | str) else f"a {type(value).__name__}"

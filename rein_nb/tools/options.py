"""The options of a tool, checked where they are given: a wrong one would otherwise show up in the middle of a run."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from rein_nb.ir import ToolSpec


def valid_name(name: str) -> str:
    """The name itself.

    Raises
    ------
    TypeError, ValueError
        When no provider would take it; the message says which would do.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a string, got {type(name).__name__}")
    try:
        return ToolSpec(name=name).name
    except ValidationError as exc:
        raise ValueError(str(exc.errors()[0]["ctx"]["error"])) from None


def check_options(options: Mapping[str, Any]) -> None:
    """Check options by name, as `Tool` has them.

    Raises
    ------
    TypeError, ValueError
        For an option that does not exist, or a value that it cannot have.
    """
    unknown = sorted(set(options) - set(_CHECKS))
    if unknown:
        raise TypeError(f"Tool has no option {', '.join(unknown)}; the options are: {', '.join(_CHECKS)}")
    for name, value in options.items():
        _CHECKS[name](name, value)


def _name(option: str, value: Any) -> None:
    if value is not None:
        valid_name(value)


def _text(option: str, value: Any) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{option} must be a string, got {type(value).__name__}")


def _seconds(option: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{option} must be a number of seconds, or None for no limit, got {value!r}")
    if not (math.isfinite(value) and float(value) > 0):
        raise ValueError(f"{option} must be more than 0 seconds and finite, or None for no limit, got {value}")


def _approval(option: str, value: Any) -> None:
    if not (isinstance(value, bool) or callable(value)):
        raise TypeError(f"{option} must be True, False or a function of the arguments, got {value!r}")


def _flag(option: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{option} must be True or False, got {value!r}")


def _flag_or_none(option: str, value: Any) -> None:
    if value is not None:
        _flag(option, value)


def _count(option: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{option} must be a whole number, got {value!r}")
    if value < 1:
        raise ValueError(f"{option} must be at least 1, got {value}")


_CHECKS: dict[str, Callable[[str, Any], None]] = {
    "name": _name,
    "description": _text,
    "timeout_s": _seconds,
    "requires_approval": _approval,
    "parallel_safe": _flag,
    "strict": _flag_or_none,
    "in_thread": _flag,
    "max_result_chars": _count,
}

"""Exceptions in words for the model and as data for programs."""

from __future__ import annotations

import traceback
from typing import Any

from rein_nb.ir.base import clean_text

_TRACEBACK_CHARS = 20_000
_PARTS_SHOWN = 20
_DEEPEST_PART = 5


def describe_error(exc: BaseException) -> str:
    """``Type: message`` for the model, also when the exception's own text fails; with its notes, and a group with its parts."""
    return "\n".join(_lines(exc, 0))


def _lines(exc: BaseException, depth: int) -> list[str]:
    try:
        message = clean_text(str(exc))
    except Exception as inner:
        message = f"(its message could not be read: {type(inner).__name__})"
    name = type(exc).__name__
    lines = [f"{name}: {message}" if message else name]
    notes = getattr(exc, "__notes__", None)
    if isinstance(notes, list):
        lines += [clean_text(note) for note in notes if isinstance(note, str)]
    if isinstance(exc, BaseExceptionGroup):
        parts = exc.exceptions
        if depth >= _DEEPEST_PART:
            return [*lines, f"- {len(parts)} more"]
        for part in parts[:_PARTS_SHOWN]:
            first, *rest = _lines(part, depth + 1)
            lines += [f"- {first}", *(f"  {line}" for line in rest)]
        if len(parts) > _PARTS_SHOWN:
            lines.append(f"- and {len(parts) - _PARTS_SHOWN} more")
    return lines


def error_details(exc: BaseException) -> dict[str, Any]:
    """Type, message and the traceback's end, for programs."""
    try:
        trace = clean_text("".join(traceback.format_exception(exc)))
    except Exception as inner:
        trace = f"(no traceback: {type(inner).__name__})"
    return {"error": type(exc).__name__, "message": describe_error(exc), "traceback": trace[-_TRACEBACK_CHARS:]}

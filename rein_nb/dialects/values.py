"""Reading values of what a server sent, whose kinds nobody vouches for."""

from __future__ import annotations

from typing import Any

from rein_nb.ir.base import JSON


def as_dict(value: JSON) -> dict[str, Any]:
    """`value`, or an empty dict in place of anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: JSON) -> list[Any]:
    """`value`, or an empty list in place of anything else."""
    return value if isinstance(value, list) else []


def as_text(value: JSON) -> str | None:
    """`value`, or None in place of anything else, empty text included."""
    return value if isinstance(value, str) and value else None

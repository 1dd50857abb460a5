"""Votes on pairs, as frames: what a row is, and how one is checked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import pandas as pd

    from rein_nb.compare.comparison import Comparison

Vote: TypeAlias = Literal["left", "right", "tie", "both_bad", "skip"]
"""``skip`` judges nothing."""

VOTES: tuple[str, ...] = get_args(Vote)

COLUMNS: dict[str, str] = {
    "prompt_index": "Int64", "prompt": "string", "repeat": "Int64", "left": "string", "right": "string",
    "vote": "string", "winner": "string", "seconds": "Float64", "voter": "string",
}  # fmt: skip
"""Names and dtypes of a frame of votes."""


def item_key(row: Mapping[str, Any]) -> tuple[int, int, frozenset[str]]:
    """What a vote is about, whichever label stood left."""
    return row["prompt_index"], row["repeat"], frozenset((row["left"], row["right"]))


def typed_frame(rows: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str]) -> pd.DataFrame:
    """Rows as a frame with these columns, in this order; None becomes NA."""
    import pandas as pd

    columns: dict[str, Any] = {}
    for name, dtype in dtypes.items():
        values: Any = [row[name] for row in rows]
        columns[name] = pd.Series(values, dtype=dtype)
    return pd.DataFrame(columns)


def votes_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Votes as a frame."""
    return typed_frame(rows, COLUMNS)


def votes_of(frame: Any, comparison: Comparison | None) -> Iterator[dict[str, Any]]:
    """The rows of a frame of votes, checked; against a comparison, where one is given."""
    missing = [name for name in COLUMNS if name not in getattr(frame, "columns", ())]
    if missing:
        raise ValueError(f"not a frame of votes: it lacks the columns {', '.join(missing)}")
    for n, record in enumerate(frame[list(COLUMNS)].astype(object).to_dict("records")):
        row: dict[str, Any] = {name: None if _is_na(value) else value for name, value in record.items()}
        row["voter"] = row["voter"] or ""
        for name in ("prompt_index", "repeat"):
            row[name] = int(row[name])
        if row["vote"] not in VOTES:
            raise ValueError(f"row {n}: a vote is one of {', '.join(VOTES)}, not {row['vote']!r}")
        if row["winner"] != {"left": row["left"], "right": row["right"]}.get(row["vote"]):
            raise ValueError(f"row {n}: the vote is {row['vote']!r}, and the winner {row['winner']!r}")
        if comparison is not None:
            _check(row, n, comparison)
        yield row


def _check(row: Mapping[str, Any], n: int, comparison: Comparison) -> None:
    for side in ("left", "right"):
        if row[side] not in comparison.labels:
            raise ValueError(f"row {n}: no column {row[side]!r}; there are: {', '.join(comparison.labels)}")
    index = row["prompt_index"]
    if not 0 <= index < len(comparison.prompts) or comparison.prompts[index] != row["prompt"]:
        raise ValueError(f"row {n}: prompt {index} of this comparison is not the one that was voted on")


def _is_na(value: Any) -> bool:
    import pandas as pd

    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def join_votes(*frames: Any) -> pd.DataFrame:
    """Several voters' frames as one; a pair that one voter judged twice counts as judged last.

    Raises
    ------
    ValueError
        When a frame lacks columns.
    """
    rows: dict[Any, dict[str, Any]] = {}
    for frame in frames:
        for row in votes_of(frame, None):
            key = (row["voter"], row["prompt"], *item_key(row))
            rows.pop(key, None)
            rows[key] = row
    return votes_frame(list(rows.values()))

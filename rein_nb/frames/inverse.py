"""From a messages frame back to messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rein_nb.frames.columns import require_pandas
from rein_nb.ir import Message, Origin
from rein_nb.ir.base import Data

if TYPE_CHECKING:
    import pandas as pd


def messages_from_frame(df: pd.DataFrame, run_id: str | None = None) -> list[Message]:
    """The messages of a ``messages`` frame, in the order of ``message_index``.

    A frame that went through CSV, JSON or Parquet is read too. Where there is no ``parts`` column, ``role`` and ``text`` make plain messages.

    Parameters
    ----------
    df
        A ``messages`` frame, or any frame with the columns ``role`` and ``text``.
    run_id
        Which run to take, where the frame holds several.

    Raises
    ------
    ValueError
        When columns are missing, the frame holds several runs and none is named, or a row is no message; the text names the row.
    """
    pandas = require_pandas()
    missing = [name for name in ("role", "parts" if "parts" in df.columns else "text") if name not in df.columns]
    if missing:
        raise ValueError(
            f"not a messages frame: it has no column {missing[0]!r} (columns: {', '.join(map(str, df.columns))})"
        )
    if "run_id" in df.columns:
        df = _one_run(df, run_id)
    if "message_index" in df.columns:
        df = df.sort_values("message_index", kind="stable")
    names = [name for name in ("role", "text", "parts", "extra", *Origin.model_fields) if name in df.columns]
    messages = []
    for label, values in zip(df.index, df[names].itertuples(index=False, name=None), strict=True):
        row = {name: None if _is_missing(pandas, value) else value for name, value in zip(names, values, strict=True)}
        try:
            messages.append(_message(row))
        except ValueError as exc:
            raise ValueError(f"row {label!r} is no message: {exc}") from exc
    return messages


def _one_run(df: pd.DataFrame, run_id: str | None) -> pd.DataFrame:
    runs = [str(name) for name in df["run_id"].dropna().unique()]
    if run_id is None:
        if len(runs) > 1:
            raise ValueError(
                f"the frame holds {len(runs)} runs; say which with run_id=, for example run_id={runs[0]!r}"
            )
        return df
    if run_id not in runs:
        raise ValueError(f"the frame has no run {run_id!r}; it holds: {', '.join(runs[:10]) or 'none'}")
    return df[df["run_id"] == run_id]


def _is_missing(pandas: Any, value: Any) -> bool:
    return not isinstance(value, list | dict) and bool(pandas.isna(value))


def _message(row: dict[str, Any]) -> Message:
    fields: dict[str, Any] = {"role": row["role"]}
    if row.get("parts") is not None:
        fields["parts"] = _json(row["parts"])
    else:
        fields["content"] = row.get("text")
    if row.get("extra") is not None:
        fields["extra"] = _json(row["extra"])
    origin = {name: row[name] for name in Origin.model_fields if row.get(name) is not None}
    if origin:
        fields["origin"] = origin
    return Message.model_validate(fields)


def _json(value: Any) -> Any:
    return (
        json.loads(value)
        if isinstance(value, str)
        else [v.model_dump(mode="json") if isinstance(v, Data) else v for v in value]
    )

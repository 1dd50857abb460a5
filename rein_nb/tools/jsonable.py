"""Any Python value as plain JSON data, or an honest text form of it. Never fails for what a tool returned.

No optional library is imported: arrays, frames and scalars are recognised by what they can do.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import math
import pathlib
import uuid
from collections import deque
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from pydantic import BaseModel

from rein_nb.ir.base import clean_text

_MAX_DEPTH = 60
_AS_TEXT = (
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    decimal.Decimal,
    fractions.Fraction,
    pathlib.PurePath,
    uuid.UUID,
    complex,
)


class NotJsonable(Exception):
    """The value is cyclic, too deep, or of a class without a JSON form; the message says which."""


def to_jsonable(value: Any) -> Any:
    """`value` as dicts, lists, strings, numbers, booleans and None.

    Times become ISO text, decimals and paths text, sets lists, not-a-number ``"NaN"``, bytes text or base64, keys text.

    Raises
    ------
    NotJsonable
        When no faithful JSON form exists.
    """
    return _convert(value, (), 0)


def _convert(value: Any, parents: tuple[int, ...], depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if kind is int:
        return value
    if kind is float:
        return value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")
    if isinstance(value, enum.Enum):
        return _convert(value.value, parents, depth)
    if isinstance(value, str):
        return clean_text(str(value))
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float):
        return _convert(float(value), parents, depth)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, _AS_TEXT):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes_text(bytes(value))
    if id(value) in parents:
        raise NotJsonable("it contains itself")
    if depth > _MAX_DEPTH:
        raise NotJsonable(f"it is nested deeper than {_MAX_DEPTH} levels")
    return _convert_container(value, (*parents, id(value)), depth + 1)


def _convert_container(value: Any, parents: tuple[int, ...], depth: int) -> Any:
    if isinstance(value, Mapping):
        return {_key(k): _convert(v, parents, depth) for k, v in value.items()}
    if isinstance(value, BaseModel):
        return {
            **{name: _convert(getattr(value, name), parents, depth) for name in type(value).model_fields},
            **{name: _convert(v, parents, depth) for name, v in (value.model_extra or {}).items()},
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _convert(getattr(value, f.name), parents, depth) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _convert(value._asdict(), parents, depth)
    if isinstance(value, list | tuple):
        return [_convert(item, parents, depth) for item in value]
    if isinstance(value, set | frozenset):
        return _ordered([_convert(item, parents, depth) for item in value])
    if is_frame(value):  # before numpy's: a Series has what an array has, and labels
        return _convert(frame_data(value), parents, depth)
    if hasattr(value, "dtype") and callable(getattr(value, "tolist", None)):
        return _convert(value.tolist(), parents, depth)
    if hasattr(value, "dtype") and callable(getattr(value, "item", None)):
        return _convert(value.item(), parents, depth)
    if isinstance(value, range | deque | KeysView | ValuesView | ItemsView):
        return [_convert(item, parents, depth) for item in list(value)]
    raise NotJsonable(f"{type(value).__name__} has no JSON form")


def _ordered(items: list[Any]) -> list[Any]:
    """Sets have no order: sort, so that the same set always gives the same text."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=str)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return clean_text(str(key))
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    if isinstance(key, dt.datetime | dt.date | dt.time):
        return key.isoformat()
    if isinstance(key, enum.Enum):
        return _key(key.value)
    return clean_text(str(key))


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii")


def is_frame(value: Any) -> bool:
    """Whether this looks like a data frame or a labelled series (pandas, polars and alike)."""
    kind = type(value)
    has_shape = hasattr(value, "shape") and hasattr(value, "head")
    return (
        has_shape
        and (hasattr(kind, "to_dict") or hasattr(kind, "to_dicts"))
        and (hasattr(kind, "columns") or hasattr(kind, "dtype"))
    )


def frame_data(value: Any) -> Any:
    """A frame's cells: ``{"columns": [...], "index": [...], "data": [[...]]}``; a series' values by label."""
    if hasattr(value, "columns"):
        if hasattr(type(value), "to_dicts"):
            return {"columns": list(value.columns), "data": [list(row.values()) for row in value.to_dicts()]}
        split = value.to_dict(orient="split")
        return {
            "columns": [_label(c) for c in split["columns"]],
            "index": [_label(i) for i in split["index"]],
            "data": split["data"],
        }
    if hasattr(type(value), "to_list") and not hasattr(value, "index"):
        return value.to_list()
    return {"name": value.name, "index": [_label(i) for i in value.index], "data": list(value.to_list())}


def _label(label: Any) -> Any:
    return list(label) if isinstance(label, tuple) else label

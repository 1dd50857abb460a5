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
import sys
import uuid
from collections import deque
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from pydantic import BaseModel
from pydantic_core import SchemaSerializer

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


def jsonable_or_text(value: Any) -> Any:
    """`value` as JSON data, or where it has none, its text."""
    try:
        return to_jsonable(value)
    except NotJsonable:
        return clean_text(str(value))


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
        made = {_key(k): _convert(v, parents, depth) for k, v in value.items()}
        if len(made) != len(value):
            raise NotJsonable("two of its keys have the same text")
        return made
    serializer = getattr(type(value), "__pydantic_serializer__", None)
    if isinstance(serializer, SchemaSerializer):
        return _convert_pydantic(value, serializer, parents, depth)
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
    if offers(value, "dtype", "tolist") or offers(value, "dtype", "item"):
        return _convert_array(value, parents, depth)
    if isinstance(value, range | deque | KeysView | ValuesView | ItemsView):
        return [_convert(item, parents, depth) for item in list(value)]
    if _is_row(value):
        names = list(value.keys())
        return _convert(
            dict(zip(names, value, strict=True)) if len(set(names)) == len(names) else list(value), parents, depth
        )
    if type(value).__name__ == "NAType":  # pandas' own unknown
        return None
    raise NotJsonable(f"{type(value).__name__} has no JSON form")


def _convert_pydantic(value: Any, serializer: SchemaSerializer, parents: tuple[int, ...], depth: int) -> Any:
    """As the class itself serialises: serializers, excluded and computed fields, aliases. What pydantic cannot, is done by our rules."""

    def fallback(inner: Any) -> Any:
        return _convert(inner, parents, depth)

    try:
        data = serializer.to_python(value, mode="json", fallback=fallback, warnings=False)
    except NotJsonable:
        raise
    except (
        RecursionError,
        ValueError,
        TypeError,
        AttributeError,
    ) as exc:  # its own serializers may raise anything of the kind
        fields = getattr(type(value), "__pydantic_fields__", {})
        if not isinstance(value, BaseModel):
            raise NotJsonable(f"{type(value).__name__} cannot be serialised: {exc}") from exc
        shown = {name: getattr(value, name) for name, field in fields.items() if not field.exclude}
        data = {**shown, **(value.model_extra or {})}
    return _convert(data, parents, depth)


def _convert_array(value: Any, parents: tuple[int, ...], depth: int) -> Any:
    """NumPy's arrays and scalars, and those of libraries that follow it."""
    if getattr(value.dtype, "kind", "") in "mM":  # times: as numbers they would lose their unit
        data = value.astype(str).tolist() if hasattr(value, "astype") else str(value)
        return _convert(data, parents, depth)
    data = value.tolist() if offers(value, "tolist") else value.item()
    if type(data) is type(value):  # a scalar that no Python number holds
        return _convert(float(value) if value.dtype.kind == "f" else str(value), parents, depth)
    return _convert(data, parents, depth)


def _is_row(value: Any) -> bool:
    sqlite = sys.modules.get("sqlite3")
    return sqlite is not None and isinstance(value, sqlite.Row)


def offers(value: Any, *names: str) -> bool:
    """Whether its class has all these attributes. An object that answers to every name (a mock, a proxy) offers nothing."""
    kind = type(value)
    return not isinstance(value, type) and all(hasattr(kind, name) for name in names)


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
    return (
        offers(value, "shape", "head")
        and (offers(value, "to_dict") or offers(value, "to_dicts"))
        and (offers(value, "columns") or offers(value, "dtype"))
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

"""Data frames, labelled series, arrays and library scalars, recognised by what they can do: no optional library is imported."""

from __future__ import annotations

import math
from typing import Any


def has(value: Any, name: str) -> bool:
    """Whether the object or its class truly has the attribute: `__getattr__` is not asked, which may answer to any name."""
    return defines(type(value), name) or name in getattr(value, "__dict__", ())


def defines(kind: type, name: str) -> bool:
    """Whether a class or one of its bases truly has the attribute."""
    return hasattr(kind, name) and any(name in vars(base) for base in kind.__mro__)


def is_mock(value: Any) -> bool:
    """Whether this is one of ``unittest.mock``, which claims to be and to have anything."""
    kind = type(value)
    return hasattr(kind, "assert_called_with") and any(base.__module__ == "unittest.mock" for base in kind.__mro__)


def is_frame(value: Any) -> bool:
    """Whether this looks like a data frame or a labelled series (pandas, polars and alike)."""
    kind = type(value)
    return (
        defines(kind, "shape")
        and defines(kind, "head")
        and (defines(kind, "to_dict") or defines(kind, "to_dicts"))
        and (defines(kind, "columns") or defines(kind, "dtype"))
    )


def frame_data(value: Any) -> Any:
    """A frame's cells: ``{"columns": [...], "index": [...], "data": [[...]]}``; a series' values by label."""
    kind = type(value)
    if defines(kind, "columns"):
        if defines(kind, "to_dicts"):
            return {"columns": list(value.columns), "data": [list(row.values()) for row in value.to_dicts()]}
        if defines(kind, "itertuples"):  # to_dict() warns of equal column names
            cells = [list(row) for row in value.itertuples(index=False, name=None)] if len(value.columns) else []
            split = {"columns": value.columns, "index": value.index, "data": cells or [[] for _ in value.index]}
        else:
            split = value.to_dict(orient="split")
        return {
            "columns": [_label(c) for c in split["columns"]],
            "index": [_label(i) for i in split["index"]],
            "data": split["data"],
        }
    if defines(kind, "to_list") and not has(value, "index"):
        return value.to_list()
    return {"name": _label(value.name), "index": [_label(i) for i in value.index], "data": list(value.to_list())}


def _label(label: Any) -> Any:
    return list(label) if isinstance(label, tuple) else label


def is_array(value: Any) -> bool:
    """Whether this is an array or a scalar of one (numpy, torch, pandas' own arrays and alike)."""
    return has(value, "dtype") and (has(value, "tolist") or has(value, "item"))


def array_data(value: Any) -> Any:
    """An array's or array scalar's values one step nearer to plain Python: lists, records as dicts, numbers, times, text."""
    names = getattr(value.dtype, "names", None)
    dtype_kind = getattr(value.dtype, "kind", "")
    many = len(getattr(value, "shape", ())) > 0
    if many and (names or dtype_kind in "mM"):  # tolist() would drop the names, and make numbers of nanoseconds
        return list(value)
    if names:
        return {name: value[name] for name in names}
    data = value.tolist() if has(value, "tolist") else value.item()
    if dtype_kind in "mM" and (data is None or isinstance(data, int)):
        return str(value)
    if type(data) is not type(value) or many:
        return data
    # A number wider than Python's own.
    if dtype_kind == "f":
        near = float(data)
        return near if math.isfinite(near) or data != data or data in (math.inf, -math.inf) else str(data)
    return str(data)


def scalar_text(value: Any) -> str | None:
    """The text of a label of pandas' (an interval, a period, an offset); None for anything else."""
    kind = type(value)
    if kind.__module__.partition(".")[0] == "pandas" and (
        kind.__name__ in ("Interval", "Period") or defines(kind, "is_on_offset")
    ):
        return str(value)
    return None


def is_missing(value: Any) -> bool:
    """Whether this is pandas' ``NA``."""
    return type(value).__name__ == "NAType" and type(value).__module__.partition(".")[0] == "pandas"

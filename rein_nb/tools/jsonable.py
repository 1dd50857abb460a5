"""Any Python value as plain JSON data, or an honest text form of it. Never fails for what a tool returned.

No optional library is imported: arrays, frames and scalars are recognised by what they can do (see `rein_nb.tools.frames`).
"""

from __future__ import annotations

import array
import base64
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import math
import os
import types
import uuid
from collections import UserList, deque
from collections.abc import ItemsView, Iterable, KeysView, Mapping, Set, ValuesView
from typing import Any

from pydantic import BaseModel

from rein_nb.ir.base import clean_text
from rein_nb.ir.errors import said
from rein_nb.tools.frames import array_data, defines, frame_data, is_array, is_missing, is_mock, scalar_text
from rein_nb.tools.frames import is_frame as is_frame

_MAX_DEPTH = 60
_LONGEST = 10**4_000
_TIMES = (dt.datetime, dt.date, dt.time)
_AS_TEXT = (
    dt.timedelta,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    complex,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
)
_AS_LIST = (list, tuple, range, deque, UserList, array.array, KeysView, ValuesView, ItemsView)


class NotJsonable(Exception):
    """The value is cyclic, too deep, or of a class without a JSON form; the message says which."""


def to_jsonable(value: Any, *, others_as_text: bool = False) -> Any:
    """`value` as dicts, lists, strings, numbers, booleans and None.

    Times become ISO text, decimals and paths text, sets lists, not-a-number ``"NaN"``, bytes text or base64, keys text. A mapping with keys
    that would be the same text becomes a list of its items. Pydantic models are what their own serializers make of them.

    Parameters
    ----------
    others_as_text
        Whatever has no JSON form is replaced by its text, where it stands.

    Raises
    ------
    NotJsonable
        When no faithful JSON form exists.
    """
    return _Conversion(others_as_text).convert(value)


def is_plain(value: Any, most: int = 2_000) -> bool:
    """Whether this is JSON data, and little enough (about `most` values, and a million characters) to be written in no time."""
    waiting = [value]
    seen = letters = 0
    while waiting:
        item = waiting.pop()
        kind = type(item)
        seen += 1
        if kind is str:
            letters += len(item)
        elif kind is list or kind is tuple:
            waiting += item[:most]
        elif kind is dict:
            if len(item) > most:
                return False
            waiting += item.keys()
            waiting += item.values()
        elif not (item is None or kind is int or kind is float or kind is bool):
            return False
        if seen > most or letters > 1_000_000:
            return False
    return True


class _Conversion:
    """One value's conversion: how to treat what has no form, and which containers are open at the moment."""

    def __init__(self, others_as_text: bool) -> None:
        self._others_as_text = others_as_text
        self._open: set[int] = set()

    def convert(self, value: Any) -> Any:
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is str:
            return clean_text(value)
        if kind is int:  # Python writes no more than 4,300 digits, and would fail at the whole
            return value if -_LONGEST < value < _LONGEST else hex(value)
        if kind is float:
            return value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")
        # By the class itself, and not by what a mock or a proxy says of it.
        if issubclass(kind, float):
            return self.convert(float(value))
        if issubclass(kind, int):
            return self.convert(int(value))
        if issubclass(kind, _TIMES):
            return value.isoformat()
        try:
            return self._nested(value)
        except NotJsonable:
            if not self._others_as_text:
                raise
        except Exception as exc:  # its own code failed
            if not self._others_as_text:
                raise NotJsonable(f"its parts cannot be read: {type(exc).__name__}: {said(exc)}") from exc
        return _text_of(value)

    def _nested(self, value: Any) -> Any:
        if id(value) in self._open:
            raise NotJsonable("it contains itself")
        if len(self._open) > _MAX_DEPTH:
            raise NotJsonable(f"it is nested deeper than {_MAX_DEPTH} levels")
        self._open.add(id(value))
        try:
            return self._unfolded(value)
        finally:
            self._open.discard(id(value))

    def _unfolded(self, value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            return self._mapping(value)
        if kind is list:
            return self._items(value)
        if is_mock(value):
            raise NotJsonable("a mock has no JSON form")
        if isinstance(value, enum.Enum):
            return self.convert(value.value)
        if isinstance(value, str):
            return clean_text(characters(value))
        if isinstance(value, _AS_TEXT):
            return str(value)
        if isinstance(value, bytes | bytearray | memoryview):
            return _bytes_text(bytes(value))
        if isinstance(value, os.PathLike):
            return self.convert(os.fspath(value))
        return self._container(value)

    def _container(self, value: Any) -> Any:
        kind = type(value)
        if isinstance(value, BaseModel) or "__pydantic_serializer__" in vars(kind):
            return self.convert(self._dumped(value))
        if isinstance(value, Mapping):
            return self._mapping(value)
        fields = _field_names(kind)
        if fields is not None:
            return {name: self.convert(getattr(value, name)) for name in fields if hasattr(value, name)}
        if isinstance(value, tuple) and defines(kind, "_asdict"):
            return self.convert(kind._asdict(value))
        if isinstance(value, types.SimpleNamespace):
            return self._mapping(vars(value))
        if isinstance(value, _AS_LIST):
            return self._items(list(value))
        if isinstance(value, Set):
            return _ordered(self._items(list(value)))
        if any(base.__module__ == "sqlite3" and base.__name__ == "Row" for base in kind.__mro__):
            return self._pairs(list(zip(value.keys(), value, strict=True)))
        if is_frame(value):  # before arrays: a Series has what an array has, and labels
            return self.convert(frame_data(value))
        if is_array(value):
            return self.convert(array_data(value))
        if is_missing(value):
            return None
        text = scalar_text(value)
        if text is not None:
            return clean_text(text)
        raise NotJsonable(f"{kind.__name__} has no JSON form")

    def _items(self, values: Iterable[Any]) -> list[Any]:
        convert = self.convert
        return [convert(item) for item in values]

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        return self._pairs(list(value.items()))

    def _pairs(self, pairs: list[tuple[Any, Any]]) -> Any:
        out = {_key(key): self.convert(item) for key, item in pairs}
        if len(out) == len(pairs):
            return out
        # Keys that are told apart in Python (1 and "1") and not in JSON: every item is kept, in a list.
        plain = (str, int, float, type(None))
        return [[self.convert(key) if isinstance(key, plain) else _key(key), self.convert(item)] for key, item in pairs]

    def _dumped(self, value: Any) -> Any:
        """A pydantic model (or dataclass) as its serializers say: excluded, computed and renamed fields as in ``model_dump``."""
        if isinstance(value, BaseModel):
            dump = value.model_dump
        else:

            def dump(**options: Any) -> Any:
                return type(value).__pydantic_serializer__.to_python(value, **options)

        try:
            return dump(mode="json", warnings=False, fallback=self.convert)
        except Exception:  # bytes that are no text, a value without a JSON form, a cycle: the parts are converted here
            try:
                return dump()
            except Exception as exc:
                computed = getattr(type(value), "__pydantic_computed_fields__", None)
                if not computed or type(value).model_dump is not BaseModel.model_dump:  # a dump of its own
                    raise NotJsonable(f"its own serialization failed: {type(exc).__name__}: {said(exc)}") from exc
                fields = type(value).__pydantic_fields__.items()  # a computed field that fails
                return {
                    name: getattr(value, name) for name, field in fields if not field.exclude and hasattr(value, name)
                }


def _field_names(kind: Any) -> list[str] | None:
    """The fields of a dataclass, an attrs class or a msgspec struct; None for any other class."""
    if defines(kind, "__dataclass_fields__"):
        return [field.name for field in dataclasses.fields(kind)]
    if defines(kind, "__attrs_attrs__"):
        return [attribute.name for attribute in kind.__attrs_attrs__]
    if defines(kind, "__struct_fields__"):
        return list(kind.__struct_fields__)
    return None


def _ordered(items: list[Any]) -> list[Any]:
    """Sets have no order: sort, so that the same set always gives the same text."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=str)


def _key(key: Any) -> str:
    if isinstance(key, enum.Enum):
        return _key(key.value)
    if isinstance(key, str):
        return clean_text(characters(key))
    if isinstance(key, bool) or key is None:
        return {True: "true", False: "false", None: "null"}[key]
    if isinstance(key, _TIMES):
        return str(key.isoformat())
    if isinstance(key, bytes):
        return _bytes_text(key)
    if isinstance(key, int) and not -_LONGEST < key < _LONGEST:
        return hex(key)
    return _text_of(key)


def characters(text: str) -> str:
    """Those of a string of any class: its own ``str`` may say something else."""
    return str.__str__(text) if issubclass(type(text), str) else str(text)


def _text_of(value: Any) -> str:
    try:
        return clean_text(str(value))
    except Exception as exc:
        return f"<{type(value).__name__} whose text failed: {type(exc).__name__}>"


def _bytes_text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(data).decode("ascii")

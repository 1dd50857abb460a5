"""Iterables within models, dataclasses and typed dicts: pydantic checks their items only while they are read, so they are read at once."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import BaseModel, ValidationError

Path = tuple[int | str, ...]


class WrongItem(Exception):
    """An item of an iterable is not valid; `path` leads to the iterable, and the cause says what is wrong in it."""

    def __init__(self, path: Path, cause: ValidationError) -> None:
        super().__init__(path)
        self.path = path
        self.cause = cause


def is_lazy(core_schema: Any) -> bool:
    """Whether a pydantic core schema has iterables that are checked while they are read."""
    if isinstance(core_schema, dict):
        return core_schema.get("type") == "generator" or any(is_lazy(part) for part in core_schema.values())
    return isinstance(core_schema, list | tuple) and any(is_lazy(part) for part in core_schema)


def read(value: Any, path: Path = ()) -> Any:
    """The value with lists for such iterables; models, dataclasses, lists and dicts are changed in place.

    Raises
    ------
    WrongItem
        At the first item that is not valid.
    """
    if type(value).__name__ == "ValidatorIterator":
        items: list[Any] = []
        try:
            for item in value:
                items.append(read(item, (*path, len(items))))
        except ValidationError as exc:
            raise WrongItem(path, exc) from exc
        return items
    if isinstance(value, tuple):
        return tuple(read(item, (*path, at)) for at, item in enumerate(value)) if type(value) is tuple else value
    if isinstance(value, list):
        value[:] = [read(item, (*path, at)) for at, item in enumerate(value)]
    elif isinstance(value, BaseModel):
        _read_dict(vars(value), path)  # past what is frozen
    elif isinstance(value, dict):
        _read_dict(value, path)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            object.__setattr__(value, field.name, read(getattr(value, field.name), (*path, field.name)))
    return value


def _read_dict(values: dict[str, Any], path: Path) -> None:
    for key, item in list(values.items()):
        values[key] = read(item, (*path, key))

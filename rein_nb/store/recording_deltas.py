"""Deltas as JSON and back, exactly: how a provider without a wire dialect is recorded."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from typing import Any, get_args

from rein_nb.ir import Citation, ErrorInfo, MediaPart, Usage
from rein_nb.ir import deltas as d
from rein_nb.ir.base import Data

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(d.Delta)}

_MODELS: dict[tuple[str, str], type[Data]] = {
    ("Cite", "citation"): Citation,
    ("Media", "media"): MediaPart,
    ("UsageReport", "usage"): Usage,
    ("Fault", "error"): ErrorInfo,
}
"""Fields that hold vocabulary of ours, by delta and field."""


class DeltaWriter:
    """Turns the deltas of one answer into JSON.

    Part keys are whatever the provider chose. Strings, numbers and tuples of these stay what they are; any other key becomes a numbered one,
    which names the same part.
    """

    def __init__(self) -> None:
        self._keys: dict[Hashable, int] = {}

    def write(self, delta: d.Delta) -> dict[str, Any]:
        """One delta.

        Raises
        ------
        TypeError
            When it is none.
        """
        kind = type(delta).__name__
        if _KINDS.get(kind) is not type(delta):
            raise TypeError(f"not a delta: {kind}")
        made: dict[str, Any] = {"type": kind}
        for spec in fields(delta):
            value = getattr(delta, spec.name)
            if spec.name == "part":
                value = self._key(value)
            elif isinstance(value, Data):
                kind_of_part = {"type": value.type} if isinstance(value, MediaPart) else {}
                value = kind_of_part | value.model_dump(mode="json", exclude_defaults=True, fallback=str)
            made[spec.name] = value
        return made

    def _key(self, key: Hashable) -> Any:
        if key is None or type(key) in (str, int, float, bool):
            return key
        if type(key) is tuple:
            return [self._key(item) for item in key]
        return {"key": self._keys.setdefault(key, len(self._keys))}


def read_delta(data: dict[str, Any]) -> d.Delta:
    """A delta from its JSON.

    Raises
    ------
    ValueError
        When it is none that this version knows.
    """
    kind = _KINDS.get(str(data.get("type"))) if isinstance(data, dict) else None
    if kind is None:
        raise ValueError(f"unknown delta {(data.get('type') if isinstance(data, dict) else data)!r:.80}")
    values = {name: value for name, value in data.items() if name != "type"}
    for name, value in values.items():
        model = _MODELS.get((kind.__name__, name))
        if model is not None:
            values[name] = model.model_validate(value)
        elif name == "part":
            values[name] = _read_key(value)
    make: Callable[..., d.Delta] = kind
    try:
        return make(**values)
    except TypeError as exc:
        raise ValueError(f"not a {kind.__name__}: {exc}") from exc


def _read_key(value: Any) -> Hashable:
    if isinstance(value, list):
        return tuple(_read_key(item) for item in value)
    if isinstance(value, dict):
        return ("key", value["key"])
    return value  # type: ignore[no-any-return]

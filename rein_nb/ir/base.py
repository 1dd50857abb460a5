"""The base model of all vocabulary, and the JSON helpers that never raise on what a model wrote."""

from __future__ import annotations

import json
import logging
import re
import warnings
from typing import Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError, PydanticUndefined, from_json

JSON: TypeAlias = Any
"""Any JSON value: dict, list, str, int, float, bool or None."""

Extra: TypeAlias = dict[str, dict[str, Any]]
"""Exactly-this-provider data, by provider (or dialect) namespace."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class Data(BaseModel):
    """Base of all vocabulary: strict about fields, immutable attributes, exact JSON round-trip.

    Attributes cannot be reassigned (``model_copy(update=...)`` makes a changed copy), so a message
    that was stored or shown is never changed behind somebody's back.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
        ser_json_inf_nan="strings",
        protected_namespaces=(),
    )

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """As pydantic's (values are trusted, defaults filled in, unknown names ignored), without its search for aliases, of which there are none here."""
        made = cls.__new__(cls)
        fields: dict[str, Any] = {}
        given: set[str] = set()
        for name, field in cls.__pydantic_fields__.items():
            if name in values:
                fields[name] = values[name]
                given.add(name)
            elif field.default_factory is not None:
                fields[name] = field.default_factory()  # type: ignore[call-arg]
            elif field.default is not PydanticUndefined:
                fields[name] = field.default  # immutable: mutable ones have factories
        set_attribute = object.__setattr__
        set_attribute(made, "__dict__", fields)
        set_attribute(made, "__pydantic_fields_set__", given if _fields_set is None else _fields_set)
        set_attribute(made, "__pydantic_extra__", None)
        set_attribute(made, "__pydantic_private__", None)
        return made

    def _with(self, **values: Any) -> Self:
        """As ``model_copy(update=values)``, without what a model could have and these have not (private attributes, extra ones)."""
        made = self.__class__.__new__(self.__class__)
        set_attribute = object.__setattr__
        set_attribute(made, "__dict__", {**self.__dict__, **values})
        set_attribute(made, "__pydantic_fields_set__", self.__pydantic_fields_set__ | values.keys())
        set_attribute(made, "__pydantic_extra__", None)
        set_attribute(made, "__pydantic_private__", None)
        return made

    def model_dump_json(self, **options: Any) -> str:
        """As pydantic's; an unpaired surrogate (a Windows console, a tool's output) becomes U+FFFD instead of an error."""
        try:
            return super().model_dump_json(**options)
        except PydanticSerializationError:
            indent = options.pop("indent", None)
            plain = clean_json(super().model_dump(mode="json", **options))
            separators = None if indent else (",", ":")
            return json.dumps(plain, ensure_ascii=False, indent=indent, separators=separators)


def clean_text(text: str) -> str:
    """Join surrogate pairs and replace unpaired surrogates by U+FFFD, so that any encoder accepts the text.

    Examples
    --------
    >>> clean_text("ok \\ud83d")
    'ok \ufffd'
    """
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean_json(value: JSON) -> JSON:
    """`clean_text` over every string in a JSON value, keys included."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(k) if isinstance(k, str) else k: clean_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(v) for v in value]
    return value


def loads(data: str | bytes) -> JSON:
    """Parse one JSON document: fast path first, then the forgiving standard library.

    The fast parser refuses lone surrogate escapes, which models do write.

    Raises
    ------
    ValueError
        When `data` is not one complete JSON document; the message says where it broke.
    """
    try:
        return from_json(data, cache_strings="keys")
    except ValueError:
        if isinstance(data, bytes):
            data = data.decode("utf-8", "replace")
        return clean_json(json.loads(data))


def own_copy(value: Any) -> Any:
    """A copy of JSON data or vocabulary whose dicts and lists may be changed in place; all else in it is shared.

    Examples
    --------
    >>> given = {"at": [1, {"x": 2}]}
    >>> mine = own_copy(given)
    >>> mine["at"].append(3)
    >>> given
    {'at': [1, {'x': 2}]}
    """
    if type(value) is dict and not any(isinstance(item, _HOLDERS) for item in value.values()):
        return value.copy()
    whole = [value]
    holders: list[Any] = [whole]
    copies: dict[int, Any] = {}  # what is there twice, or in itself, is so in the copy
    while holders:
        holder = holders.pop()
        for key, item in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(item, dict | list):
                copy = copies.get(id(item))
                if copy is None:
                    copy = copies[id(item)] = item.copy()
                    holders.append(copy)
                holder[key] = copy
            elif isinstance(item, Data):
                inner = {name: own_copy(held) for name, held in item.__dict__.items() if isinstance(held, _HOLDERS)}
                holder[key] = item.model_copy(update=inner)
    return whole[0]


_HOLDERS = (dict, list, Data)


def warn(text: str, category: type[Warning], stacklevel: int) -> None:
    """Warn in the middle of a run, about the place that `stacklevel` names (1 is the caller); where warnings are errors, log it: the warning
    must not end what it tells of."""
    try:
        warnings.warn(text, category, stacklevel=stacklevel + 1)
    except Warning:
        logging.getLogger("rein_nb").warning(text)


def merge_extra(base: Extra, more: Extra) -> Extra:
    """`base` with `more` laid over it, namespace by namespace. Neither is changed."""
    out = {ns: dict(values) for ns, values in base.items()}
    for ns, values in more.items():
        out.setdefault(ns, {}).update(values)
    return out

"""Validated arguments put in the order in which Python takes them."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

Kind = Literal["positional", "keyword", "var_positional", "var_keyword"]

KINDS: dict[Any, Kind] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "keyword",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}


@dataclass(slots=True)
class Slot:
    """One parameter.

    Attributes
    ----------
    name
        In Python.
    attribute
        On the pydantic model of the arguments; empty for a parameter that takes the context.
    wire
        In the schema.
    has_field_default
        Whether the model knows its default, and not the function.
    """

    name: str
    kind: Kind
    attribute: str = ""
    wire: str = ""
    has_field_default: bool = False


@dataclass(slots=True)
class Arguments:
    """Validated arguments, ready for the call."""

    positional: list[Any]
    keywords: dict[str, Any]


def arranged(slots: Sequence[Slot], values: BaseModel, more: dict[str, Any], context: Any) -> Arguments:
    """The call's arguments from the model's values, what is for ``**kwargs``, and the context (None leaves it out where it can be).

    What is given to ``*args`` needs every parameter before it by position.
    """
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    star = next(
        (at for at, slot in enumerate(slots) if slot.kind == "var_positional" and getattr(values, slot.attribute)), 0
    )
    for at, slot in enumerate(slots):
        by_position = slot.kind == "positional" or at < star
        if not slot.attribute:
            if by_position:
                positional.append(context)
            elif context is not None:
                keywords[slot.name] = context
            continue
        value = getattr(values, slot.attribute)
        if slot.kind == "var_positional":
            positional.extend(value)
        elif by_position:  # with its default when it was left out
            positional.append(value)
        elif slot.has_field_default or slot.attribute in values.model_fields_set:
            keywords[slot.name] = value
    keywords.update(more)
    return Arguments(positional, keywords)

"""Annotations rewritten for pydantic: nothing lazy, no ``Self``, and the standard library's TypedDict readable on every Python."""

from __future__ import annotations

import collections.abc
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

import typing_extensions
from pydantic import AfterValidator

_SELF: tuple[Any, ...] = (typing.Self, typing_extensions.Self)
_LISTS = (collections.abc.Iterable, collections.abc.Collection, collections.abc.Reversible)
_ITERATORS = (collections.abc.Iterator, collections.abc.Generator)


def eager(annotation: Any, owner: type | None = None, open_aliases: tuple[Any, ...] = ()) -> Any:
    """The annotation with lists for iterables, which pydantic would check only while the function reads them, and `owner` for ``Self``.

    Raises
    ------
    TypeError
        When there is a ``Self`` and no owner.
    """
    if annotation in _SELF:
        if owner is None:
            raise TypeError("Self means nothing outside a method of an instance")
        return owner
    if type(annotation).__name__ == "TypeAliasType" and annotation not in open_aliases:
        value = annotation.__value__
        changed = eager(value, owner, (*open_aliases, annotation))
        return annotation if changed is value else changed
    origin = get_origin(annotation) or annotation
    if origin in (*_LISTS, *_ITERATORS):
        items: Any = types.GenericAlias(list, (eager((*get_args(annotation), Any)[0], owner, open_aliases),))
        return Annotated[items, AfterValidator(iter)] if origin in _ITERATORS else items
    return _rebuilt(annotation, lambda inner: eager(inner, owner, open_aliases))


def _rebuilt(annotation: Any, change: Callable[[Any], Any]) -> Any:
    """The annotation with `change` made to its arguments; itself when nothing changed."""
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if not arguments or origin in (typing.Literal, typing_extensions.Literal, collections.abc.Callable):
        return annotation
    if origin is Annotated:
        inner = change(arguments[0])
        return annotation if inner is arguments[0] else Annotated[(inner, *arguments[1:])]
    changed = tuple(change(argument) for argument in arguments)
    if all(new is old for new, old in zip(changed, arguments, strict=True)):
        return annotation
    if isinstance(annotation, types.UnionType):
        return typing.Union[changed]  # noqa: UP007 - built at run time
    if hasattr(annotation, "copy_with"):
        return annotation.copy_with(changed)
    return types.GenericAlias(typing.cast(type, origin), changed)


# -- typing.TypedDict before Python 3.12 -------------------------------------------------------------

_converted: dict[Any, Any] = {}
_REQUIREDNESS: frozenset[Any] = frozenset({typing.Required, typing.NotRequired})


def modern(annotation: Any) -> Any:
    """The annotation with every ``typing.TypedDict`` in it as one of typing_extensions.

    Before Python 3.12 the standard library's lacks what pydantic needs to read it.
    """
    if sys.version_info >= (3, 12):
        return annotation
    if isinstance(annotation, type) and typing.is_typeddict(annotation):
        return _converted_typed_dict(annotation)
    return _rebuilt(annotation, modern)


def _converted_typed_dict(cls: Any) -> Any:
    found = _converted.get(cls)
    if found is not None:
        return found
    if not cls.__module__ or type(cls).__module__ == "typing_extensions":
        return cls
    hints = typing_extensions.get_type_hints(cls, include_extras=True)
    fields = {}
    for key, hint in hints.items():
        bare = get_origin(hint) not in _REQUIREDNESS
        wanted = typing_extensions.Required if key in cls.__required_keys__ else typing_extensions.NotRequired
        fields[key] = wanted[modern(hint)] if bare else modern(hint)
    made = typing_extensions.TypedDict(cls.__name__, fields, total=cls.__total__)  # type: ignore[misc]
    made.__doc__, made.__module__, made.__qualname__ = cls.__doc__, cls.__module__, cls.__qualname__
    _converted[cls] = made
    return made

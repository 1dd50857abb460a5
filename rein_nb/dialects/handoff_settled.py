"""What is known of the settled beginning of a history, so that a loop's next request hands off and encodes only what is new.

A conversation grows at its end, by the same message objects. Up to its last assistant message, or the results of that one's calls, it is
*settled* when every call has its result right behind it: nothing that comes later changes what is sent of it, except a result or an id that reaches back, for which the
whole history is done anew (`Unsettled`). What is kept here holds no message of the history alive, and goes when its first one does.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.ir import Message

LEAST = 6
"""Messages below which nothing is kept: doing them anew costs less."""

MOST = 64
"""Conversations, each with one target, that are remembered at most."""


class Unsettled(Exception):
    """Something new reaches back into the settled part."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The settled part of one history for one target.

    Attributes
    ----------
    sources
        The messages, weakly, and the parts that each had: a message whose parts were exchanged is another.
    out
        What they became: the index of a source that goes out as it is, or the message in its place.
    warnings, repairs
        What the hand-off noted of them.
    calls
        Ids of the calls in it, as given.
    kept, derived
        Ids under which calls go out: as given, or made.
    uses
        How often each given id was used.
    names
        Tool names, and those they go out under.
    wire
        What codecs made of `out`, by codec; theirs alone.
    """

    target: Target
    sources: list[tuple[weakref.ref[Message], list[Any]]]
    out: list[int | Message]
    warnings: tuple[str, ...]
    repairs: int
    calls: frozenset[str]
    kept: frozenset[str]
    derived: frozenset[str]
    uses: dict[str, int]
    names: dict[str, str]
    wire: dict[Any, Any] = field(default_factory=dict)

    def messages(self, history: Sequence[Message]) -> list[Message]:
        """What the settled part goes out as."""
        return [history[item] if type(item) is int else item for item in self.out]  # type: ignore[misc]


_Key = tuple[int, int]
_known: dict[_Key, Settled] = {}
_anchors: dict[_Key, weakref.ref[Message]] = {}


def find(history: Sequence[Message], target: Target) -> Settled | None:
    """What is known of this history's beginning; None when it is too little, or not this one."""
    if len(history) <= LEAST:
        return None
    anchor = _anchor(history)
    if anchor is None:
        return None
    found = _known.get((id(target), id(anchor)))
    if found is None or found.target is not target or len(found.sources) > len(history):
        return None
    for (source, parts), message in zip(found.sources, history, strict=False):
        if source() is not message or message.parts != parts:
            return None
    return found


def keep(history: Sequence[Message], settled: Settled) -> None:
    """Remember it until its first message is gone."""
    anchor = _anchor(history)
    if anchor is None:
        return
    key = (id(settled.target), id(anchor))
    if key not in _known:
        while len(_known) >= MOST and (oldest := next(iter(_known), None)) is not None:
            _forget(oldest)
        _anchors[key] = weakref.ref(anchor, lambda _: _forget(key))
    _known[key] = settled


def _forget(key: _Key) -> None:
    _known.pop(key, None)
    _anchors.pop(key, None)


def _anchor(history: Sequence[Message]) -> Message | None:
    return next((message for message in history if message.role not in ("system", "developer")), None)

"""Entries of a session: what they are, and how their data becomes text without secrets and comes back exactly."""

from __future__ import annotations

import json
import math
import re
import sys
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rein_nb.ir import Message, redact
from rein_nb.ir.base import Data, clean_json, clean_text, loads

MESSAGE = "message"
TURN = "turn"
RUN = "run"
TOOL_START = "tool_start"
TOOL_RESULT = "tool_result"
EVENT = "event"
LABEL = "label"
HEAD = "head"
OWN_KINDS = frozenset({MESSAGE, TURN, RUN, TOOL_START, TOOL_RESULT, EVENT, LABEL, HEAD})
"""Kinds that rein_nb gives a meaning to. All others are the user's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of a session. Never changed and never removed.

    Attributes
    ----------
    id
        Unique in its session.
    parent
        The entry it follows: for messages the one before on the branch, for others the message they belong to. None at the root.
    kind
        ``message``, ``turn``, ``run``, ``tool_start``, ``tool_result``, ``event``, ``label``, ``head``, or a word of the user's.
    time
        Unix time, seconds.
    data
        JSON.
    """

    id: str
    parent: str | None
    kind: str
    time: float
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def message(self) -> Message | None:
        """The message, for entries of that kind."""
        return Message.model_validate(self.data["message"]) if self.kind == MESSAGE else None


def new_id() -> str:
    """An id that no other process makes."""
    return uuid.uuid4().hex


AT_HEAD = "@head"
"""In place of an entry's id: wherever the head is when it is written."""


@dataclass(slots=True)
class Record:
    """An entry to be written. `parent` is the id of the entry it follows or hangs on; None at the root."""

    kind: str
    data: dict[str, Any]
    parent: str | None = AT_HEAD
    id: str = field(default_factory=new_id)
    time: float = field(default_factory=time.time)


_DATA = re.compile(r"[A-Za-z0-9+/_-]{512,}={0,2}")
"""One unbroken base64 run of this length is a picture, a signature or sealed reasoning: no credential is as long, and a mask inside
it would destroy it."""

_SEALED = frozenset({"signature", "opaque"})
_VERBATIM: dict[str, frozenset[str]] = {"thinking": _SEALED, "media": frozenset({"data"}), "Signature": _SEALED}
"""By the type of a part or delta: fields that must come back byte for byte."""


_MOST_DIGITS = 4300
"""Digits of a whole number that Python reads back from a text, where nothing else was set."""


def scrub(value: Any) -> Any:
    """What can be stored of a value: JSON with secrets masked and surrogates replaced. Never raises.

    Media bytes and a provider's sealed reasoning stay as they are. A number of more digits than Python reads, what JSON does not have, what
    holds itself and what is nested too deeply become texts.
    """
    try:
        return _scrub(clean_json(value))
    except Exception:
        return _scrub(clean_json(as_json(value)))


def _scrub(value: Any) -> Any:
    if isinstance(value, str):
        return value if _DATA.fullmatch(value) else redact(value)
    if isinstance(value, dict):
        kept = _VERBATIM.get(str(value.get("type")), frozenset())
        return {_key(key): item if key in kept else _scrub_field(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    if value is None or isinstance(value, float):
        return value
    return _number(value) if isinstance(value, int) else _scrub(clean_json(as_json(value)))


def _scrub_field(key: Any, item: Any) -> Any:
    if isinstance(item, str) and not _DATA.fullmatch(item):
        return redact({key: item})[key]
    return _scrub(item)


def _key(key: Any) -> Any:
    if isinstance(key, str) or key is None or isinstance(key, float):
        return key
    return _number(key) if isinstance(key, int) else redact(clean_text(_text_of(key)))


def _number(value: int) -> int | str:
    digits = int(value.bit_length() * 0.30103)
    return value if digits < min(_MOST_DIGITS, _limit()) else f"(a whole number of about {digits} digits)"


def _limit() -> int:
    return sys.get_int_max_str_digits() or _MOST_DIGITS


DEEPEST = 200
"""Levels of nesting that are kept where a value has to be taken apart here; what lies deeper becomes its text."""


def plain(value: Data, *, exclude: set[str] | None = None) -> Any:
    """Vocabulary as JSON data; a value that JSON does not have, that holds itself or is nested too deeply becomes its text."""
    try:
        return value.model_dump(mode="json", fallback=str, exclude=exclude)
    except Exception:  # a tool's own objects in `details`, arguments of any depth
        return {name: as_json(item) for name, item in value if name not in (exclude or ())}


def as_json(value: Any, _depth: int = 0, _within: frozenset[int] = frozenset()) -> Any:
    """Any value as JSON data. Never raises."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if id(value) in _within:
        return "(contains itself)"
    if _depth >= DEEPEST:
        return _text_of(value)
    try:
        return _taken_apart(value, _depth + 1, _within | {id(value)})
    except Exception:  # a container of somebody's own
        return _text_of(value)


def _taken_apart(value: Any, depth: int, within: frozenset[int]) -> Any:
    if isinstance(value, Data):
        try:
            return value.model_dump(mode="json", fallback=str)
        except Exception:
            value = dict(value)
    if isinstance(value, Mapping):
        return {_text_of(key): as_json(item, depth, within) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(item, depth, within) for item in value]
    return _text_of(value)


def _text_of(value: Any) -> str:
    try:
        return str(value)
    except Exception as exc:
        return f"({type(value).__name__}, whose text could not be made: {type(exc).__name__})"


_MOST_CHARACTERS = 1000
"""What is left of a text that is too long to be stored."""


def shortened(value: Any) -> Any:
    """JSON without long texts, for what a store refuses. Media bytes are left out."""
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shortened(item) for item in value]
    if not isinstance(value, str) or len(value) <= _MOST_CHARACTERS:
        return value
    if _DATA.fullmatch(value):
        return ""
    return f"{value[:_MOST_CHARACTERS]}… ({len(value) - _MOST_CHARACTERS} more characters could not be stored)"


def stored_form(message: Message) -> Message:
    """The message as a session gives it back."""
    return Message.model_validate(scrub(plain(message)))


def same_message(message: Message, stored: Message) -> bool:
    """Whether `stored` is `message`, or what a session made of it."""
    return message is stored or message == stored or stored_form(message) == stored


def to_text(data: Any) -> str:
    """JSON text on one line; `data` must have been through `scrub`."""
    try:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):  # in what is kept byte for byte
        return json.dumps(as_json(data), ensure_ascii=False, separators=(",", ":"))


def from_text(text: str) -> Any:
    """The JSON value of a stored text."""
    return loads(text)


def searchable(kind: str, data: dict[str, Any]) -> str | None:
    """What a search looks at: a message's words, a label, the words of the user's own entries."""
    if kind == MESSAGE:
        message = Message.model_validate(data["message"])
        calls = " ".join(f"{call.name} {call.arguments_text}" for call in message.tool_calls)
        return "\n".join(filter(None, (message.text, message.thinking, calls))) or None
    if kind == LABEL:
        return str(data.get("label", ""))
    return None if kind in OWN_KINDS else to_text(data)

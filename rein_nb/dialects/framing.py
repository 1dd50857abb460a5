"""From the bytes of a response to its events: SSE, newline-delimited JSON, and a JSON array sent piece by piece.

Every parser here takes bytes cut anywhere, also inside a character or between the two bytes of a CRLF, and gives ``(event name or
None, data)`` pairs; what is incomplete waits for the next `feed`. A feed costs time linear in its bytes, however the bytes are cut.

SSE follows the WHATWG standard, section 9.2.6 (https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream):
lines end with LF, CR or CRLF, a leading byte order mark is dropped, one space after the colon is dropped, a line that starts with a
colon is a comment, and an event without a data line is no event. It departs from the standard in two points: an event that the
end of the stream finds without its closing blank line is kept, since several servers leave that line out at the end; and a bare JSON
object between two events is one too, since Google reports an error in mid-stream so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from pydantic_core import from_json

from rein_nb.ir.base import JSON, clean_text, loads

Frame: TypeAlias = tuple[str | None, str]
"""An event's name (None when it has none) and its data."""

_BOM = b"\xef\xbb\xbf"


class FrameParser(Protocol):
    """What all parsers here have in common."""

    def feed(self, chunk: bytes) -> Sequence[Frame]:
        """The events that `chunk` completes, in order."""

    def close(self) -> Sequence[Frame]:
        """The bytes are over: what is left that can be read as an event, possibly cut short."""


def parse_event(data: str | bytes) -> JSON | str:
    """An event's data as JSON; as the text it is when it is not JSON (``[DONE]``, an HTML page, a cut document)."""
    try:
        return loads(data)
    except (ValueError, RecursionError):
        return data if isinstance(data, str) else data.decode("utf-8", "replace")


class EventReader:
    r"""Reads the data of one stream's events, in order.

    A server that cuts its text by tokens may cut a character in two and send the halves of its surrogate pair as escapes in two events
    (``"\ud83c"`` and then ``"\udf0a"``). A half at the end of a string waits for the other half at the same place of the next event that has
    a string there; what stays alone becomes U+FFFD.

    Examples
    --------
    >>> reader = EventReader()
    >>> reader.read('{"text": "a\\ud83c"}'), reader.read('{"text": "\\udf0ab"}') == {"text": "\U0001f30ab"}
    ({'text': 'a'}, True)
    """

    __slots__ = ("_halves",)

    def __init__(self) -> None:
        self._halves: dict[tuple[str | int, ...], str] = {}

    def read(self, data: str) -> JSON | str:
        """One event's data: JSON, or the text that it is."""
        if not self._halves:
            try:
                return from_json(data, cache_strings="keys")
            except ValueError:
                pass  # not JSON at all, or JSON with half a character, which the quick parser refuses
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return data
        return self._joined(value, ())

    def _joined(self, value: JSON, at: tuple[str | int, ...]) -> JSON:
        if isinstance(value, str):
            held = self._halves.pop(at, "")
            text = held + value
            if text and "\ud800" <= text[-1] <= "\udbff":
                self._halves[at] = text[-1]
                text = text[:-1]
            return clean_text(text)
        if isinstance(value, dict):
            return {clean_text(key): self._joined(item, (*at, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self._joined(item, (*at, n)) for n, item in enumerate(value)]
        return value


class SSEParser:
    """Server-sent events.

    Examples
    --------
    >>> parser = SSEParser()
    >>> parser.feed(b'data: {"a": 1}\\n\\nevent: ping\\ndata: {')
    [(None, '{"a": 1}')]
    >>> parser.feed(b'}\\n\\n: a comment\\n\\n')
    [('ping', '{}')]
    """

    __slots__ = ("_after_cr", "_clear", "_head", "_pending")

    def __init__(self) -> None:
        self._clear = False  # nothing of all that follows is pending
        self._head: bytes | None = b""  # until the byte order mark was seen or ruled out
        self._after_cr = False
        self._pending: list[bytes] = []  # pieces of an event whose blank line has not come; line ends are LF in them

    def feed(self, chunk: bytes) -> list[Frame]:
        """The events that `chunk` completes, in order."""
        if self._clear and chunk[-2:] == b"\n\n" and b"\r" not in chunk:
            text = chunk[:-2].decode("utf-8", "replace")
            if "\n" not in text and text[:6] == "data: ":
                return [(None, text[6:])]
            return _events(text)
        return self._feed(chunk)

    def _feed(self, chunk: bytes) -> list[Frame]:
        """A feed that starts or ends inside of something."""
        if self._head is not None:
            chunk = self._without_bom(chunk)
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[0] == 10:  # the LF of a CRLF that was cut in two
                chunk = chunk[1:]
        if not chunk:
            return []
        if b"\r" in chunk:
            self._after_cr = chunk[-1] == 13
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        pending = self._pending
        if pending:
            # Pieces are joined once an event is complete, not before: an event in many pieces costs no more than in one.
            if b"\n\n" not in chunk and not (chunk[0] == 10 and pending[-1][-1] == 10):
                pending.append(chunk)
                return []
            pending.append(chunk)
            chunk = b"".join(pending)
            pending.clear()
        end = chunk.rfind(b"\n\n")
        rest = chunk[end + 2 :] if end >= 0 else chunk
        if rest:
            pending.append(rest)
        self._clear = not rest and not self._after_cr and self._head is None
        # A blank line is a character's end, so no character is cut here.
        return _events(chunk[:end].decode("utf-8", "replace")) if end >= 0 else []

    def close(self) -> list[Frame]:
        """The event that the end of the bytes left open, if there is one."""
        if self._head:
            self._pending.append(self._head)
        self._head = None
        tail = b"".join(self._pending)
        self._pending.clear()
        return _events(tail.decode("utf-8", "replace"))

    def _without_bom(self, chunk: bytes) -> bytes:
        head = (self._head or b"") + chunk
        if len(head) < len(_BOM) and _BOM.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BOM)


def _events(text: str) -> list[Frame]:
    """Whole events, parted by blank lines. Nearly all have one of two shapes."""
    out: list[Frame] = []
    for block in text.split("\n\n"):
        if block[:7] == "event: ":
            name, _, data = block.partition("\n")
            if data[:6] == "data: " and "\n" not in data:
                out.append((name[7:] or None, data[6:]))
                continue
        elif block[:6] == "data: " and "\n" not in block:
            out.append((None, block[6:]))
            continue
        _by_lines(block, out)
    return out


def _by_lines(block: str, out: list[Frame]) -> None:
    """The standard's own procedure, for the lines of one event (and blank lines around it)."""
    if block.lstrip()[:1] == "{" and isinstance(parse_event(block), dict):
        out.append((None, block.strip()))
        return
    event = ""
    data: list[str] = []
    for line in (*block.split("\n"), ""):
        if not line:
            if data:
                out.append((event or None, "\n".join(data)))
            event, data = "", []
            continue
        field, _, value = line.partition(":")
        if value[:1] == " ":
            value = value[1:]
        if field == "data":
            data.append(value)
        elif field == "event":
            event = value
        # "id" and "retry" serve reconnecting, which an answer to a POST cannot do; others are to be ignored.


class NDJSONParser:
    """Newline-delimited JSON: one document a line, blank lines ignored.

    Examples
    --------
    >>> NDJSONParser().feed(b'{"a": 1}\\r\\n\\n{"b": 2}\\n{')
    [(None, '{"a": 1}'), (None, '{"b": 2}')]
    """

    __slots__ = ("_partial", "_start")

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._start = True

    def feed(self, chunk: bytes) -> list[Frame]:
        """The lines that `chunk` completes, in order."""
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            if chunk:
                self._partial.append(chunk)
            return []
        whole = b"".join((*self._partial, chunk[:end])) if self._partial else chunk[:end]
        rest = chunk[end:]
        self._partial = [rest] if rest else []
        return self._split(whole)

    def close(self) -> list[Frame]:
        """The last line, when it has no line end."""
        whole = b"".join(self._partial)
        self._partial = []
        return self._split(whole)

    def _split(self, whole: bytes) -> list[Frame]:
        if self._start:
            self._start = False
            whole = whole.removeprefix(_BOM)
        lines = whole.decode("utf-8", "replace").split("\n")
        return [(None, line) for line in (raw.strip() for raw in lines) if line]


class JSONArrayParser:
    """The elements of one JSON array as they arrive; or JSON documents one after another, with any white space between.

    A document that is not an object or an array (a number, a bare word) ends at the next comma, bracket or white space.

    Examples
    --------
    >>> parser = JSONArrayParser()
    >>> parser.feed(b'[{"a": "]"}\\r\\n,')
    [(None, '{"a": "]"}')]
    >>> parser.feed(b'{"b": [1, 2]}]')
    [(None, '{"b": [1, 2]}')]
    """

    __slots__ = ("_array", "_depth", "_escaped", "_in_string", "_pieces", "_scalar", "_start")

    _STRUCTURE = re.compile(rb'["{}\[\]]')
    _IN_STRING = re.compile(rb'["\\]')
    _SPACE = re.compile(rb"[\s,]*")
    _SCALAR_END = re.compile(rb"[\s,\]\[{}]")

    def __init__(self) -> None:
        self._start = True
        self._array = False
        self._depth = 0  # inside the current element
        self._in_string = False
        self._escaped = False
        self._scalar = False
        self._pieces: list[bytes] = []  # of the current element

    def feed(self, chunk: bytes) -> list[Frame]:
        """The elements that `chunk` completes, in order."""
        out: list[Frame] = []
        at, size = 0, len(chunk)
        while at < size:
            if not self._depth and not self._in_string and not self._pieces:
                at = self._between(chunk, at)
                if at >= size:
                    break
            at = self._inside(chunk, at, out)
        return out

    def close(self) -> list[Frame]:
        """The element that the end of the bytes left open, if there is one."""
        out: list[Frame] = []
        if self._pieces:
            self._emit(out)
        self._depth = 0
        self._in_string = False
        return out

    def _between(self, chunk: bytes, at: int) -> int:
        """Skip to an element's first byte, taking the brackets of the outer array on the way."""
        while at < len(chunk):
            space = self._SPACE.match(chunk, at)
            at = space.end() if space else at
            if chunk[at : at + 1] == b"[" and self._start:
                self._start, self._array = False, True
                at += 1
            elif chunk[at : at + 1] == b"]":
                self._array = False
                at += 1
            elif self._start and chunk[at : at + 3] == _BOM:
                at += 3
            else:
                self._start = False
                break
        return at

    def _inside(self, chunk: bytes, at: int, out: list[Frame]) -> int:
        """Take bytes of the current element from `at`; returns where it, or the chunk, ends."""
        begin, size = at, len(chunk)
        if not self._pieces and chunk[at] not in b'{["':
            self._scalar = True
        if self._scalar:
            found = self._SCALAR_END.search(chunk, at)
            end = found.start() if found else size
            stray = end == begin and not self._pieces  # a closing bracket that nothing opened
            self._pieces.append(chunk[begin:end])
            if found:
                self._emit(out)
            return end + 1 if stray else end
        while at < size:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (self._IN_STRING if self._in_string else self._STRUCTURE).search(chunk, at)
            if found is None:
                at = size
                break
            byte = found.group()
            at = found.end()
            if byte == b"\\":
                self._escaped = True
            elif byte == b'"':
                self._in_string = not self._in_string
                if self._in_string or self._depth:
                    continue
                break
            elif byte in b"{[":
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth <= 0:
                    break
        self._pieces.append(chunk[begin:at])
        if not self._depth and not self._in_string:
            self._emit(out)
        return at

    def _emit(self, out: list[Frame]) -> None:
        text = b"".join(self._pieces).decode("utf-8", "replace")
        self._pieces = []
        self._scalar = False
        if text:
            out.append((None, text))


def sniff(head: bytes) -> str:
    """What a body is, by its first bytes: ``json``, ``html``, ``sse``, or ``""`` when white space is all there is yet.

    Servers label event streams as plain text, and errors as event streams, so the label alone decides nothing.
    """
    first = head.removeprefix(_BOM).lstrip()[:1]
    if not first:
        return ""
    if first in b"{[":
        return "json"
    return "html" if first == b"<" else "sse"

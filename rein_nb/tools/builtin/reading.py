"""Reading a file for a model: a range of lines within a size, media as media, anything else binary described."""

from __future__ import annotations

import errno
import os
from typing import IO, Any

from rein_nb.ir import MediaPart, TextPart, ToolCall, ToolResult
from rein_nb.tools.builtin.rooted import NotAFile
from rein_nb.tools.render import sniff

MAX_TEXT = 36_000
"""Characters of one reading, about 9,000 tokens; below the general limit of a result, so that nothing is cut out of its middle."""

MAX_LINES = 2_000
MAX_MEDIA = 20 * 2**20
"""Bytes of an image, sound or PDF that is handed to the model."""

_SNIFF = 8192
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def read_result(call: ToolCall, file: IO[bytes], path: str, start: int, lines: int | None) -> ToolResult:
    """What a model is shown of an open file.

    Parameters
    ----------
    call
        The call that is answered.
    file
        Open for reading, at its beginning.
    path
        As the model gave it.
    start
        First line, from 1.
    lines
        How many lines; None for as many as fit.

    Raises
    ------
    NotAFile
        For media that are too large.
    """
    size = os.fstat(file.fileno()).st_size
    head = file.read(_SNIFF)
    media = sniff(head)
    if media is not None:
        return _media(call, head, file, path, size)
    encoding = next((name for bom, name in _BOMS if head.startswith(bom)), "utf-8")
    if encoding != "utf-16" and b"\0" in head:
        text = f"<{path} is binary: {size:,} bytes, beginning {head[:16].hex(' ')}>"
        return ToolResult(tool_call_id=call.id, content=text, details={"path": path, "size": size, "binary": True})
    file.seek(0)
    if encoding == "utf-16":
        return _text(call, _Utf16Lines(file), path, size, start, lines)
    return _text(call, file, path, size, start, lines)


def _media(call: ToolCall, head: bytes, file: IO[bytes], path: str, size: int) -> ToolResult:
    if size > MAX_MEDIA:
        raise NotAFile(errno.EFBIG, f"is too large to be looked at: {size:,} bytes, at most {MAX_MEDIA:,}", path)
    part = sniff(head + file.read(MAX_MEDIA + 1 - len(head)))
    assert part is not None
    name = path.rpartition("/")[2]
    details = {"path": path, "size": size, "mime_type": part.mime_type}
    content: list[str | TextPart | MediaPart] = [
        f"{path} ({part.mime_type}, {size:,} bytes)",
        part.model_copy(update={"name": name}),
    ]
    return ToolResult(tool_call_id=call.id, content=content, details=details)


class _Utf16Lines:
    """Lines of a UTF-16 file as UTF-8 bytes; such files are small, so it is read whole (up to the media limit)."""

    def __init__(self, file: IO[bytes]) -> None:
        text = file.read(MAX_MEDIA).decode("utf-16", "replace")
        self._lines = iter(text.encode().splitlines(keepends=True))

    def readline(self, limit: int = -1) -> bytes:
        return next(self._lines, b"")[: limit if limit >= 0 else None]


def _text(call: ToolCall, file: Any, path: str, size: int, start: int, lines: int | None) -> ToolResult:
    wanted = min(lines or MAX_LINES, MAX_LINES)
    taken: list[str] = []
    length = 0
    number = 0
    cut = False
    ended = False
    while True:
        line, whole = _line(file)
        if not line:
            ended = True
            break
        number += 1
        if number < start:
            continue
        if len(taken) >= wanted or (taken and length + len(line) > MAX_TEXT):
            break
        text = line.decode("utf-8", "replace")
        text = text.removeprefix("\ufeff") if number == 1 else text
        taken.append(text)
        length += len(text)
        if not whole:
            cut = True
    last = start + len(taken) - 1
    note = ""
    if ended and not taken:
        note = f"[{path} has {number} lines; there is no line {start}]" if number else f"[{path} is empty]"
    elif not ended:
        note = f"\n[lines {start} to {last}; there is more: read on with start={last + 1}]"
    elif start > 1:
        note = f"\n[lines {start} to {last}, the end of the file]"
    if cut:
        note += f"\n[a line longer than {MAX_TEXT:,} characters was cut]"
    details = {"path": path, "size": size, "start": start, "end": last, "complete": ended and start == 1 and not cut}
    return ToolResult(tool_call_id=call.id, content="".join(taken) + note, details=details)


def _line(file: Any) -> tuple[bytes, bool]:
    """(the next line, at most as long as a reading may be; whether that was all of it)."""
    line: bytes = file.readline(MAX_TEXT)
    if line.endswith(b"\n") or len(line) < MAX_TEXT:
        return line, True
    while True:
        rest: bytes = file.readline(1 << 20)
        if not rest or rest.endswith(b"\n"):
            return line + (b"\n" if rest.endswith(b"\n") else b""), False

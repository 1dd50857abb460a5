"""Reading a file for a model: a range of lines within a size, media as media, anything else binary described."""

from __future__ import annotations

import errno
import io
import os
from typing import IO

from rein_nb.ir import MediaPart, TextPart, ToolCall, ToolResult
from rein_nb.tools.builtin.rooted import NotAFile
from rein_nb.tools.render import sniff

MAX_TEXT = 36_000
"""Characters of one reading, about 9,000 tokens; below the general limit of a result, so that nothing is cut out of its middle."""

MAX_LINES = 2_000
MAX_MEDIA = 20 * 2**20
"""Bytes of an image, sound or PDF that is handed to the model."""

_SNIFF = 8192
_BOMS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)


def text_encoding(head: bytes) -> str | None:
    """How a file that begins like this is decoded: as its byte order mark says, else as UTF-8; None when it is no text."""
    encoding = next((name for bom, name in _BOMS if head.startswith(bom)), "utf-8")
    if encoding.startswith("utf-8") and (b"\0" in head or sniff(head) is not None):
        return None
    return encoding


def whole_text(file: IO[bytes], limit: int) -> str | None:
    """All of a text file, decoded as `read_result` does it; None when it is no text.

    Raises
    ------
    NotAFile
        When it has more than `limit` bytes.
    """
    head = file.read(_SNIFF)
    encoding = text_encoding(head)
    if encoding is None:
        return None
    data = head + file.read(limit + 1 - len(head))
    if len(data) > limit:
        raise NotAFile(errno.EFBIG, f"is too large: more than {limit:,} bytes")
    return data.decode(encoding, "replace")


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
    encoding = text_encoding(head)
    if encoding is None:
        text = f"<{path} is binary: {size:,} bytes, beginning {head[:16].hex(' ')}>"
        return ToolResult(tool_call_id=call.id, content=text, details={"path": path, "size": size, "binary": True})
    file.seek(0)
    # Lines end in \n only, as editors and `grep` count them.
    return _text(call, io.TextIOWrapper(file, encoding, errors="replace", newline="\n"), path, size, start, lines)


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


def _text(call: ToolCall, file: IO[str], path: str, size: int, start: int, lines: int | None) -> ToolResult:
    wanted = min(lines or MAX_LINES, MAX_LINES)
    taken: list[str] = []
    length = 0
    number = 0
    cut = False
    ended = False
    while True:
        text, whole = _line(file)
        if not text:
            ended = True
            break
        number += 1
        if number < start:
            continue
        if len(taken) >= wanted or (taken and length + len(text) > MAX_TEXT):
            break
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


def _line(file: IO[str]) -> tuple[str, bool]:
    """(the next line, at most as long as a reading may be; whether that was all of it)."""
    line = file.readline(MAX_TEXT)
    if line.endswith("\n") or len(line) < MAX_TEXT:
        return line, True
    lost = False
    while True:
        rest = file.readline(1 << 20)
        if not rest or rest.endswith("\n"):
            return line + rest[-1:], not lost and len(rest) < 2
        lost = True

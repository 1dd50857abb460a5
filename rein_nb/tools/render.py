"""A tool's Python value as a `ToolResult`: text and media for the model, JSON for programs.

The model gets at most `max_chars` characters; what is longer is cut, visibly, and kept whole in ``details``.
"""

from __future__ import annotations

import io
import json
import traceback
from dataclasses import dataclass
from typing import Any, TypeAlias

from rein_nb.ir import MediaPart, TextPart, ToolCall, ToolResult
from rein_nb.ir.base import clean_text
from rein_nb.tools.jsonable import NotJsonable, frame_data, is_frame, to_jsonable

DEFAULT_MAX_CHARS = 40_000
"""Characters of one result that the model gets, about 10,000 tokens."""

_FRAME_ROWS = 60
_FRAME_CELLS_KEPT = 200_000
_TRACEBACK_CHARS = 20_000

Content: TypeAlias = list[TextPart | MediaPart]

# Magic numbers of what models can look at, from the formats' specifications.
_SIGNATURES: tuple[tuple[bytes, int, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "image", "image/png"),
    (b"\xff\xd8\xff", 0, "image", "image/jpeg"),
    (b"GIF87a", 0, "image", "image/gif"),
    (b"GIF89a", 0, "image", "image/gif"),
    (b"WEBP", 8, "image", "image/webp"),
    (b"%PDF-", 0, "document", "application/pdf"),
    (b"WAVE", 8, "audio", "audio/wav"),
    (b"ID3", 0, "audio", "audio/mpeg"),
)


@dataclass(slots=True)
class Rendered:
    """Content for the model and details for programs."""

    content: Content
    details: Any = None


def render(value: Any) -> Rendered:
    """Content and details of any value that a tool may return, uncut.

    Raises
    ------
    Exception
        Whatever the value's own ``repr`` raises, when that is the only form left.
    """
    if isinstance(value, str):
        return Rendered([TextPart(text=clean_text(str(value)))])
    if value is None:
        return Rendered([TextPart(text="(done; the tool returned nothing)")])
    if isinstance(value, TextPart | MediaPart):
        return Rendered([value])
    if isinstance(value, bytes | bytearray | memoryview):
        return _render_bytes(bytes(value))
    if isinstance(value, BaseException):
        return Rendered([TextPart(text=describe_error(value))], {"error": type(value).__name__})
    picture = _picture(value)
    if picture is not None:
        return Rendered([picture])
    if is_frame(value):
        return _render_frame(value)
    if isinstance(value, list | tuple) and any(
        isinstance(item, TextPart | MediaPart) or _picture_like(item) for item in value
    ):
        return _render_mixed(value)
    return _render_data(value)


def _render_data(value: Any) -> Rendered:
    try:
        data = to_jsonable(value)
    except NotJsonable as why:
        text = clean_text(repr(value))
        return Rendered([TextPart(text=f"{text}\n[shown as text: {why}]")], {"repr": text})
    if isinstance(data, str):
        return Rendered([TextPart(text=data)])
    try:
        text = json.dumps(data, ensure_ascii=False)
    except ValueError as why:  # a number of more digits than Python writes
        return Rendered(
            [TextPart(text=f"[a {type(value).__name__} that cannot be written: {why}]")], {"type": type(value).__name__}
        )
    return Rendered([TextPart(text=text)], data)


def _render_mixed(value: list[Any] | tuple[Any, ...]) -> Rendered:
    content: Content = []
    details: list[Any] = []
    for item in value:
        piece = render(item)
        content.extend(piece.content)
        details.append(piece.details)
    return Rendered(content, details if any(item is not None for item in details) else None)


def _render_bytes(data: bytes) -> Rendered:
    media = sniff(data)
    if media is not None:
        return Rendered([media])
    try:
        return Rendered([TextPart(text=data.decode("utf-8"))])
    except UnicodeDecodeError:
        part = MediaPart(kind="document", data=data)
        text = f"<{len(data):,} bytes of binary data, beginning {data[:16].hex(' ')}>"
        return Rendered([TextPart(text=text)], {"base64": part.base64, "size": len(data)})


def _is_one(data: bytes, magic: bytes) -> bool:
    """Whether bytes whose mark a text may have too are no text: what stands around the mark tells."""
    if magic in (b"WEBP", b"WAVE"):
        return data.startswith(b"RIFF")
    return magic != b"ID3" or (len(data) > 3 and 2 <= data[3] <= 4)  # the version of the tag


def sniff(data: bytes) -> MediaPart | None:
    """An image, PDF or sound by its first bytes; None for anything else."""
    for magic, offset, kind, mime in _SIGNATURES:
        if data[offset : offset + len(magic)] == magic and _is_one(data, magic):
            return MediaPart.model_validate({"kind": kind, "mime_type": mime, "data": data})
    return None


def _picture_like(value: Any) -> bool:
    return (isinstance(value, bytes) and sniff(value) is not None) or _picture_source(value) is not None


def _picture_source(value: Any) -> tuple[Any, str] | None:
    """(object, how to draw it) for figures, axes and images, by duck typing."""
    if isinstance(value, type):
        return None
    if callable(getattr(value, "savefig", None)):
        return value, "savefig"
    figure = getattr(value, "figure", None)
    if figure is not None and callable(getattr(figure, "savefig", None)):
        return figure, "savefig"
    if callable(getattr(value, "_repr_png_", None)):
        return value, "png"
    return None


def _picture(value: Any) -> MediaPart | None:
    source = _picture_source(value)
    if source is None:
        return None
    thing, how = source
    if how == "savefig":
        buffer = io.BytesIO()
        thing.savefig(buffer, format="png", bbox_inches="tight")
        data = buffer.getvalue()
    else:
        data = thing._repr_png_()
        if isinstance(data, tuple):
            data = data[0]
        if not isinstance(data, bytes):
            return None
    return MediaPart(kind="image", mime_type="image/png", data=data)


def _render_frame(value: Any) -> Rendered:
    shape = tuple(value.shape)
    to_string = getattr(value, "to_string", None)
    if callable(to_string):
        options = {"max_cols": 30} if hasattr(value, "columns") else {}
        text = to_string(max_rows=_FRAME_ROWS, **options)
    else:
        text = str(value)
    size = f"[{shape[0]} rows x {shape[1]} columns]" if len(shape) == 2 else f"[{shape[0]} values]"
    cells = shape[0] * (shape[1] if len(shape) == 2 else 1)
    whole = cells <= _FRAME_CELLS_KEPT
    kept = value if whole else value.head(max(1, _FRAME_CELLS_KEPT // max(1, shape[1] if len(shape) == 2 else 1)))
    details = {"shape": list(shape), "complete": whole, **_frame_details(kept)}
    return Rendered([TextPart(text=f"{clean_text(text)}\n{size}")], details)


def _frame_details(value: Any) -> dict[str, Any]:
    try:
        data = to_jsonable(frame_data(value))
    except NotJsonable as why:
        return {"note": f"cells left out: {why}"}
    return data if isinstance(data, dict) else {"data": data}


# -- errors ----------------------------------------------------------------------------------------


def describe_error(exc: BaseException) -> str:
    """``Type: message`` for the model, also when the exception's own text fails."""
    try:
        message = clean_text(str(exc))
    except Exception as inner:
        message = f"(its message could not be read: {type(inner).__name__})"
    name = type(exc).__name__
    return f"{name}: {message}" if message else name


def error_details(exc: BaseException) -> dict[str, Any]:
    """Type, message and the traceback's end, for programs."""
    try:
        trace = clean_text("".join(traceback.format_exception(exc)))
    except Exception as inner:
        trace = f"(no traceback: {type(inner).__name__})"
    return {"error": type(exc).__name__, "message": describe_error(exc), "traceback": trace[-_TRACEBACK_CHARS:]}


# -- cutting ---------------------------------------------------------------------------------------


def cut_text(text: str, max_chars: int) -> str:
    """At most `max_chars` of a text (plus the marker): its head and its tail around a marker that states the full size."""
    if len(text) <= max_chars:
        return text
    tail = max_chars // 4
    head = max_chars - tail
    marker = (
        f"\n[... cut here: the whole result has {len(text):,} characters; the first {head:,} and the last {tail:,} are shown. "
        f"Ask for less at a time (a filter, a range, a page) to see the rest ...]\n"
    )
    return text[:head] + marker + (text[-tail:] if tail else "")


def cut_content(content: Content, max_chars: int) -> tuple[Content, str | None]:
    """(content within `max_chars`, the whole text when something was cut). Media are never cut."""
    size = sum(len(part.text) for part in content if isinstance(part, TextPart))
    if size <= max_chars:
        return content, None
    whole = "".join(part.text for part in content if isinstance(part, TextPart))
    out: Content = []
    left = max_chars
    for part in content:
        if isinstance(part, MediaPart):
            out.append(part)
        elif left > 0:
            out.append(part.model_copy(update={"text": cut_text(part.text, left)}))
            left -= len(part.text)
    return out, whole


def to_result(call: ToolCall, value: Any, max_chars: int) -> ToolResult:
    """The `ToolResult` for a value; a `ToolResult` is taken over, and gets the call's id and name."""
    if isinstance(value, ToolResult):
        content, whole = cut_content(value.content, max_chars)
        update: dict[str, Any] = {"tool_call_id": call.id, "name": value.name or call.name, "content": content}
        if whole is not None and (value.details is None or isinstance(value.details, dict)):
            update["details"] = whole if value.details is None else {"text": whole, **value.details}
        return value.model_copy(update=update)
    rendered = render(value)
    content, whole = cut_content(rendered.content, max_chars)
    details = rendered.details if rendered.details is not None else whole
    failed = isinstance(value, BaseException)
    return ToolResult.model_construct(
        tool_call_id=call.id, name=call.name, content=content, details=details, is_error=failed, status="error" if failed else "ok",
        type="tool_result", extra={},
    )  # fmt: skip

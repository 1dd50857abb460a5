"""A tool's Python value as a `ToolResult`: text and media for the model, JSON for programs.

The model gets at most `max_chars` characters; what is longer is cut, visibly, and kept whole in ``details``.
"""

from __future__ import annotations

import enum
import io
import json
import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from rein_nb.ir import MediaPart, TextPart, ToolCall, ToolResult
from rein_nb.ir.base import clean_text
from rein_nb.tools.errors import describe_error
from rein_nb.tools.frames import frame_data, has, is_array, is_frame, is_mock
from rein_nb.tools.jsonable import NotJsonable, characters, to_jsonable

DEFAULT_MAX_CHARS = 40_000
"""Characters of one result that the model gets, about 10,000 tokens."""

_FRAME_ROWS = 60
_CELLS_KEPT = 200_000

_PLAIN = frozenset({int, float, bool, dict, type(None), str})

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
    """Content for the model and details for programs; `whole` when the details hold everything that the text says."""

    content: Content
    details: Any = None
    whole: bool = False


def render(value: Any) -> Rendered:
    """Content and details of any value that a tool may return, uncut.

    Raises
    ------
    Exception
        Whatever the value's own ``repr`` raises, when that is the only form left.
    """
    if type(value) is str:
        return Rendered([TextPart(text=clean_text(value))])
    if value is None:
        return Rendered([TextPart(text="(done; the tool returned nothing)")])
    if type(value) in _PLAIN:
        return _render_data(value)
    try:
        return _render_other(value)
    except Exception as exc:  # its own code failed where nobody expects it to: its class, its length, its parts
        return _render_repr(value, f"it cannot be read: {describe_error(exc)}")


def _render_other(value: Any) -> Rendered:
    if is_mock(value):
        return _render_repr(value, "a mock has no JSON form")
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        return Rendered([TextPart(text=clean_text(characters(value)))])
    if isinstance(value, TextPart | MediaPart):
        return Rendered([value])
    if isinstance(value, bytes | bytearray | memoryview):
        return _render_bytes(bytes(value))
    if isinstance(value, BaseException):
        return Rendered([TextPart(text=describe_error(value))], {"error": type(value).__name__})
    source = _picture_source(value)
    if source is not None:
        try:
            return Rendered([_drawn(*source)])
        except Exception as exc:
            return _render_repr(value, f"drawing it failed: {describe_error(exc)}")
    if is_frame(value):
        try:
            return _render_frame(value)
        except Exception as exc:  # it only looked like one
            return _render_repr(value, f"its cells cannot be read: {describe_error(exc)}")
    if is_array(value) and getattr(value, "size", 0) > _CELLS_KEPT:
        return _render_large_array(value)
    if isinstance(value, list | tuple) and any(
        isinstance(item, TextPart | MediaPart) or _picture_like(item) for item in value if type(item) not in _PLAIN
    ):
        return _render_mixed(value)
    return _render_data(value)


def _render_data(value: Any) -> Rendered:
    try:
        data = to_jsonable(value)
    except NotJsonable as why:
        return _render_repr(value, str(why))
    except Exception as exc:  # its own code, that was to hand out what it holds
        return _render_repr(value, f"its parts cannot be read: {describe_error(exc)}")
    if isinstance(value, int) and isinstance(data, str):
        text = f"[a number that cannot be written: it has about {value.bit_length() * 0.30103:,.0f} digits]"
        return Rendered([TextPart(text=text)], {"hex": data}, whole=True)
    if isinstance(data, str):
        return Rendered([TextPart(text=data)])
    return Rendered([TextPart(text=json.dumps(data, ensure_ascii=False))], data, whole=True)


def _render_repr(value: Any, why: str) -> Rendered:
    try:
        text = clean_text(repr(value))
    except RecursionError:
        text = f"<{type(value).__name__} that is nested too deep for its repr>"
    return Rendered([TextPart(text=f"{text}\n[shown as text: {why}]")], {"repr": text}, whole=True)


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
    return (isinstance(value, bytes | bytearray) and sniff(bytes(value)) is not None) or _picture_source(
        value
    ) is not None


def _picture_source(value: Any) -> tuple[Any, str] | None:
    """(object, method that draws it) for figures, axes and images, by duck typing."""
    if isinstance(value, type):
        return None
    if has(value, "savefig"):
        return value, "savefig"
    if has(value, "get_figure"):  # an axes; `figure` alone is any object's attribute
        try:
            figure = value.get_figure()
        except Exception:
            return None
        if has(figure, "savefig"):
            return figure, "savefig"
    return (value, "_repr_png_") if has(value, "_repr_png_") else None


def _drawn(thing: Any, method: str) -> MediaPart:
    """A picture by one of its object's methods; raises what that raises."""
    if method == "savefig":
        buffer = io.BytesIO()
        thing.savefig(buffer, format="png", bbox_inches="tight")
        data: Any = buffer.getvalue()
    else:
        data = thing._repr_png_()
        if isinstance(data, tuple):
            data = data[0]
    if not isinstance(data, bytes):
        raise TypeError(f"{method} gave {type(data).__name__} and no bytes")
    return MediaPart(kind="image", mime_type="image/png", data=data)


def _render_frame(value: Any) -> Rendered:
    shape = tuple(value.shape)
    to_string = getattr(value, "to_string", None)
    if callable(to_string):
        options = {"max_cols": 30} if hasattr(type(value), "columns") else {}
        text = to_string(max_rows=_FRAME_ROWS, **options)
    else:
        text = str(value)
    size = f"[{shape[0]} rows x {shape[1]} columns]" if len(shape) == 2 else f"[{shape[0]} values]"
    cells = shape[0] * (shape[1] if len(shape) == 2 else 1)
    whole = cells <= _CELLS_KEPT
    kept = value if whole else value.head(max(1, _CELLS_KEPT // max(1, shape[1] if len(shape) == 2 else 1)))
    cells_kept = to_jsonable(frame_data(kept), others_as_text=True)
    details = {
        "shape": list(shape),
        "complete": whole,
        **(cells_kept if isinstance(cells_kept, dict) else {"data": cells_kept}),
    }
    return Rendered([TextPart(text=f"{clean_text(text)}\n{size}")], details, whole=True)


def _render_large_array(value: Any) -> Rendered:
    """An array in its own short form; its first rows are kept, as many as of a frame."""
    shape = [int(length) for length in value.shape]
    rows = _CELLS_KEPT // max(1, math.prod(shape[1:]))
    details = {
        "shape": shape,
        "dtype": str(value.dtype),
        "complete": False,
        "data": to_jsonable(value[:rows], others_as_text=True),
    }
    return Rendered(
        [TextPart(text=f"{clean_text(repr(value))}\n[{' x '.join(map(str, shape))} values]")], details, whole=True
    )


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


def with_whole_text(details: Any, whole: str) -> Any:
    """Details that keep a text which was cut for the model: alone, or as ``whole_text`` beside what there is."""
    if details is None:
        return whole
    if isinstance(details, str) and len(details) >= len(whole):  # it was kept already
        return details
    if isinstance(details, dict):
        return {"whole_text": whole, **details}
    return {"whole_text": whole, "details": details}


def to_result(call: ToolCall, value: Any, max_chars: int) -> ToolResult:
    """The `ToolResult` for a value; a `ToolResult` is taken over, and gets the call's id and name."""
    if issubclass(type(value), ToolResult):
        content, whole = cut_content(value.content, max_chars)
        details = to_jsonable(value.details, others_as_text=True)
        made: ToolResult = value.model_copy(
            update={
                "tool_call_id": call.id, "name": value.name or call.name, "content": content,
                "details": details if whole is None else with_whole_text(details, whole),
            }
        )  # fmt: skip
        return made
    rendered = render(value)
    content, whole = cut_content(rendered.content, max_chars)
    details = rendered.details if whole is None or rendered.whole else with_whole_text(rendered.details, whole)
    failed = issubclass(type(value), BaseException)
    return ToolResult.model_construct(
        tool_call_id=call.id, name=call.name, content=content, details=details, is_error=failed, status="error" if failed else "ok",
        type="tool_result", extra={},
    )  # fmt: skip

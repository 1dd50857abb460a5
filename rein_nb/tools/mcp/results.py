"""A server's answer as a `ToolResult`: text and media for the model, structured content and all that has no other place for programs.

The answer is read as the server sent it: what breaks the protocol's schema is shown as it is, not refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Literal, TypeAlias

from rein_nb.ir import MediaPart, TextPart, ToolCall, ToolResult
from rein_nb.ir.base import clean_json, clean_text
from rein_nb.tools.render import sniff

Kind: TypeAlias = Literal["image", "audio", "video", "document"]

_SHOWN_CHARS = 2_000
"""Characters of a block of an unknown kind that the model gets; `details` has all."""

_ABOUT_SERVER = "io.modelcontextprotocol/serverInfo"
"""Newer servers put their name and version into every answer; the connection knows them."""

_KNOWN = frozenset({"content", "structuredContent", "isError", "_meta", "resultType"})


def to_tool_result(call: ToolCall, sent: dict[str, Any], server: str, tool: str) -> ToolResult:
    """Convert the result of ``tools/call``, as it came.

    `details` holds ``server``, ``tool`` (its own name there), ``structured`` (structured content, where there is any), ``resources`` (the
    URIs that were named), ``meta`` (what the server says of the answer), ``blocks`` (the content blocks of which something is not in the
    content, each with its ``index``) and ``other`` (fields that the protocol does not know).
    """
    details: dict[str, Any] = {"server": server, "tool": tool}
    content: list[str | TextPart | MediaPart] = []
    resources: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    given = sent.get("content")
    for index, block in enumerate(given if isinstance(given, list) else [] if given is None else [given]):
        part, rest = _part(block, resources)
        content.append(part)
        if rest:
            blocks.append({"index": index, **rest})
    structured = sent.get("structuredContent")
    if not content and structured is not None:
        content.append(_json(structured))
    if not content:
        content.append("(done; the tool returned nothing)")
    other = {key: value for key, value in sent.items() if key not in _KNOWN}
    meta = (
        {key: value for key, value in sent["_meta"].items() if key != _ABOUT_SERVER}
        if isinstance(sent.get("_meta"), dict)
        else None
    )
    kept = {
        "structured": structured, "resources": resources or None, "meta": meta or None, "blocks": blocks or None,
        "other": other or None,
    }  # fmt: skip
    details |= {key: value for key, value in kept.items() if value is not None}
    try:
        details = clean_json(details)
    except RecursionError:
        details = {"server": server, "tool": tool, "note": "what the server sent is nested too deep to be kept"}
    return ToolResult(tool_call_id=call.id, content=content, details=details, is_error=bool(sent.get("isError")))


def _part(block: Any, resources: list[dict[str, Any]]) -> tuple[TextPart | MediaPart, dict[str, Any]]:
    """(what the model gets of a block, what of it is not in that)."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text" and isinstance(block.get("text"), str):
        return TextPart(text=clean_text(block["text"])), _rest(block, "type", "text")
    if kind in ("image", "audio") and isinstance(block.get("data"), str):
        part = _media(block["data"], _mime(block), kind)
        if isinstance(part, MediaPart):
            return part, _rest(
                block, "type", "data", *(("mimeType",) if part.mime_type == block.get("mimeType") else ())
            )
        return part, block
    if kind == "resource_link" and block.get("uri") is not None:
        uri, name = block["uri"], block.get("name")
        resources.append({"uri": str(uri), "name": name, "mime_type": block.get("mimeType")})
        about = f": {block['description']}" if block.get("description") else ""
        text = TextPart(text=clean_text(f"[resource {name} at {uri}{about}]"))
        return text, _rest(block, "type", "uri", "name", "mimeType", "description")
    if kind == "resource" and isinstance(block.get("resource"), dict) and block["resource"].get("uri") is not None:
        return _resource(block, resources)
    shown = block if isinstance(block, str) else _json(block)
    cut = "" if len(shown) <= _SHOWN_CHARS else " [...]"
    words = f"[content of the unknown type {kind!r}] " if isinstance(kind, str) else ""
    return TextPart(text=clean_text(f"{words}{shown[:_SHOWN_CHARS]}{cut}")), block if isinstance(block, dict) else {
        "sent": block
    }


def _resource(block: dict[str, Any], resources: list[dict[str, Any]]) -> tuple[TextPart | MediaPart, dict[str, Any]]:
    inner = block["resource"]
    uri, mime = inner["uri"], inner.get("mimeType")
    resources.append({"uri": str(uri), "mime_type": mime})
    rest, inner_rest = _rest(block, "type", "resource"), _rest(inner, "uri", "mimeType", "text", "blob")
    part: TextPart | MediaPart
    if isinstance(inner.get("text"), str):
        part = TextPart(text=clean_text(f"[resource {uri}]\n{inner['text']}"))
    elif isinstance(inner.get("blob"), str):
        mime = _mime(inner)
        family = mime.partition("/")[0]
        blob: str = inner["blob"]
        part = TextPart(text=clean_text(f"[resource {uri}: about {len(blob) * 3 // 4:,} bytes of {mime}]"))
        if family in ("image", "audio", "video") or mime == "application/pdf":
            part = _media(blob, mime, family if family != "application" else "document")
        if isinstance(part, TextPart):
            inner_rest["blob"] = blob
    else:
        part = TextPart(text=clean_text(f"[resource {uri}, without its content]"))
    if inner_rest:
        rest["resource"] = inner_rest
    return part, rest


def _rest(block: dict[str, Any], *said: str) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in said}


def _mime(block: dict[str, Any]) -> str:
    mime = block.get("mimeType")
    return mime.strip().lower() if isinstance(mime, str) and mime.strip() else "application/octet-stream"


def _media(data: str, mime: str, family: str) -> TextPart | MediaPart:
    """Media that a provider may be shown: a request with data of another kind than it says would be refused, now and at every later turn."""
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError) as exc:
        return TextPart(text=clean_text(f"[{mime} data that is not base64 was left out: {exc}]"))
    if not raw:
        return TextPart(text=clean_text(f"[{family} without data]"))
    found = sniff(raw)
    if found is not None and found.kind == family:
        return found
    kinds: dict[str, Kind] = {"image": "image", "audio": "audio", "video": "video"}
    if family in kinds and not mime.startswith(f"{family}/"):
        return TextPart(text=clean_text(f"[{family} data of the type {mime} was left out: {len(raw):,} bytes]"))
    return MediaPart(kind=kinds.get(family, "document"), mime_type=mime, data=raw)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError) as exc:
        return f"[data that cannot be written: {type(exc).__name__}]"

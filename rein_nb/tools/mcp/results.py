"""A server's answer as a `ToolResult`: text and media for the model, structured content for programs."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Literal, TypeAlias

from rein_nb.ir import MediaPart, TextPart, ToolCall, ToolResult
from rein_nb.ir.base import clean_json, clean_text

Kind: TypeAlias = Literal["image", "audio", "video", "document"]


def to_tool_result(call: ToolCall, answer: Any, server: str, tool: str) -> ToolResult:
    """Convert a ``CallToolResult``.

    `details` holds ``server``, ``tool`` (its own name there), ``structured`` (structured content, where there is any) and
    ``resources`` (the URIs that were named).
    """
    content: list[str | TextPart | MediaPart] = []
    resources: list[dict[str, Any]] = []
    for block in answer.content:
        content.append(_part(block, resources))
    structured = answer.structured_content
    if not content and structured is not None:
        content.append(json.dumps(structured, ensure_ascii=False))
    if not content:
        content.append("(done; the tool returned nothing)")
    details: dict[str, Any] = {"server": server, "tool": tool}
    if structured is not None:
        details["structured"] = structured
    if resources:
        details["resources"] = resources
    return ToolResult(
        tool_call_id=call.id, content=content, details=clean_json(details), is_error=bool(answer.is_error)
    )


def _part(block: Any, resources: list[dict[str, Any]]) -> TextPart | MediaPart:
    if block.type == "text":
        return TextPart(text=clean_text(block.text))
    if block.type in ("image", "audio"):
        return _media(block.data, block.mime_type, block.type)
    if block.type == "resource_link":
        resources.append({"uri": str(block.uri), "name": block.name, "mime_type": block.mime_type})
        about = f": {block.description}" if block.description else ""
        return TextPart(text=f"[resource {block.name} at {block.uri}{about}]")
    if block.type == "resource":
        return _resource(block.resource, resources)
    return TextPart(text=f"[content of the unknown type {block.type!r} was left out]")


def _resource(resource: Any, resources: list[dict[str, Any]]) -> TextPart | MediaPart:
    resources.append({"uri": str(resource.uri), "mime_type": resource.mime_type})
    text = getattr(resource, "text", None)
    if text is not None:
        return TextPart(text=f"[resource {resource.uri}]\n{clean_text(text)}")
    mime = resource.mime_type or "application/octet-stream"
    family = mime.partition("/")[0]
    if family in ("image", "audio", "video") or mime == "application/pdf":
        return _media(resource.blob, mime, family if family != "application" else "document")
    size = len(resource.blob) * 3 // 4
    return TextPart(text=f"[resource {resource.uri}: about {size:,} bytes of {mime}]")


def _media(data: str, mime: str, family: str) -> TextPart | MediaPart:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as exc:
        return TextPart(text=f"[{mime} data that is not base64 was left out: {exc}]")
    kinds: dict[str, Kind] = {"image": "image", "audio": "audio", "video": "video"}
    return MediaPart(kind=kinds.get(family, "document"), mime_type=mime, data=raw)

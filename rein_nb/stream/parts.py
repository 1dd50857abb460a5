"""From what a part's deltas said to the part: one builder a kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rein_nb.ir import deltas as d
from rein_nb.ir.base import Extra, merge_extra
from rein_nb.ir.parts import (
    MediaPart,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
)


def _text_part(text: str, others: list[Any], extra: Extra) -> TextPart | None:
    citations = [item.citation for item in others if type(item) is d.Cite]
    if not text and not citations and not extra:
        return None
    return TextPart(text=text, citations=citations, extra=extra)


def _thinking_part(text: str, others: list[Any], extra: Extra) -> ThinkingPart:
    signature = opaque = None
    redacted = False
    for item in others:
        if type(item) is d.Signature:
            signature = item.signature if item.signature is not None else signature
            opaque = item.opaque if item.opaque is not None else opaque
            redacted = redacted or item.redacted
    return ThinkingPart(text=text, signature=signature, opaque=opaque, redacted=redacted, extra=extra)


def _refusal_part(text: str, _: list[Any], extra: Extra) -> RefusalPart:
    return RefusalPart(text=text, extra=extra)


def _tool_call_part(text: str, others: list[Any], extra: Extra) -> ToolCall:
    id = name = ""
    arguments: Any = text
    for item in others:
        if type(item) is d.ToolOpen:
            id = id or item.id or ""
            name = name or item.name or ""
        elif type(item) is d.ToolArgsObject:
            arguments = item.arguments
    return ToolCall(id=id, name=name, arguments=arguments, extra=extra)


def _media_part(_: str, others: list[Any], extra: Extra) -> MediaPart | None:
    media = next((item.media for item in reversed(others) if type(item) is d.Media), None)
    if media is None or not extra:
        return media
    return media.model_copy(update={"extra": merge_extra(media.extra, extra)})


def _server_tool_part(text: str, others: list[Any], extra: Extra) -> ServerToolPart:
    fields: dict[str, Any] = {}
    for item in others:
        if type(item) is d.ServerTool:
            for name in ("id", "name", "input", "output", "payload"):
                value = getattr(item, name)
                if value is not None:
                    fields[name] = value
    if text:
        call = ToolCall(arguments=text)
        fields["input"] = call.arguments if call.error is None else text
    return ServerToolPart(**fields, extra=extra)


BUILDERS: dict[str, Callable[[str, list[Any], Extra], Any]] = {
    "text": _text_part,
    "thinking": _thinking_part,
    "refusal": _refusal_part,
    "tool_call": _tool_call_part,
    "media": _media_part,
    "server_tool": _server_tool_part,
}
"""Builder by kind: (text, other items, extra) -> part, or None when there is nothing."""

"""Messages in the shape of the GenAI conventions (gen-ai-input-messages.json, gen-ai-output-messages.json), for spans that record content."""

from __future__ import annotations

import json
from typing import Any

from rein_nb.ir import (
    MediaPart,
    Message,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    redact,
)
from rein_nb.ir.base import clean_text

# The schema's words, where they differ from ours.
_FINISH = {"tool_calls": "tool_call", "refusal": "content_filter", "cancelled": "error", "other": "stop"}


def json_text(value: Any) -> str:
    """An attribute's text: JSON with secrets masked, or a note in the place of what is none. Never raises."""
    try:
        return clean_text(json.dumps(redact(value), ensure_ascii=False, default=str))
    except Exception as exc:  # a number of thousands of digits, what holds itself, a tool's own objects
        return json.dumps(f"({type(value).__name__} that is no JSON: {type(exc).__name__})")


def system_json(system: str) -> list[dict[str, Any]]:
    """The system prompt as the conventions' list of parts."""
    return [{"type": "text", "content": system}]


def message_json(message: Message, finish_reason: str | None = None) -> dict[str, Any]:
    """One message; with a finish reason it is an output message. Media are named, never included."""
    out: dict[str, Any] = {"role": message.role, "parts": [_part(part) for part in message.parts]}
    if finish_reason is not None:
        out["finish_reason"] = _FINISH.get(finish_reason, finish_reason)
    return out


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, TextPart | RefusalPart):
        return {"type": "text", "content": part.text}
    if isinstance(part, ThinkingPart):
        return {"type": "reasoning", "content": part.text}
    if isinstance(part, ToolCall):
        arguments = part.arguments if part.error is None else part.raw_arguments
        return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": arguments}
    if isinstance(part, ToolResult):
        return {"type": "tool_call_response", "id": part.tool_call_id, "response": part.text}
    if isinstance(part, MediaPart):
        return {"type": "rein_nb.media", "modality": part.kind, "mime_type": part.mime_type}
    if isinstance(part, ServerToolPart):
        details = {"type": part.name, "input": part.input, "output": part.output}
        return {"type": "server_tool_call", "id": part.id, "name": part.name, "server_tool_call": details}
    return {"type": str(getattr(part, "type", "unknown"))}

"""Single parts and messages as a hand-off needs them: cleaned, stripped of what is another provider's, made where they are missing."""

from __future__ import annotations

from operator import is_
from typing import Any, Literal, TypeAlias

from rein_nb.ir import Message, Origin, TextPart, ThinkingPart, ToolCall, ToolResult
from rein_nb.ir.base import JSON, Extra, clean_json, clean_text

INTERRUPTED = (
    "[No result: the call was interrupted. It may have run, in whole or in part; its effect is unknown. "
    "Check before repeating it.]"
)
"""What the model reads as the result of a call that has none."""

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]

_LASTING_EXTRA = ("cache_control", "synthetic_id")
"""Keys of a part's `extra` that outlive a change of model: what a caller set, and that a call's id was not the provider's."""


def new_message(role: Role, parts: list[Any], origin: Origin | None = None, extra: Extra | None = None) -> Message:
    """A message of parts that are known to be sound."""
    return Message.model_construct(role=role, parts=parts, origin=origin, extra=extra or {})


def same_objects(a: list[Any], b: list[Any]) -> bool:
    """Whether two lists hold the very same objects."""
    return len(a) == len(b) and all(map(is_, a, b))


def made_result(call: ToolCall, wire_id: str, name: str) -> ToolResult:
    """The result of a call that has none: it did not run, or nobody knows whether it did."""
    if call.error is not None:
        raw = clean_text(call.raw_arguments or "")
        shown = f" They began: {raw[:200]}" if raw else ""
        text = f"[Not run: {clean_text(call.error)}.{shown}]"
        return ToolResult(tool_call_id=wire_id, name=name, content=text, status="error")
    if not call.name:
        return ToolResult(tool_call_id=wire_id, name=name, content="[Not run: the call names no tool.]", status="error")
    return ToolResult(tool_call_id=wire_id, name=name, content=INTERRUPTED, status="interrupted")


def sendable(text: str) -> bool:
    """Whether a string has no unpaired surrogate."""
    return clean_text(text) == text


def cleaned(part: Any) -> Any:
    """A text-like part without unpaired surrogates: itself where it has none."""
    if type(part) not in (TextPart, ThinkingPart):
        return part
    text = part.text
    if text.isascii() or (clean := clean_text(text)) == text:
        return part
    return part.model_copy(update={"text": clean})


def clean_arguments(value: JSON) -> JSON:
    """`clean_json` of a call's arguments, but the same object where nothing has to be changed."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if not item.isascii() and clean_text(item) != item:
                return clean_json(value)
        elif isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return value


def plain_text(part: TextPart) -> TextPart:
    """Text of another origin: without its provider's own data; citations keep what is common to all."""
    if not part.extra and not any(citation.extra for citation in part.citations):
        return part
    citations = [c.model_copy(update={"extra": {}}) if c.extra else c for c in part.citations]
    return part.model_copy(update={"extra": lasting_extra(part.extra), "citations": citations})


def lasting_extra(extra: Extra) -> Extra:
    """What of a part's `extra` goes along to another model."""
    kept = {ns: {key: values[key] for key in _LASTING_EXTRA if key in values} for ns, values in extra.items()}
    return {ns: values for ns, values in kept.items() if values}


def who(message: Message) -> str:
    """Who made a message, for a warning."""
    origin = message.origin
    if origin is None or origin.provider is None:
        return "an unknown origin"
    return "/".join(name for name in (origin.provider, origin.model) if name)

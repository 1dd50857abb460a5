"""A handed-off history as Google's ``systemInstruction`` and ``contents``."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Sequence
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.dialects.google_decode import NAMESPACE
from rein_nb.dialects.handoff_rules import same_service
from rein_nb.ir import (
    InvalidRequest,
    MediaPart,
    Message,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)

UNSIGNED = "skip_thought_signature_validator"
"""What Gemini 3 accepts in place of the signature of a call that another model made
(https://ai.google.dev/gemini-api/docs/thought-signatures)."""

_NEEDS_SIGNATURES = re.compile(r"gemini-(?:[3-9]|\d\d)|gemini-(?:pro|flash|flash-lite)-latest")
_FILE = re.compile(r"^files/[a-z0-9-]+$")
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF", "application/pdf"),
    (b"ID3", "audio/mp3"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
)

Part = dict[str, Any]


def system_parts(messages: Sequence[Message]) -> tuple[list[Part], Sequence[Message]]:
    """The leading system messages as parts, and the messages after them."""
    parts: list[Part] = []
    for n, message in enumerate(messages):
        if message.role not in ("system", "developer"):
            return parts, messages[n:]
        parts += [{"text": part.text} for part in message.parts if isinstance(part, TextPart)]
    return parts, ()


def contents(messages: Sequence[Message], target: Target) -> list[Part]:
    """``contents``: neighbours of one role are joined, but results keep a content of their own, right after their calls."""
    out: list[Part] = []
    issued: set[str] = set()
    signed = _NEEDS_SIGNATURES.search(target.model) is not None
    for message in messages:
        if message.role == "assistant":
            _append(out, "model", _model_parts(message, target, issued, signed))
        elif message.role == "tool":
            parts = [_response(part, issued) for part in message.parts if isinstance(part, ToolResult)]
            out.append({"role": "user", "parts": parts})
        elif message.role == "user":
            _append(out, "user", [wire for part in message.parts if (wire := _user_part(part))])
        else:
            marked = [
                {"text": f"<system>\n{part.text}\n</system>"} for part in message.parts if isinstance(part, TextPart)
            ]
            _append(out, "user", marked)
    return out


def _append(out: list[Part], role: str, parts: list[Part]) -> None:
    if not parts:
        return
    if out and out[-1]["role"] == role and not any("functionResponse" in part for part in out[-1]["parts"]):
        out[-1]["parts"].extend(parts)
    else:
        out.append({"role": role, "parts": parts})


# -- the model's parts --------------------------------------------------------------------------------


def _model_parts(message: Message, target: Target, issued: set[str], signed: bool) -> list[Part]:
    own = same_service(message.origin, target)
    parts: list[Part] = []
    first_call = True
    for part in message.parts:
        wire = _model_part(part, own, issued)
        if wire is None:
            continue
        if "functionCall" in wire:
            # The first call of a step must be signed; those beside it carry none.
            if first_call and signed and "thoughtSignature" not in wire:
                wire["thoughtSignature"] = UNSIGNED
            first_call = False
        parts.append(wire)
    return parts


def _model_part(part: Any, own: bool, issued: set[str]) -> Part | None:
    state = part.extra.get(NAMESPACE, {})
    wire: Part
    if isinstance(part, TextPart):
        wire = {"text": part.text}
    elif isinstance(part, ThinkingPart):
        wire = {"text": part.text, "thought": True}
        if part.signature is not None:
            wire["thoughtSignature"] = part.signature
    elif isinstance(part, ToolCall):
        call: Part = {"name": part.name, "args": part.arguments}
        if own and not state.get("synthetic_id"):
            call["id"] = part.id
            issued.add(part.id)
        wire = {"functionCall": call}
    elif isinstance(part, ServerToolPart):
        return part.payload
    elif isinstance(part, MediaPart):
        wire = media_part(part)
    else:
        return None
    wire.update(state.get("beside", {}))
    if "thought_signature" in state:
        wire["thoughtSignature"] = state["thought_signature"]
    return wire


def _response(result: ToolResult, issued: set[str]) -> Part:
    """Ids go back only to an API that issued them (C057)."""
    response: Part = {"name": result.name or "", "response": {"error" if result.is_error else "output": result.text}}
    if result.tool_call_id in issued:
        response["id"] = result.tool_call_id
    return {"functionResponse": response}


# -- the user's parts ---------------------------------------------------------------------------------


def _user_part(part: Any) -> Part:
    if isinstance(part, ServerToolPart):
        return part.payload or {}
    wire = media_part(part) if isinstance(part, MediaPart) else {"text": part.text}
    return {**wire, **part.extra.get(NAMESPACE, {}).get("beside", {})}


def media_part(part: MediaPart) -> Part:
    """``inlineData`` or ``fileData``.

    Raises
    ------
    InvalidRequest
        When inline media says nothing about its type.
    """
    if part.url is not None and part.url.startswith("data:"):
        head, _, data = part.url[5:].partition(",")
        if not head.endswith(";base64"):
            raise InvalidRequest("a data: URL of media must be base64")
        return {"inlineData": {"mimeType": head.removesuffix(";base64").split(";")[0], "data": data}}
    mime = part.mime_type or _guess(part)
    if part.data is not None:
        if mime is None:
            raise InvalidRequest(f"an inline {part.kind} needs a mime_type, for example 'image/png'")
        inline: Part = {"mimeType": mime, "data": base64.b64encode(part.data).decode("ascii")}
        return {"inlineData": inline}
    uri = part.url if part.url is not None else part.file_id or ""
    if _FILE.match(uri):
        uri = f"https://generativelanguage.googleapis.com/v1beta/{uri}"
    return {"fileData": {"fileUri": uri, **({"mimeType": mime} if mime else {})}}


def _guess(part: MediaPart) -> str | None:
    data = part.data or b""
    for magic, mime in _MAGIC:
        if data.startswith(magic):
            return mime
    if data[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/avi"}.get(data[8:12])
    if data[4:8] == b"ftyp":
        return "video/mp4"
    return mimetypes.guess_type(part.name or (part.url or "").split("?")[0])[0]

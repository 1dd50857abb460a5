"""Recorded requests as neutral histories.

What a model said is read by the dialect's own decoder, as the answer that it once was; what users and tools said is read here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from rein_nb.dialects.base import Codec, Target, decode
from rein_nb.ir import MediaPart, Message, TextPart, ToolCall, ToolResult
from rein_nb.providers.codecs import codec_for
from tests.support import load_recording, recordings

FOLDERS = (
    "openai-chat",
    "openai-compatible",
    "openai-responses",
    "anthropic",
    "deepseek",
    "google",
    "google-code-assist",
)
MADE = ("_call", "reasoning", "mcp_list_tools", "compaction")


def load(body: dict[str, Any], target: Target) -> list[Message]:
    """The history in a request body."""
    reader = {
        "openai-chat": _chat,
        "openai-responses": _responses,
        "anthropic": _anthropic,
        "google": _google,
        "google-code-assist": _google,
    }[target.dialect]
    return [message for message in reader(body, target) if message.parts]


def _said(response: Any, target: Target) -> Message:
    codec: Codec = codec_for("google" if target.dialect == "google-code-assist" else target.dialect)
    return decode(codec, response, target).message


def _chat(body: dict[str, Any], target: Target) -> Iterator[Message]:
    for wire in body["messages"]:
        role = wire["role"]
        if role == "assistant":
            yield _said({"choices": [{"index": 0, "message": wire, "finish_reason": "stop"}]}, target)
        elif role == "tool":
            yield Message(role="tool", parts=[_result(wire.get("tool_call_id") or "", wire.get("content"))])
        elif role == "function":
            yield Message(role="user", content=str(wire.get("content")))
        else:
            yield Message(role=role, content=list(_parts(wire.get("content"))))


def _responses(body: dict[str, Any], target: Target) -> Iterator[Message]:
    if body.get("instructions"):
        yield Message(role="system", content=body["instructions"])
    items = body.get("input")
    if isinstance(items, str):
        yield Message(role="user", content=items)
        return
    output: list[Any] = []
    for item in items or []:
        kind = item.get("type", "message")
        if kind.endswith(MADE) or (kind == "message" and item.get("role") == "assistant"):
            if isinstance(item.get("content"), str):
                item = {
                    **item,
                    "type": "message",
                    "content": [{"type": "output_text", "text": item["content"], "annotations": []}],
                }
            output.append(item)
            continue
        if output:
            yield _said({"id": "r", "status": "completed", "output": output}, target)
            output = []
        if kind.endswith("_call_output"):
            yield Message(role="tool", parts=[_result(item["call_id"], item.get("output"))])
        elif kind == "message":
            yield Message(role=item["role"], content=list(_parts(item.get("content"))))
    if output:
        yield _said({"id": "r", "status": "completed", "output": output}, target)


def _anthropic(body: dict[str, Any], target: Target) -> Iterator[Message]:
    if body.get("system"):
        yield Message(role="system", content=list(_parts(body["system"])))
    for wire in body["messages"]:
        content = wire["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if wire["role"] == "assistant":
            yield _said({"type": "message", "role": "assistant", "content": blocks, "stop_reason": "end_turn"}, target)
            continue
        results = [
            _result(b["tool_use_id"], b.get("content"), b.get("is_error", False))
            for b in blocks
            if b.get("type") == "tool_result"
        ]
        yield Message(role="user", parts=[*results, *_parts([b for b in blocks if b.get("type") != "tool_result"])])


def _google(body: dict[str, Any], target: Target) -> Iterator[Message]:
    body = body.get("request", body)
    system = body.get("systemInstruction")
    if system:
        yield Message(role="system", content=list(_parts(system["parts"])))
    contents = body["contents"]
    waiting: list[ToolCall] = []
    for content in contents if isinstance(contents, list) else [contents]:
        parts = [_camel(part) for part in content.get("parts", [])]
        if content.get("role") == "model":
            said = _said(
                {
                    "candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}],
                    "responseId": str(len(waiting)),
                },
                target,
            )
            waiting += said.tool_calls
            yield said
            continue
        out: list[Any] = []
        for part in parts:
            response = part.get("functionResponse")
            if response is not None:
                call = next((c for c in waiting if c.name == response["name"]), None)
                if call is not None:
                    waiting.remove(call)
                out.append(
                    ToolResult(tool_call_id=call.id if call else "lost", content=json.dumps(response["response"]))
                )
            elif part.get("text"):
                out.append(TextPart(text=part["text"]))
            elif "inlineData" in part:
                data = _camel(part["inlineData"])
                out.append(MediaPart(kind=_kind(data["mimeType"]), mime_type=data["mimeType"], data=data["data"]))
            elif "fileData" in part:
                data = _camel(part["fileData"])
                out.append(
                    MediaPart(kind=_kind(data.get("mimeType", "")), mime_type=data.get("mimeType"), url=data["fileUri"])
                )
        yield Message(role="user", parts=out)


def _camel(part: dict[str, Any]) -> dict[str, Any]:
    def name(key: str) -> str:
        head, *rest = key.split("_")
        return head + "".join(word.title() for word in rest)

    return {name(key): value for key, value in part.items()}


def _kind(mime: str) -> Any:
    head = mime.split("/")[0]
    return head if head in ("image", "audio", "video") else "document"


def _result(id: str, content: Any, is_error: bool = False) -> ToolResult:
    return ToolResult(tool_call_id=id, content=list(_parts(content)), is_error=is_error)


def _parts(content: Any) -> Iterator[Any]:
    """Text and media of users and tools, in whichever of the OpenAI and Anthropic forms."""
    if isinstance(content, str):
        yield TextPart(text=content)
        return
    for part in content or ():
        if isinstance(part, str):
            yield TextPart(text=part)
            continue
        kind = part.get("type", "text")
        source = part.get("source") or {}
        if "text" in part:
            yield TextPart(text=part["text"] or "")
        elif kind in ("image", "document") and source.get("data"):
            yield MediaPart(kind=kind, mime_type=source.get("media_type"), data=source["data"].encode())
        elif kind in ("image", "document") and (source.get("url") or source.get("file_id")):
            yield MediaPart(kind=kind, url=source.get("url"), file_id=None if source.get("url") else source["file_id"])
        elif kind in ("image_url", "input_image") and part.get("image_url"):
            url = part["image_url"]
            yield MediaPart(kind="image", url=url["url"] if isinstance(url, dict) else url)
        elif kind == "input_audio" and isinstance(part["input_audio"], dict):
            audio = part["input_audio"]
            yield MediaPart(kind="audio", mime_type=f"audio/{audio['format']}", data=audio["data"].encode())
        elif kind in ("file", "input_file"):
            inner = part.get("file", part)
            yield MediaPart(kind="document", file_id=inner.get("file_id") or "f", name=inner.get("filename"))


@cache
def transcripts() -> list[tuple[str, Target, list[Message]]]:
    """(name, who made it, history with the recorded answer) of every recorded request that holds more than one turn."""
    found = []
    for path in recordings(*FOLDERS):
        data = load_recording(path)
        for n, exchange in enumerate(data["exchanges"]):
            body = exchange["request"]["json"]
            dialect = _dialect_of(path.parent.name, body)
            if dialect is None or exchange["response"]["status"] != 200:
                continue
            provider = {"openai-responses": "openai", "google-code-assist": "antigravity"}.get(
                path.parent.name, data["provider"]
            )
            target = Target(provider=provider, dialect=dialect, model=body.get("model") or data["model"] or "m")
            history = load(body, target)
            if any(message.role == "assistant" for message in history):
                found.append((f"{path.parent.name}/{path.stem}-{n}", target, history))
    return found


def _dialect_of(folder: str, body: Any) -> str | None:
    if not isinstance(body, dict):
        return None
    inner = body.get("request", body)
    if isinstance(inner, dict) and "contents" in inner:
        return folder if folder.startswith("google") else "google"
    if "messages" in body and folder == "anthropic":
        return "anthropic"
    if "input" in body:
        return "openai-responses"
    return "openai-chat" if "messages" in body else None

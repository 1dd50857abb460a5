"""OpenAI Responses: a history as ``instructions`` and input items.

The history comes from the hand-off, so calls have results, ids fit, and opaque state is only there where it may go back. What is left to do:
put the parts of one item together again, and let no orphan out. A reasoning item is sent only with content that the server can read
without having stored it (C041) and only with something after it; an item that came after a reasoning item which is not sent goes
without its id, because the id is what makes the server look for that reasoning (C040).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.dialects.responses_items import NAMESPACE, dump_arguments
from rein_nb.ir import (
    InvalidRequest,
    MediaPart,
    Message,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from rein_nb.ir.base import loads

Item = dict[str, Any]


def instructions(messages: Sequence[Message]) -> tuple[str | None, Sequence[Message]]:
    """The text of the leading system messages, and the messages after them."""
    n = 0
    texts: list[str] = []
    while n < len(messages) and messages[n].role == "system":
        if messages[n].text:
            texts.append(messages[n].text)
        n += 1
    return "\n\n".join(texts) or None, messages[n:]


def input_items(
    messages: Sequence[Message],
    target: Target,
    *,
    stored: bool,
    warnings: list[str],
    settled: int = 0,
    wire: dict[Any, Any] | None = None,
) -> list[Item]:
    """The input items.

    Parameters
    ----------
    stored
        Whether the server keeps responses, so that an id alone stands for an item.
    warnings
        Gets what was left out, in words.
    settled, wire
        How many messages go out alike next time, and where what was made of them is kept; see `rein_nb.dialects.handoff.Handoff`.
    """
    key = (NAMESPACE, stored)
    start, known, calls, told = (wire or {}).get(key, (0, (), {}, ()))
    out = [dict(item) for item in known]
    customs: dict[str, Item] = dict(calls)
    noted = list(told)

    def keep(at: int) -> None:
        if at == settled and at > start and wire is not None:
            wire[key] = (at, [dict(item) for item in out], dict(customs), tuple(noted))

    for at in range(start, len(messages)):
        keep(at)
        message = messages[at]
        if message.role == "assistant":
            writer = _Assistant(stored, customs)
            for part in message.parts:
                writer.add(part)
            out += writer.items()
            noted += [text for text in writer.warnings if text not in noted]
        elif message.role in ("system", "developer"):
            role = "developer" if message.role == "developer" and target.quirks.developer_role else "system"
            if message.text:
                out.append({"role": role, "content": message.text})
        else:
            out += _user(message, customs)
    keep(len(messages))
    warnings += [text for text in noted if text not in warnings]
    return out


# -- assistant ----------------------------------------------------------------------------------------


class _Assistant:
    """Writes one assistant message as items."""

    def __init__(self, stored: bool, calls: dict[str, Item]) -> None:
        self._stored = stored
        self._calls = calls
        self._out: list[Item] = []
        self._group: tuple[Any, Item] | None = None
        self._reasoned = False
        self._images: dict[str, MediaPart] = {}
        self.warnings: list[str] = []

    def items(self) -> list[Item]:
        """All items; a reasoning item that nothing follows is left out."""
        while self._out and self._out[-1].get("type") == "reasoning":
            self._out.pop()
        for item in self._out:
            if item.get("type") == "image_generation_call" and "result" not in item and item.get("id") in self._images:
                item["result"] = self._images[item["id"]].base64
        return [_plain(item) for item in self._out]

    def add(self, part: Any) -> None:
        """Write one part."""
        own = part.extra.get(NAMESPACE, {})
        kind = type(part)
        if kind is TextPart:
            self._content(own, _output_text(part, own))
        elif kind is RefusalPart:
            self._content(own, {"type": "refusal", "refusal": part.text, **own.get("part", {})})
        elif kind is ThinkingPart:
            self._reasoning(part, own)
        elif kind is ToolCall:
            self._call(part, own)
        elif kind is ServerToolPart:
            self._server_tool(part, own)
        elif kind is MediaPart:
            self._media(part, own)
        else:
            raise InvalidRequest(f"openai-responses cannot express a {part.type!r} part in an assistant message")

    def _put(self, item: Item) -> None:
        self._out.append(item)
        self._group = None

    def _fields(self, own: dict[str, Any]) -> Item:
        """An item's own fields; without the id where the reasoning that it depends on is not sent."""
        fields = dict(own.get("item", {}))
        if own.get("after_reasoning") and not self._reasoned:
            fields.pop("id", None)
        return fields

    def _content(self, own: dict[str, Any], content: Item) -> None:
        fields = own.get("item")
        group = self._group
        if group is not None and group[0] == fields:
            group[1]["content"].append(content)
            return
        item = {"type": "message", "role": "assistant", "content": [content], **self._fields(own)}
        self._put(item)
        self._group = (fields, item)

    def _reasoning(self, part: ThinkingPart, own: dict[str, Any]) -> None:
        fields = own.get("item", {})
        if not (part.opaque or fields.get("content") or (self._stored and fields.get("id"))):
            self.warnings.append(
                "reasoning was left out: the server did not store it, and its encrypted content was not asked for"
            )
            return
        item = {"type": "reasoning", "summary": [], **fields}
        if part.opaque:
            item["encrypted_content"] = part.opaque
        self._put(item)
        self._reasoned = True

    def _call(self, part: ToolCall, own: dict[str, Any]) -> None:
        fields = self._fields(own)
        if fields.get("type") == "custom_tool_call":
            item = {**fields, "call_id": part.id, "name": part.name, "input": _custom_input(part)}
        else:
            item = {
                "type": "function_call",
                "call_id": part.id,
                "name": part.name,
                "arguments": _arguments(part, own),
                **fields,
            }
        self._calls[part.id] = item
        self._put(item)

    def _media(self, part: MediaPart, own: dict[str, Any]) -> None:
        """An image goes back inside the call that made it; the wire has no other media in an assistant message."""
        if "result_of" in own:
            self._images[own["result_of"]] = part
        else:
            self._content(own, {"type": "output_text", "text": f"[{part.kind} left out]", "annotations": []})

    def _server_tool(self, part: ServerToolPart, own: dict[str, Any]) -> None:
        if not part.payload:
            return
        if "item" in own:
            self._content(own, dict(part.payload))
        else:
            self._put(dict(part.payload))


def _output_text(part: TextPart, own: dict[str, Any]) -> Item:
    notes = [item.extra[NAMESPACE] for item in part.citations if NAMESPACE in item.extra]
    return {"type": "output_text", "text": part.text, "annotations": notes, **own.get("part", {})}


def _plain(item: Item) -> Item:
    """A message that is nothing but text in its short form, which every server reads."""
    if item.keys() != {"type", "role", "content"} or item["type"] != "message":
        return item
    texts = [part.get("text", part.get("refusal")) for part in item["content"]]
    if all(isinstance(text, str) for text in texts):
        return {"role": "assistant", "content": "".join(texts)}
    return item


def _arguments(part: ToolCall, own: dict[str, Any]) -> str:
    """The text that the model wrote, unless somebody changed the arguments since: byte-equal text keeps the prompt cache warm."""
    text = own.get("arguments")
    if isinstance(text, str) and loads(text) == part.arguments:
        return text
    return dump_arguments(part.arguments)


def _custom_input(part: ToolCall) -> str:
    text = part.arguments.get("input")
    return text if isinstance(text, str) else dump_arguments(part.arguments)


# -- user ---------------------------------------------------------------------------------------------


def _user(message: Message, calls: dict[str, Item]) -> list[Item]:
    """The results of a message, then what the user said in it. Payloads stand for themselves (approvals, outputs of built-in tools)."""
    results: list[Item] = []
    content: list[Item] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            results.append(_result(part, calls.get(part.tool_call_id, {})))
        elif isinstance(part, ServerToolPart):
            results += [dict(part.payload)] if part.payload else []
        else:
            content.append(input_content(part))
    if not content:
        return results
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        return [*results, {"role": "user", "content": content[0]["text"]}]
    return [*results, {"role": "user", "content": content}]


def _result(part: ToolResult, call: Item) -> Item:
    custom = call.get("type") == "custom_tool_call"
    item: Item = {"type": "custom_tool_call_output" if custom else "function_call_output", "call_id": part.tool_call_id}
    content = [input_content(piece) for piece in part.content]
    texts = [piece["text"] for piece in content if piece.keys() == {"type", "text"}]
    item["output"] = "\n".join(texts) if len(texts) == len(content) else content
    if "caller" in call:
        item["caller"] = call["caller"]
    return {**item, **part.extra.get(NAMESPACE, {})}


def input_content(part: Any) -> Item:
    """One content part of a user message or of a tool's output.

    Raises
    ------
    InvalidRequest
        For what the wire does not have.
    """
    extra = part.extra.get(NAMESPACE, {})
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text, **extra}
    if isinstance(part, RefusalPart):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, MediaPart) and part.kind == "image":
        return {"type": "input_image", "detail": "auto", **_image_place(part), **extra}
    if isinstance(part, MediaPart) and part.kind == "document":
        return {"type": "input_file", **_file_place(part), **extra}
    if isinstance(part, MediaPart) and part.kind == "audio" and part.data is not None:
        form = (part.mime_type or "audio/wav").partition("/")[2].removeprefix("x-")
        form = {"mpeg": "mp3", "wave": "wav"}.get(form, form)
        return {"type": "input_audio", "input_audio": {"data": part.base64, "format": form}, **extra}
    what = part.kind if isinstance(part, MediaPart) else part.type
    raise InvalidRequest(f"openai-responses cannot express {what} input")


def _image_place(part: MediaPart) -> Item:
    if part.file_id is not None:
        return {"file_id": part.file_id}
    return {
        "image_url": part.url if part.url is not None else f"data:{part.mime_type or 'image/png'};base64,{part.base64}"
    }


def _file_place(part: MediaPart) -> Item:
    if part.file_id is not None:
        return {"file_id": part.file_id}
    if part.url is not None and not part.url.startswith("data:"):
        return {"file_url": part.url}
    data = part.url if part.url is not None else f"data:{part.mime_type or 'application/pdf'};base64,{part.base64}"
    # The API wants a name with file data.
    return {"filename": part.name or "document", "file_data": data}

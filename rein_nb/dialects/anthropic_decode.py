"""Anthropic Messages: an answer, streamed or whole, as deltas.

The decoder follows blocks by their ``index``. It keeps no text; only the blocks that it does not look into (server tools, compaction,
whatever is new) are put together here, because they go back to their origin verbatim and so must be whole.

The terminal marker is ``message_stop``. A ``message_delta`` with a stop reason comes before it and usually says that all content was sent, but
a stream that ends there was cut: usage, container and stop details may be missing, and a server that dies at that point looks the same.
`Finish` is therefore emitted together with `End`, at ``message_stop``.

A second ``message_start`` with another id means that a gateway gave up on one upstream answer and spliced another one
in: the first one's blocks are void, so that a half-streamed call is never run and nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rein_nb.dialects.anthropic_usage import merge_usage, usage_of
from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.errors import error_info, is_error_body
from rein_nb.dialects.named_events import NONE, Deltas, NamedEventsDecoder
from rein_nb.dialects.values import as_dict, as_list, as_text
from rein_nb.ir import Citation, FinishReason
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON, loads
from rein_nb.ir.deltas import Text

NAMESPACE = "anthropic"
"""Where this dialect's data lies in `extra`."""

FINISH: dict[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    # The turn is unfinished and goes on when it is sent back as it is (C031); the native word tells it from a real limit.
    "pause_turn": "length",
    "refusal": "refusal",
    # Gateways in front of other models.
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}

_MESSAGE_FIELDS = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage"})
_TEXT_FIELDS = frozenset({"type", "text", "citations"})
_THINKING_FIELDS = frozenset({"type", "thinking", "signature"})
_REDACTED_FIELDS = frozenset({"type", "data"})
_CALL_FIELDS = frozenset({"type", "id", "name", "input"})


@dataclass(slots=True)
class _Block:
    """A content block while it is streamed."""

    kind: str
    key: d.PartKey
    payload: dict[str, Any] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    whole: bool = False
    closed: bool = False


class AnthropicDecoder(NamedEventsDecoder):
    """Turns the events of one streamed message into deltas. Never raises on what a server sent."""

    def __init__(self, target: Target, call: WireCall | None = None) -> None:
        super().__init__(target, call)
        self._blocks: dict[int, _Block] = {}
        self._texts: dict[int, d.PartKey] = {}
        self._keys: set[d.PartKey] = set()
        self._usage: dict[str, Any] = {}
        self._started = False
        self._message_id: str | None = None
        self._stop: str | None = None

    def feed(self, data: JSON, event: str | None = None) -> Deltas:
        """Deltas for one event."""
        try:
            # Nearly every event is one of these.
            if data["type"] == "content_block_delta":
                delta = data["delta"]
                if delta["type"] == "text_delta":
                    text = delta["text"]
                    if type(text) is str:
                        return [Text(text, self._texts[data["index"]])]
        except (KeyError, TypeError, IndexError):
            pass  # another kind of event, or a malformed one: read with care below
        return self._event(data, event)

    def close(self) -> Deltas:
        """The bytes ended without ``message_stop``."""
        if self._ended or self._stop is None:
            return NONE
        return [d.Warn(f"the stop reason {self._stop!r} had arrived, but not message_stop: the stream was cut")]

    def whole(self, response: JSON) -> Iterable[d.Delta]:
        """Deltas for a whole, non-streamed response."""
        if is_error_body(response):
            return self._error(response)
        if not isinstance(response, dict) or not isinstance(response.get("content"), list):
            return [self._malformed("the answer is not a message: it has no list of content blocks", response)]
        return [*self._message_start({"message": response}), *self._message_stop({})]

    # -- events -----------------------------------------------------------------------------------

    def _message_start(self, data: dict[str, Any]) -> Deltas:
        message = as_dict(data.get("message"))
        id = as_text(message.get("id"))
        out: list[d.Delta] = []
        if self._started:
            if id == self._message_id:
                return NONE
            out += self._void()
        self._started, self._message_id = True, id
        extra = {k: v for k, v in message.items() if k not in _MESSAGE_FIELDS and v is not None}
        out.append(d.Meta(id, as_text(message.get("model")), {NAMESPACE: extra} if extra else {}))
        # An answer without sampling comes in one piece: content and stop reason already stand in the start event.
        for index, block in enumerate(as_list(message.get("content"))):
            out += self._block_start({"index": index, "content_block": block})
            out += self._block_stop({"index": index})
        self._stop = as_text(message.get("stop_reason")) or self._stop
        out += self._usage_report(message.get("usage"))
        return out

    def _void(self) -> Deltas:
        keys = list(self._keys)
        blocks = len(self._blocks)
        self._blocks.clear()
        self._texts.clear()
        self._usage, self._stop = {}, None
        if not blocks:
            return NONE
        return [
            *(d.Void(key) for key in keys),
            d.Warn(f"the server began its answer anew in mid-stream; {blocks} block(s) sent before are void"),
        ]

    def _message_delta(self, data: dict[str, Any]) -> Deltas:
        delta = as_dict(data.get("delta"))
        self._stop = as_text(delta.get("stop_reason")) or self._stop
        extra = {k: v for k, v in delta.items() if k != "stop_reason" and v is not None}
        extra |= {k: v for k, v in data.items() if k not in ("type", "delta", "usage") and v is not None}
        meta: Deltas = [d.Meta(extra={NAMESPACE: extra})] if extra else NONE
        return [*meta, *self._usage_report(data.get("usage"))]

    def _message_stop(self, data: dict[str, Any]) -> Deltas:
        self._ended = True
        self._texts.clear()
        if self._unread is not None:
            return [self._malformed("an event of the stream is not JSON, so content is missing", self._unread)]
        out: list[d.Delta] = []
        for block in self._blocks.values():
            if not block.closed and block.kind not in _READ:
                out += self._finish_opaque(block)
        extra = {k: v for k, v in data.items() if k != "type" and v is not None}
        if extra:
            out.append(d.Meta(extra={NAMESPACE: extra}))
        out += [d.Finish(FINISH.get(self._stop or "", "other"), self._stop), d.End()]
        return out

    def _usage_report(self, report: JSON) -> Deltas:
        if not isinstance(report, dict):
            return NONE
        self._usage = merge_usage(self._usage, report)
        return [d.UsageReport(usage_of(self._usage))]

    def _error(self, data: JSON) -> Deltas:
        self._ended = True
        self._texts.clear()
        return [d.Fault(error_info(None, {}, data, self._target))]

    # -- blocks -----------------------------------------------------------------------------------

    def _block_start(self, data: dict[str, Any]) -> Deltas:
        content = data.get("content_block")
        index = data.get("index")
        if not isinstance(content, dict):
            return NONE
        if type(index) is not int:
            index = max(self._blocks, default=-1) + 1
        kind = as_text(content.get("type")) or ""
        known = self._blocks.get(index)
        if known is not None and not known.closed and known.kind == kind:
            return NONE  # the same event twice
        self._texts.pop(index, None)
        block = self._blocks[index] = _Block(kind, self._new_key(index))
        return _READ.get(kind, AnthropicDecoder._open_opaque)(self, index, block, content)

    def _new_key(self, index: int) -> d.PartKey:
        key: d.PartKey = index
        n = 0
        while key in self._keys:
            n += 1
            key = f"{index}/{n}"
        self._keys.add(key)
        return key

    def _open_text(self, index: int, block: _Block, content: dict[str, Any]) -> Deltas:
        self._texts[index] = block.key
        text = as_text(content.get("text"))
        out: list[d.Delta] = [d.Text(text, block.key)] if text else []
        out += [d.Cite(citation(raw), block.key) for raw in as_list(content.get("citations")) if isinstance(raw, dict)]
        return out + _rest(content, _TEXT_FIELDS, block.key, "text")

    def _open_thinking(self, index: int, block: _Block, content: dict[str, Any]) -> Deltas:
        text, signature = as_text(content.get("thinking")), as_text(content.get("signature"))
        out: list[d.Delta] = [d.Thinking(text, block.key)] if text else []
        if signature:
            out.append(d.Signature(signature=signature, part=block.key))
        return out + _rest(content, _THINKING_FIELDS, block.key, "thinking")

    def _open_redacted(self, index: int, block: _Block, content: dict[str, Any]) -> Deltas:
        out: list[d.Delta] = [d.Signature(opaque=as_text(content.get("data")) or "", redacted=True, part=block.key)]
        return out + _rest(content, _REDACTED_FIELDS, block.key, "thinking")

    def _open_call(self, index: int, block: _Block, content: dict[str, Any]) -> Deltas:
        name = as_text(content.get("name")) or ""
        out: list[d.Delta] = [d.ToolOpen(block.key, as_text(content.get("id")), self._names.get(name, name))]
        given = content.get("input")
        if isinstance(given, dict) and given:
            block.whole = True
            out.append(d.ToolArgsObject(given, block.key))
        elif isinstance(given, str) and given:
            out.append(d.ToolArgs(given, block.key))
        return out + _rest(content, _CALL_FIELDS, block.key, "tool_call")

    def _open_opaque(self, index: int, block: _Block, content: dict[str, Any]) -> Deltas:
        block.payload = content
        return [_server_tool(block)]

    def _block_delta(self, data: dict[str, Any]) -> Deltas:
        delta, index = as_dict(data.get("delta")), data.get("index")
        kind = as_text(delta.get("type")) or ""
        out: list[d.Delta] = []
        if type(index) is not int:
            index = max(self._blocks, default=0)
        if index not in self._blocks:
            # The start event is missing; the delta says what kind of block it belongs to.
            if kind not in _KIND_OF_DELTA:
                return NONE
            out += self._block_start({"index": index, "content_block": {"type": _KIND_OF_DELTA[kind]}})
        block = self._blocks[index]
        if kind == "input_json_delta":
            return [*out, *self._input_delta(block, as_text(delta.get("partial_json")) or "")]
        if block.kind not in _READ:
            block.payload = {**block.payload, **{k: v for k, v in delta.items() if k != "type"}}
            return [_server_tool(block)]
        key: d.PartKey = block.key
        if block.kind != _KIND_OF_DELTA.get(kind):
            key = f"{block.key}/{kind}"
            self._keys.add(key)
        if kind == "text_delta":
            text = as_text(delta.get("text"))
            return [*out, d.Text(text, key)] if text else out
        if kind == "thinking_delta":
            text = as_text(delta.get("thinking"))
            return [*out, d.Thinking(text, key)] if text else out
        if kind == "signature_delta":
            signature = as_text(delta.get("signature"))
            return [*out, d.Signature(signature=signature, part=key)] if signature else out
        if kind == "citations_delta" and isinstance(delta.get("citation"), dict):
            return [*out, d.Cite(citation(delta["citation"]), key)]
        return out

    def _input_delta(self, block: _Block, text: str) -> Deltas:
        if not text or block.whole:
            return NONE
        if block.kind == "tool_use":
            return [d.ToolArgs(text, block.key)]
        if block.kind in _READ:
            return [d.Warn("tool arguments arrived for a block that is no tool call and were left out")]
        block.pieces.append(text)
        return [d.ToolArgs(text, block.key)]

    def _block_stop(self, data: dict[str, Any]) -> Deltas:
        index = data.get("index")
        block = self._blocks.get(index) if type(index) is int else None
        if block is None or block.closed:
            return NONE
        block.closed = True
        if block.kind in _READ:
            return [d.PartEnd(block.key)]
        return [*self._finish_opaque(block), d.PartEnd(block.key)]

    def _finish_opaque(self, block: _Block) -> Deltas:
        if not block.pieces:
            return NONE
        try:
            block.payload = {**block.payload, "input": loads("".join(block.pieces))}
        except (ValueError, RecursionError):
            return [d.Warn(f"the input of a {block.kind} block is not complete JSON")]
        return [_server_tool(block)]


AnthropicDecoder.handlers = {
    "message_start": AnthropicDecoder._message_start,
    "content_block_start": AnthropicDecoder._block_start,
    "content_block_delta": AnthropicDecoder._block_delta,
    "content_block_stop": AnthropicDecoder._block_stop,
    "message_delta": AnthropicDecoder._message_delta,
    "message_stop": AnthropicDecoder._message_stop,
    "error": AnthropicDecoder._error,
}

_READ: dict[str, Callable[[AnthropicDecoder, int, _Block, dict[str, Any]], Deltas]] = {
    "text": AnthropicDecoder._open_text,
    "thinking": AnthropicDecoder._open_thinking,
    "redacted_thinking": AnthropicDecoder._open_redacted,
    "tool_use": AnthropicDecoder._open_call,
}
"""Blocks that have a part of their own. All others become a `ServerToolPart` with the block as its payload."""

_KIND_OF_DELTA = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}


# -- small readers ----------------------------------------------------------------------------------


def _server_tool(block: _Block) -> d.ServerTool:
    payload = block.payload
    name = as_text(payload.get("name"))
    if name is None:
        name = block.kind.removesuffix("_tool_result")
    return d.ServerTool(
        block.key,
        id=as_text(payload.get("id")) or as_text(payload.get("tool_use_id")),
        name=name,
        input=payload.get("input"),
        output=payload.get("content"),
        payload=payload,
    )


def citation(raw: dict[str, Any]) -> Citation:
    """A citation in any of the wire's five forms. The span that it supports is its whole text block."""
    source = as_text(raw.get("url")) or as_text(raw.get("source")) or as_text(raw.get("file_id"))
    if source is None and isinstance(raw.get("document_index"), int):
        source = f"document:{raw['document_index']}"
    return Citation(
        source=source or "",
        title=as_text(raw.get("title")) or as_text(raw.get("document_title")),
        quote=as_text(raw.get("cited_text")),
        extra={NAMESPACE: raw},
    )


def _rest(content: dict[str, Any], read: frozenset[str], key: d.PartKey, kind: str) -> list[d.Delta]:
    extra = {name: value for name, value in content.items() if name not in read and value is not None}
    return [d.PartExtra({NAMESPACE: extra}, key, kind)] if extra else []

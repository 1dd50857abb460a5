"""OpenAI Responses: an answer, streamed or whole, as deltas.

Items are followed by ``output_index`` (gateways rotate ``item_id`` from event to event). Deltas come as they arrive; ``output_item.done`` has
the last word: it settles texts and arguments, and brings ids, encrypted reasoning and annotations. Servers that send only the ``done``
events, or only the terminal one, give the same completion.

The terminal markers are ``response.completed`` and ``response.incomplete``; ``response.failed`` and ``error`` are faults. A ``[DONE]`` is
foreign here and means nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.errors import error_info, is_error_body
from rein_nb.dialects.named_events import NONE, Deltas, NamedEventsDecoder
from rein_nb.dialects.responses_items import (
    NAMESPACE,
    citation,
    generated_image,
    item_extra,
    odd_arguments,
    part_extra,
    thinking_text,
    tool_id,
    tool_input,
    tool_name,
    tool_output,
)
from rein_nb.dialects.responses_usage import usage_of
from rein_nb.dialects.values import as_dict, as_list, as_text
from rein_nb.ir import ErrorInfo, FinishReason
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON
from rein_nb.ir.deltas import Text

INCOMPLETE: dict[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""Finish reason by ``incomplete_details.reason``."""

_UNFINISHED = ("queued", "in_progress")
_NOT_KEPT = frozenset({
    "id", "object", "model", "output", "output_text", "usage", "error", "instructions", "tools", "tool_choice", "text", "prompt",
    "metadata",
})  # fmt: skip
"""Fields of a response that are read, or that only repeat the request."""


@dataclass(slots=True)
class _Item:
    """An output item while it is streamed."""

    index: int
    kind: str
    after_reasoning: bool
    seen: set[str] = field(default_factory=set)
    cited: dict[str, int] = field(default_factory=dict)
    opened: bool = False
    begun: bool = False
    thought: tuple[str, int] | None = None
    done: bool = False

    @property
    def key(self) -> str:
        return str(self.index)

    def part(self, content_index: JSON, mark: str = "") -> str:
        return f"{self.index}.{content_index if type(content_index) is int else 0}{mark}"


class ResponsesDecoder(NamedEventsDecoder):
    """Turns the events of one streamed response into deltas. Never raises on what a server sent."""

    def __init__(self, target: Target, call: WireCall | None = None) -> None:
        super().__init__(target, call)
        self._items: dict[int, _Item] = {}
        self._index_of: dict[str, int] = {}
        self._texts: dict[int, dict[int, str]] = {}
        self._reasoned = False
        self._refused = False

    def feed(self, data: JSON, event: str | None = None) -> Deltas:
        """Deltas for one event."""
        try:
            # Nearly every event is one of these.
            if data["type"] == "response.output_text.delta":
                text = data["delta"]
                if type(text) is str:
                    return [Text(text, self._texts[data["output_index"]][data["content_index"]])]
        except (KeyError, TypeError, IndexError):
            pass  # another kind of event, the first of its part, or a malformed one: read with care below
        return self._event(data, event)

    def close(self) -> Deltas:
        """The bytes ended without a terminal event: the stream was cut."""
        return NONE

    def whole(self, response: JSON) -> Iterable[d.Delta]:
        """Deltas for a whole, non-streamed response."""
        if isinstance(response, dict) and isinstance(response.get("output"), list):
            return self._terminal({"response": response})
        if is_error_body(response):
            return self._error(response)
        return [self._malformed("the answer is not a response: it has no list of output items", response)]

    # -- events -----------------------------------------------------------------------------------

    def _created(self, data: dict[str, Any]) -> Deltas:
        response = as_dict(data.get("response"))
        return [d.Meta(as_text(response.get("id")), as_text(response.get("model")))]

    def _error(self, data: JSON) -> Deltas:
        self._end()
        return [d.Fault(error_info(None, {}, data, self._target))]

    def _end(self) -> None:
        self._ended = True
        self._texts.clear()

    def _terminal(self, data: dict[str, Any]) -> Deltas:
        response = as_dict(data.get("response"))
        self._end()
        if self._unread is not None:
            return [self._malformed("an event of the stream is not JSON, so content is missing", self._unread)]
        out: list[d.Delta] = []
        for index, raw in enumerate(as_list(response.get("output"))):
            if isinstance(raw, dict) and self._missing(index, raw):
                out += self._item_done({"output_index": index, "item": raw})
        extra = {k: v for k, v in response.items() if k not in _NOT_KEPT and v not in (None, [], {})}
        out.append(
            d.Meta(as_text(response.get("id")), as_text(response.get("model")), {NAMESPACE: extra} if extra else {})
        )
        usage = usage_of(response.get("usage"))
        if usage is not None:
            out.append(d.UsageReport(usage))
        return [*out, *self._outcome(data, response)]

    def _missing(self, index: int, raw: dict[str, Any]) -> bool:
        """Whether the terminal event holds an item that the stream did not finish before it."""
        item = self._items.get(index)
        if item is None:
            id = as_text(raw.get("id"))
            return id is None or id not in self._index_of
        return not item.done and item.kind == raw.get("type")

    def _outcome(self, data: dict[str, Any], response: dict[str, Any]) -> Deltas:
        status = as_text(response.get("status")) or _STATUS_OF_EVENT.get(str(data.get("type")), "completed")
        if status == "failed" or response.get("error"):
            return [
                d.Fault(error_info(None, {}, {"error": response.get("error") or "the response failed"}, self._target))
            ]
        if status in ("cancelled", "canceled"):
            target = self._target
            return [
                d.Fault(
                    ErrorInfo.make(
                        "cancelled", "the response was cancelled", provider=target.provider, model=target.model
                    )
                )
            ]
        if status == "incomplete":
            reason = as_text(as_dict(response.get("incomplete_details")).get("reason"))
            return [d.Finish(INCOMPLETE.get(reason or "", "other"), reason or status), d.End()]
        if status in _UNFINISHED:
            return [d.Finish("other", status), d.End()]
        return [d.Finish("refusal" if self._refused else "stop", status), d.End()]

    # -- items ------------------------------------------------------------------------------------

    def _item(self, data: dict[str, Any], kind: str) -> _Item:
        """The item that an event speaks of; a new one where no event did before."""
        index = data.get("output_index")
        id = as_text(data.get("item_id")) or as_text(as_dict(data.get("item")).get("id"))
        if type(index) is not int:
            known = self._index_of.get(id) if id is not None else None
            index = known if known is not None else max(self._items, default=-1) + 1
        if id is not None:
            self._index_of.setdefault(id, index)
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _Item(index, kind, self._reasoned)
            self._reasoned = self._reasoned or kind == "reasoning"
        return item

    def _item_added(self, data: dict[str, Any]) -> Deltas:
        raw = as_dict(data.get("item"))
        kind = _kind(raw)
        item = self._item(data, kind)
        if item.done or item.kind != kind:
            return NONE
        if kind in ("function_call", "custom_tool_call"):
            return self._open_call(item, raw)
        if kind in ("message", "reasoning"):
            return NONE  # nothing to see yet, and what they bring is said again when they are done
        return [d.ServerTool(item.key, id=tool_id(raw), name=tool_name(raw), payload=raw)]

    def _item_done(self, data: dict[str, Any]) -> Deltas:
        raw = data.get("item")
        if not isinstance(raw, dict):
            return NONE
        kind = _kind(raw)
        item = self._item(data, kind)
        if item.done:
            return NONE
        item.done = True
        return _DONE.get(kind, ResponsesDecoder._other_done)(self, item, raw)

    def _extra(self, item: _Item, raw: dict[str, Any], **more: Any) -> dict[str, dict[str, Any]]:
        own: dict[str, Any] = {"item": item_extra(raw), **more}
        if item.after_reasoning:
            own["after_reasoning"] = True
        return {NAMESPACE: own}

    def _other_done(self, item: _Item, raw: dict[str, Any]) -> Deltas:
        image = generated_image(raw)
        payload = raw if image is None else {name: value for name, value in raw.items() if name != "result"}
        done: list[d.Delta] = [
            d.ServerTool(
                item.key,
                id=tool_id(raw),
                name=tool_name(raw),
                input=tool_input(raw),
                output=tool_output(raw),
                payload=payload,
            ),
            d.PartEnd(item.key),
        ]
        return done if image is None else [*done, d.Media(image, f"{item.key}.image")]

    # -- messages ---------------------------------------------------------------------------------

    def _text_delta(self, data: dict[str, Any]) -> Deltas:
        item = self._item(data, "message")
        text, at = as_text(data.get("delta")), data.get("content_index")
        if text is None or item.done:
            return NONE
        key = item.part(at)
        item.seen.add(key)
        if type(data.get("output_index")) is int and type(at) is int:
            self._texts.setdefault(item.index, {})[at] = key
        return [d.Text(text, key)]

    def _refusal_delta(self, data: dict[str, Any]) -> Deltas:
        item = self._item(data, "message")
        text = as_text(data.get("delta"))
        if text is None or item.done:
            return NONE
        key = item.part(data.get("content_index"), "r")
        item.seen.add(key)
        self._refused = True
        return [d.Refusal(text, key)]

    def _text_done(self, data: dict[str, Any]) -> Deltas:
        item = self._item(data, "message")
        return (
            NONE
            if item.done
            else self._settle_text(item, item.part(data.get("content_index")), as_text(data.get("text")))
        )

    def _refusal_done(self, data: dict[str, Any]) -> Deltas:
        item = self._item(data, "message")
        key = item.part(data.get("content_index"), "r")
        return NONE if item.done else self._settle_refusal(item, key, as_text(data.get("refusal")))

    def _settle_text(self, item: _Item, key: str, text: str | None) -> Deltas:
        if text is None:
            return NONE
        if key in item.seen:
            return [d.Settle(text, key)]
        item.seen.add(key)
        return [d.Text(text, key)]

    def _settle_refusal(self, item: _Item, key: str, text: str | None) -> Deltas:
        if text is None:
            return NONE
        self._refused = True
        if key in item.seen:
            return [d.Settle(text, key)]
        item.seen.add(key)
        return [d.Refusal(text, key)]

    def _annotation(self, data: dict[str, Any]) -> Deltas:
        item, raw = self._item(data, "message"), data.get("annotation")
        if item.done or not isinstance(raw, dict):
            return NONE
        key = item.part(data.get("content_index"))
        item.seen.add(key)
        item.cited[key] = item.cited.get(key, 0) + 1
        return [d.Cite(citation(raw), key)]

    def _message_done(self, item: _Item, raw: dict[str, Any]) -> Deltas:
        self._texts.pop(item.index, None)
        out: list[d.Delta] = []
        for at, part in enumerate(as_list(raw.get("content"))):
            if not isinstance(part, dict):
                continue
            kind = part.get("type")
            if kind == "output_text":
                key = item.part(at)
                out += self._settle_text(item, key, as_text(part.get("text")))
                annotations = [note for note in as_list(part.get("annotations")) if isinstance(note, dict)]
                fresh = annotations[item.cited.get(key, 0) :]
                out += [d.Cite(citation(note), key) for note in fresh]
                if key not in item.seen and not fresh:
                    continue
                slot = "text"
            elif kind == "refusal":
                key = item.part(at, "r")
                out += self._settle_refusal(item, key, as_text(part.get("refusal")))
                if key not in item.seen:
                    continue
                slot = "refusal"
            else:
                key = item.part(at, "x")
                out.append(d.ServerTool(key, name=str(kind or "content"), payload=part))
                slot = "server_tool"
            extra = self._extra(
                item, raw, **({"part": rest} if (rest := part_extra(part)) and slot != "server_tool" else {})
            )
            out += [d.PartExtra(extra, key, slot), d.PartEnd(key)]
        return out

    # -- reasoning --------------------------------------------------------------------------------

    def _reasoning_delta(self, data: dict[str, Any]) -> Deltas:
        """A piece of the summary or of the reasoning itself: what an item shows first is what is shown of it."""
        item = self._item(data, "reasoning")
        text = as_text(data.get("delta"))
        form = "summary" if "summary_index" in data else "content"
        if text is None or item.done:
            return NONE
        at = data.get(f"{form}_index")
        place = (form, at if type(at) is int else 0)
        if item.thought is None:
            item.thought = place
        elif item.thought[0] != form:
            return NONE
        elif item.thought != place:
            item.thought = place
            text = f"\n\n{text}"
        return [d.Thinking(text, item.key if item.kind == "reasoning" else item.part(0, "t"))]

    def _reasoning_done(self, item: _Item, raw: dict[str, Any]) -> Deltas:
        out: list[d.Delta] = []
        text = thinking_text(raw)
        if text:
            out.append(d.Thinking(text, item.key) if item.thought is None else d.Settle(text, item.key))
        if (sealed := as_text(raw.get("encrypted_content"))) is not None:
            out.append(d.Signature(opaque=sealed, part=item.key))
        return [*out, d.PartExtra(self._extra(item, raw), item.key, "thinking"), d.PartEnd(item.key)]

    # -- calls ------------------------------------------------------------------------------------

    def _open_call(self, item: _Item, raw: dict[str, Any]) -> Deltas:
        name = as_text(raw.get("name"))
        if item.opened or name is None:
            return NONE
        item.opened = True
        return [
            d.ToolOpen(item.key, as_text(raw.get("call_id")) or as_text(raw.get("id")), self._names.get(name, name))
        ]

    def _arguments_delta(self, data: dict[str, Any]) -> Deltas:
        item = self._item(data, "function_call")
        text = as_text(data.get("delta"))
        if text is None or item.done or item.kind != "function_call":
            return NONE
        item.begun = True
        return [d.ToolArgs(text, item.key)]

    def _arguments_done(self, data: dict[str, Any]) -> Deltas:
        item = self._item(data, "function_call")
        text = as_text(data.get("arguments"))
        if text is None or item.done or item.kind != "function_call":
            return NONE
        return self._settle_arguments(item, text)

    def _settle_arguments(self, item: _Item, text: str) -> Deltas:
        begun, item.begun = item.begun, True
        return [d.Settle(text, item.key) if begun else d.ToolArgs(text, item.key)]

    def _function_done(self, item: _Item, raw: dict[str, Any]) -> Deltas:
        out = [*self._open_call(item, raw)]
        arguments = raw.get("arguments")
        more: dict[str, Any] = {}
        if isinstance(arguments, dict):
            out.append(d.ToolArgsObject(arguments, item.key))
        elif isinstance(arguments, str) and arguments:
            out += self._settle_arguments(item, arguments)
            if odd_arguments(arguments):
                more["arguments"] = arguments
        return [*out, d.PartExtra(self._extra(item, raw, **more), item.key, "tool_call"), d.PartEnd(item.key)]

    def _input_delta(self, data: dict[str, Any]) -> Deltas:
        """A custom tool takes plain text; the IR's arguments are an object, so it becomes ``{"input": text}``, streamed as JSON."""
        item = self._item(data, "custom_tool_call")
        text = as_text(data.get("delta"))
        if text is None or item.done or item.kind != "custom_tool_call":
            return NONE
        head = "" if item.begun else '{"input": "'
        item.begun = True
        return [d.ToolArgs(head + json.dumps(text, ensure_ascii=False)[1:-1], item.key)]

    def _custom_done(self, item: _Item, raw: dict[str, Any]) -> Deltas:
        text = raw.get("input")
        out = [*self._open_call(item, raw)]
        if isinstance(text, str):
            out += self._settle_arguments(item, json.dumps({"input": text}, ensure_ascii=False))
        return [*out, d.PartExtra(self._extra(item, raw), item.key, "tool_call"), d.PartEnd(item.key)]


ResponsesDecoder.handlers = {
    "response.created": ResponsesDecoder._created,
    "response.output_item.added": ResponsesDecoder._item_added,
    "response.output_item.done": ResponsesDecoder._item_done,
    "response.output_text.delta": ResponsesDecoder._text_delta,
    "response.output_text.done": ResponsesDecoder._text_done,
    "response.output_text.annotation.added": ResponsesDecoder._annotation,
    "response.refusal.delta": ResponsesDecoder._refusal_delta,
    "response.refusal.done": ResponsesDecoder._refusal_done,
    "response.reasoning_summary_text.delta": ResponsesDecoder._reasoning_delta,
    "response.reasoning_text.delta": ResponsesDecoder._reasoning_delta,
    "response.function_call_arguments.delta": ResponsesDecoder._arguments_delta,
    "response.function_call_arguments.done": ResponsesDecoder._arguments_done,
    "response.custom_tool_call_input.delta": ResponsesDecoder._input_delta,
    "response.completed": ResponsesDecoder._terminal,
    "response.done": ResponsesDecoder._terminal,
    "response.incomplete": ResponsesDecoder._terminal,
    "response.failed": ResponsesDecoder._terminal,
    "response.cancelled": ResponsesDecoder._terminal,
    "error": ResponsesDecoder._error,
}
"""Events with something to say. The others (progress of server tools, parts of a part) repeat what an item's end brings."""

_DONE: dict[str, Callable[[ResponsesDecoder, _Item, dict[str, Any]], Deltas]] = {
    "message": ResponsesDecoder._message_done,
    "reasoning": ResponsesDecoder._reasoning_done,
    "function_call": ResponsesDecoder._function_done,
    "custom_tool_call": ResponsesDecoder._custom_done,
}
"""Items that have parts of their own. All others become a `ServerToolPart` with the item as its payload."""

_STATUS_OF_EVENT = {
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}


def _kind(raw: dict[str, Any]) -> str:
    kind = as_text(raw.get("type")) or ""
    # Compaction hands back the user's own messages among its items; they are not the assistant's words.
    return "input_message" if kind == "message" and raw.get("role") not in (None, "assistant") else kind

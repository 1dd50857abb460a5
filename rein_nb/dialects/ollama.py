"""Ollama's own dialect: ``POST /api/chat``, one JSON object a line.

Source: https://github.com/ollama/ollama/blob/main/docs/api.md. It differs from Chat Completions in that arguments are objects,
options have a place of their own, images are bare base64, a tool message names its tool, and the last line says ``done``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from rein_nb.dialects.base import Target, WireCall, not_told
from rein_nb.dialects.chat_calls import CallTracker
from rein_nb.dialects.chat_decode import finish_reason
from rein_nb.dialects.chat_encode import check_options, merge_body
from rein_nb.dialects.chat_history import own_extra
from rein_nb.dialects.chat_media import decode_base64
from rein_nb.dialects.counts import count
from rein_nb.dialects.errors import error_info
from rein_nb.dialects.handoff import handoff
from rein_nb.dialects.think_tags import ThinkTags
from rein_nb.ir import (
    ErrorInfo,
    MediaPart,
    Message,
    RefusalPart,
    Request,
    TextPart,
    ThinkingPart,
    ToolResult,
    UnsupportedOption,
    Usage,
)
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON, clean_json

OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_output_tokens": "num_predict",
    "stop": "stop",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Our option to the name inside ``options``."""

THINK_WORDS: dict[str, bool] = {"none": False, "off": False, "false": False, "on": True, "true": True}
"""Reasoning efforts that are switches; every other word goes as it is (gpt-oss: low, medium, high)."""

_FIELDS = frozenset({"model", "message", "done", "done_reason", "error", "logprobs"})
_COUNTS = frozenset({"prompt_eval_count", "eval_count"})
_MESSAGE_FIELDS = frozenset({"role", "content", "thinking", "tool_calls", "images"})


class OllamaCodec:
    """Ollama's ``/api/chat``."""

    name: ClassVar[str] = "ollama"

    def encode(self, request: Request, target: Target, *, stream: bool) -> WireCall:
        """The wire request.

        Raises
        ------
        UnsupportedOption
            For a forced tool call, which Ollama does not have, and for what the model is known to refuse.
        """
        check_options(request.options, target)
        handed = handoff(request.messages, target)
        warnings: dict[str, None] = dict.fromkeys(handed.warnings)
        body: dict[str, Any] = {**target.quirks.default_body, "model": target.model}
        body["messages"] = [wire for message in handed.messages for wire in _messages(message, target, warnings)]
        body["stream"] = stream
        _tools(request, target, body, warnings)
        options = {
            wire: value for name, wire in OPTIONS.items() if (value := getattr(request.options, name)) is not None
        }
        if options:
            body["options"] = {**body.get("options", {}), **options}
        effort = request.options.reasoning_effort
        if effort is not None:
            body["think"] = THINK_WORDS.get(effort, effort)
        if request.options.logprobs is not None:
            body["logprobs"] = True
            if request.options.logprobs:
                body["top_logprobs"] = request.options.logprobs
        output = request.output_format
        if output is not None and output.type != "text":
            body["format"] = "json" if output.type == "json" else output.json_schema
        for namespace in dict.fromkeys((target.dialect, target.provider)):
            merge_body(body, request.options.extensions.get(namespace, {}))
        return WireCall(
            path=target.quirks.path or "/api/chat",
            body=clean_json(body),
            warnings=list(warnings),
            tool_names=handed.tool_names,
        )

    def decoder(self, target: Target, call: WireCall | None = None) -> OllamaDecoder:
        """A fresh decoder for one streamed response to `call`."""
        return OllamaDecoder(target, call)

    def deltas(self, response: JSON, target: Target, call: WireCall | None = None) -> Iterable[d.Delta]:
        """Deltas for a whole response."""
        decoder = OllamaDecoder(target, call)
        if not isinstance(response, dict) or not (response.get("error") or isinstance(response.get("message"), dict)):
            text = str(response).strip()[:200]
            return [d.Fault(_fault(target, "malformed_response", f"not a chat answer: {text}", response))]
        return [*decoder.feed(response), *decoder.end()]

    def error(self, status: int | None, headers: Mapping[str, str], body: JSON, target: Target) -> ErrorInfo:
        """The fault that an error answer describes."""
        return error_info(status, headers, body, target)


# -- requests -----------------------------------------------------------------------------------------


def _tools(request: Request, target: Target, body: dict[str, Any], warnings: dict[str, None]) -> None:
    choice = request.tool_choice
    if not request.tools:
        return
    if target.capabilities.tools is False:
        raise UnsupportedOption("tools", f"{target.provider}/{target.model}")
    if choice is not None and choice.mode in ("required", "named"):
        raise UnsupportedOption("tool_choice", "ollama", f"it cannot be made to call a tool ({choice.mode!r} given)")
    if choice is not None and choice.parallel is not None:
        warnings[not_told(target, choice)] = None
    if choice is not None and choice.mode == "none":
        return  # a model that is shown no tools calls none
    body["tools"] = [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
            **own_extra(spec.extra, target),
        }
        for spec in request.tools
    ]


def _messages(message: Message, target: Target, warnings: dict[str, None]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    images: list[str] = []
    texts: list[str] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            shown = [_inline(item, warnings) for item in part.content if isinstance(item, MediaPart)]
            wire: dict[str, Any] = {"role": "tool", "content": part.text or f"({part.status})"}
            if part.name:
                wire["tool_name"] = part.name
            if part.tool_call_id:
                wire["tool_call_id"] = part.tool_call_id
            if pictures := [data for data, _ in shown if data]:
                wire["images"] = pictures
            out.append(wire)
        elif isinstance(part, TextPart | RefusalPart):
            texts.append(part.text)
        elif isinstance(part, MediaPart):
            data, text = _inline(part, warnings)
            if data:
                images.append(data)
            else:
                texts.append(text)
    content = ("" if message.role == "assistant" else "\n\n").join(text for text in texts if text)
    own: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": content}
    if images:
        own["images"] = images
    if message.role == "assistant":
        _said(message, target, own)
    if len(own) > 2 or content:
        out.append({**own, **(own_extra(message.extra, target) if message.role != "assistant" else {})})
    return out


def _said(message: Message, target: Target, wire: dict[str, Any]) -> None:
    calls = [
        {"id": call.id, "function": {"name": call.name, "arguments": call.arguments}} for call in message.tool_calls
    ]
    if calls:
        wire["tool_calls"] = calls
    replay = target.quirks.reasoning_replay
    thinking = "".join(part.text for part in message.parts if isinstance(part, ThinkingPart))
    if thinking and (replay == "always" or (replay == "tool_turns" and calls)):
        wire[target.quirks.reasoning_field or "thinking"] = thinking


def _inline(part: MediaPart, warnings: dict[str, None]) -> tuple[str, str]:
    """(base64 of an inline image, "") or ("", a placeholder)."""
    if part.kind == "image" and part.data is not None:
        return part.base64, ""
    warnings[f"ollama reads inline images only: {part.kind} was replaced by a placeholder"] = None
    return "", f"[{part.kind} left out: {part.name or part.url or part.file_id or part.mime_type}]"


# -- responses ----------------------------------------------------------------------------------------


def _fault(target: Target, kind: Any, message: str, body: JSON = None) -> ErrorInfo:
    return ErrorInfo.make(kind, message, body=body, provider=target.provider, model=target.model)


class OllamaDecoder:
    """Decodes one response, line by line."""

    def __init__(self, target: Target, call: WireCall | None = None) -> None:
        self._target = target
        self._namespace = target.provider
        self._calls = CallTracker(0, target.provider, call.tool_names if call is not None else None)
        self._tags = ThinkTags() if target.quirks.think_tags else None
        self._model = ""
        self._first = ""
        self._logprobs: list[JSON] = []
        self._media = 0
        self._finished = False
        self._ended = False

    def feed(self, data: JSON, event: str | None = None) -> Sequence[d.Delta]:
        """Deltas for one line. Never raises, whatever the line holds."""
        try:
            if len(data) == 4 and data["done"] is False and data["model"] == self._model and "created_at" in data:
                message = data["message"]
                if len(message) == 2 and self._tags is None and "role" in message and not self._ended:
                    text = message.get("content")
                    if type(text) is str:
                        return [d.Text(text)]
        except (KeyError, TypeError, AttributeError):
            pass  # not a plain piece of text: read in full
        if self._ended:
            return []
        if isinstance(data, str) and not data.strip():
            return []
        if not isinstance(data, dict):
            return [d.Warn(f"a line that is no JSON object was skipped: {str(data)[:80]}")]
        out: list[d.Delta] = []
        self._facts(data, out)
        if isinstance(data.get("message"), dict):
            self._message(data["message"], out)
        if isinstance(data.get("logprobs"), list):
            self._logprobs.extend(data["logprobs"])
        if data.get("error"):
            self._ended = True
            return [*out, *self._flush(), d.Fault(error_info(None, {}, data, self._target))]
        if data.get("done") is True:
            out.extend(self._done(data))
        return out

    def close(self) -> Sequence[d.Delta]:
        """Deltas for the end of the bytes: what was held back."""
        if self._ended:
            return []
        self._ended = True
        return self._flush()

    def end(self) -> list[d.Delta]:
        """Deltas for the end of a whole answer, which needs no ``done``."""
        if self._ended:
            return []
        return [d.Warn("the provider gave no finish reason: a normal stop is assumed"), *self._done({})]

    def _done(self, data: dict[str, Any]) -> list[d.Delta]:
        native = data.get("done_reason")
        reason = finish_reason(native) if isinstance(native, str) and native else "stop"
        self._ended = True
        out = self._flush()
        if "prompt_eval_count" in data or "eval_count" in data:
            raw = {name: value for name, value in data.items() if name.endswith(("_count", "_duration"))}
            into, given = count(data.get("prompt_eval_count")), count(data.get("eval_count"))
            out.append(d.UsageReport(Usage(input_tokens=into, output_tokens=given, raw=raw)))
        if reason == "error":
            what = f"the provider broke the answer off: done_reason {native!r}"
            return [*out, d.Fault(_fault(self._target, "server_error", what, data))]
        return [*out, d.Finish(reason, native if isinstance(native, str) else None), d.End()]

    def _facts(self, data: dict[str, Any], out: list[d.Delta]) -> None:
        model = data.get("model")
        new_model = model if isinstance(model, str) and model and model != self._model else None
        self._model = new_model or self._model
        news = {n: v for n, v in data.items() if n not in _FIELDS and n not in _COUNTS and v is not None}
        if self._first:
            news.pop("created_at", None)  # the time of each line; the first one is the answer's
        elif isinstance(data.get("created_at"), str):
            self._first = data["created_at"]
        if news or new_model:
            out.append(d.Meta(None, new_model, {self._namespace: news} if news else {}))

    def _message(self, message: dict[str, Any], out: list[d.Delta]) -> None:
        thinking, content = message.get("thinking"), message.get("content")
        if isinstance(thinking, str) and thinking:
            out.append(d.Thinking(thinking))
        if isinstance(content, str) and content:
            out.extend(self._pieces(self._tags.feed(content)) if self._tags is not None else [d.Text(content)])
        for image in message["images"] if isinstance(message.get("images"), list) else ():
            data = decode_base64([image]) if isinstance(image, str) else None
            if data is not None:
                out.append(d.Media(MediaPart(kind="image", data=data), (0, "image", self._media)))
                self._media += 1
        if message.get("tool_calls"):
            out.extend(self._calls.feed(message["tool_calls"], whole=True))
        unknown = {n: v for n, v in message.items() if n not in _MESSAGE_FIELDS and v is not None}
        if unknown:
            out.append(d.Meta(message_extra={self._namespace: unknown}))

    @staticmethod
    def _pieces(pieces: list[Any]) -> list[d.Delta]:
        return [d.Text(text) if kind == "text" else d.Thinking(text) for kind, text in pieces]

    def _flush(self) -> list[d.Delta]:
        out = self._pieces(self._tags.flush()) if self._tags is not None else []
        out.extend(self._calls.make_ids(f"{self._model}/{self._first}"))
        if self._logprobs:
            out.append(d.Meta(extra={self._namespace: {"logprobs": self._logprobs}}))
        return out

"""Chat Completions, from wire chunks to deltas: OpenAI's, and every server's that speaks like it.

A chunk is read in one of two ways. The *quick* way knows exactly one shape: the response-level and choice-level fields as they
were in a chunk that was read in full before, and a delta with nothing new but text. Everything else is read in full. Since the quick way
compares all other fields with what is known, nothing can slip through it.

How a stream ends: a ``finish_reason`` ends the turn, ``[DONE]`` ends the stream. ``[DONE]`` alone is a normal stop (C015); the end of the bytes with
neither is a cut (C014), which the accumulator reports. An ``error`` object ends the turn as a fault, wherever it stands (C020).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, cast

from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.chat_media import AUDIO_FORMATS, image_from_url
from rein_nb.dialects.chat_state import ChoiceState, citation
from rein_nb.dialects.chat_usage import chat_usage
from rein_nb.dialects.errors import error_info
from rein_nb.ir import ErrorInfo, FinishReason, TurnOutcome, normalize_finish_reason
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON, loads

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""Where servers put reasoning text: DeepSeek and its kin, vLLM and OpenRouter, Copilot, Ollama behind gateways."""

PADDING = ("obfuscation", "p", "padding")
"""Random filling against guessing content from packet sizes (OpenAI, Mistral, Copilot). The only thing that is dropped."""

_PINGS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
_RESPONSE_FIELDS = frozenset({"choices", "usage", "error", "object", "id", "model", *PADDING})
_CHOICE_FIELDS = frozenset({"index", "delta", "message", "finish_reason", "logprobs", "usage", "error"})
_MESSAGE_FIELDS = frozenset(
    {
        "role", "content", "refusal", "tool_calls", "function_call", "annotations", "audio", "images", "executed_tools",
        "reasoning_details", "reasoning_opaque", *REASONING_FIELDS, *PADDING,
    }
)  # fmt: skip

_REASONS: dict[TurnOutcome, FinishReason] = {
    TurnOutcome.COMPLETED: "stop",
    TurnOutcome.TOOL_CALLS: "tool_calls",
    TurnOutcome.LENGTH: "length",
    TurnOutcome.CONTENT_FILTER: "content_filter",
    TurnOutcome.REFUSAL: "refusal",
    TurnOutcome.ABORTED: "error",
    TurnOutcome.PROVIDER_ERROR: "error",
    TurnOutcome.UNKNOWN: "other",
}

_Shape: TypeAlias = tuple[int, Callable[[Any], Any], Any, int, Callable[[Any], Any], Any, str, d.PartKey]
"""A chunk's shape for the quick way: its size, what it holds beside the choices and padding; the same of its choice beside the
delta; its padding field (else ``choices``); the part that text goes to."""

_MAX_SHAPES = 64
"""After so many shapes, a stream has none that lasts (Groq's compound systems give each chunk another id), and learning is given up."""

_NO_SHAPE: _Shape = (-1, dict, None, -1, dict, None, "", "text")


def finish_reason(native: str) -> FinishReason:
    """The neutral finish reason for a server's word; ``error`` for a word that reports a failure."""
    return _REASONS[normalize_finish_reason(native)]


class ChatDecoder:
    """Decodes one response. See the module's text.

    Parameters
    ----------
    target
        Who was asked.
    call
        What was sent; tells the format of generated sound.
    whole
        The response comes as one object, not as a stream.
    """

    def __init__(self, target: Target, call: WireCall | None = None, *, whole: bool = False) -> None:
        self._target = target
        self._namespace = target.provider
        self._whole = whole
        self._choices: dict[int, ChoiceState] = {}
        self._seen: dict[str, JSON] = {}
        self._further: dict[str, dict[str, JSON]] = {}
        self._id = ""
        self._model = ""
        self._finished = False
        self._ended = False
        self._closed = False
        self._audio_mime = _audio_mime(call)
        self._names = call.tool_names if call is not None else {}
        self._shape: _Shape = _NO_SHAPE
        self._learned = 0
        self._thinking_field: str | None = None

    # -- a stream ---------------------------------------------------------------------------------

    def feed(self, data: JSON, event: str | None = None) -> Sequence[d.Delta]:
        """Deltas for one event. Never raises, whatever the event holds."""
        size, outer, outer_known, inner_size, inner, inner_known, padding, key = self._shape
        try:
            if len(data) == size and outer(data) == outer_known and padding in data:
                (choice,) = data["choices"]
                if len(choice) == inner_size and inner(choice) == inner_known:
                    delta = choice["delta"]
                    if len(delta) == 1 and type(text := delta.get("content")) is str:
                        return [d.Text(text, key)]
                    quick = self._quick(delta, key)
                    if quick is not None:
                        return quick
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # not the known shape: read in full
        return self._read(data, event)

    def close(self) -> Sequence[d.Delta]:
        """Deltas for the end of the bytes: what was held back. The end itself is for the accumulator to judge."""
        if self._ended:
            return []
        self._ended = True
        return self._flush()

    def _quick(self, delta: dict[str, Any], key: d.PartKey) -> list[d.Delta] | None:
        """Deltas for a delta that holds only text of one kind, or argument text, beside nulls and the role; None where it holds more."""
        out: list[d.Delta] = []
        for name, value in delta.items():
            if value is None or name == "role":
                continue
            if name == "tool_calls" and not out:
                (fragment,) = value
                piece = self._choices[0].calls.quick(fragment)
                if piece is None:
                    return None
                out.append(piece)
            elif type(value) is not str:
                return None
            elif name == "content":
                if value:
                    out.append(d.Text(value, key))
            elif name == self._thinking_field and not out:
                if value:
                    out.append(d.Thinking(value))
            else:
                return None
        return out if len(out) < 2 else None

    def _learn(self, data: dict[str, Any], choice: dict[str, Any], state: ChoiceState) -> None:
        """Remember a chunk's shape for the quick way, if text in this shape can be given on at once."""
        self._shape = _NO_SHAPE
        self._learned += 1
        if self._learned > _MAX_SHAPES:
            return
        if state.index != 0 or (state.tags is not None and not state.tags.settled) or (state.lists and state.last != "text"):
            return
        outer = [name for name in data if name != "choices" and name not in PADDING]
        inner = [name for name in choice if name != "delta"]
        padding = [name for name in data if name in PADDING]
        if not outer or not inner or len(padding) > 1 or "delta" not in choice:
            return
        if any(choice[name] is not None for name in inner if name != "index") or data.get("usage") is not None:
            return
        get_outer, get_inner = itemgetter(*outer), itemgetter(*inner)
        self._thinking_field = None if state.lists or state.tags is not None else state.field
        self._shape = (
            len(data),
            get_outer,
            get_outer(data),
            len(choice),
            get_inner,
            get_inner(choice),
            padding[0] if padding else "choices",
            state.named("text", state.runs.get("text", 0)),
        )

    # -- one event, in full -------------------------------------------------------------------------

    def _read(self, data: JSON, event: str | None) -> list[d.Delta]:
        if self._ended:
            return []
        if isinstance(data, str):
            return self._text_event(data, event)
        if isinstance(data, list):
            return [delta for item in data for delta in self._read(item, event)]
        if not isinstance(data, dict):
            return [] if data is None else [d.Warn(f"an event that is no object was skipped: {str(data)[:80]}")]
        if event in _PINGS and "choices" not in data:
            return []
        out: list[d.Delta] = []
        self._response(data, out)
        choices = data.get("choices")
        choices = [choices] if isinstance(choices, dict) else choices
        fault: ErrorInfo | None = None
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict):
                fault = self._choice(choice, position, data, out) or fault
        self._usage(data, out)
        if data.get("error") or event == "error":
            fault = error_info(None, {}, data, self._target)
        if fault is not None:
            return self._fail(fault, out)
        if isinstance(choices, list) and len(choices) == 1 and not self._whole and isinstance(choices[0], dict):
            self._learn(data, choices[0], self._state(choices[0].get("index"), 0))
        return out

    def _text_event(self, text: str, event: str | None) -> list[d.Delta]:
        plain = text.strip()
        if plain == "[DONE]":
            return self.end()
        if event == "error":
            return self._fail(error_info(None, {}, text, self._target), [])
        if not plain or event in _PINGS:
            return []
        return [d.Warn(f"an event that is not JSON was skipped: {plain[:80]}")]

    def end(self) -> list[d.Delta]:
        """Deltas for the terminal marker, or for the end of a whole response."""
        if self._ended:
            return []
        if not self._choices:
            what = "the answer has no choices" if self._whole else "the stream ended without any content"
            body = self._seen or None
            return self._fail(self._fault("malformed_response", what, body), [])
        out: list[d.Delta] = []
        if not self._finished:
            self._finished = True
            first = self._choices.get(0)
            out.append(d.Warn("the provider gave no finish reason: a normal stop is assumed"))
            out.append(d.Finish("refusal" if first is not None and first.refused else "stop"))
        self._ended = True
        return [*self._flush(), *out, d.End()]

    def fail(self, message: str, body: JSON) -> list[d.Delta]:
        """Deltas for an answer that is no answer at all."""
        return self._fail(self._fault("malformed_response", message, body), [])

    def _fault(self, kind: Any, message: str, body: JSON = None) -> ErrorInfo:
        return ErrorInfo.make(kind, message, body=body, provider=self._target.provider, model=self._target.model)

    def _fail(self, fault: ErrorInfo, out: list[d.Delta]) -> list[d.Delta]:
        self._ended = True
        out.extend(self._flush())
        out.append(d.Fault(fault))
        return out

    # -- the response's own fields ------------------------------------------------------------------

    def _response(self, data: dict[str, Any], out: list[d.Delta]) -> None:
        news: dict[str, JSON] = {}
        for name, value in data.items():
            if name in _RESPONSE_FIELDS or value is None or value == "":
                continue
            if name not in self._seen or (self._seen[name] != value and name != "created"):
                self._seen[name] = value
                news[name] = value
        id, model = data.get("id"), data.get("model")
        new_id = id if isinstance(id, str) and id and not self._id else None
        new_model = model if isinstance(model, str) and model and model != self._model else None
        self._id = new_id or self._id
        self._model = new_model or self._model
        if news or new_id or new_model:
            out.append(d.Meta(new_id, new_model, {self._namespace: news} if news else {}))

    def _usage(self, data: dict[str, Any], out: list[d.Delta]) -> None:
        raw = data.get("usage")
        if not raw and isinstance(data.get("x_groq"), dict):
            raw = data["x_groq"].get("usage")
        usage = chat_usage(raw, data.get("cost"))
        if usage is not None:
            out.append(d.UsageReport(usage))

    # -- one choice -----------------------------------------------------------------------------------

    def _state(self, index: JSON, position: int) -> ChoiceState:
        n = index if type(index) is int and index >= 0 else position
        state = self._choices.get(n)
        if state is None:
            state = self._choices[n] = ChoiceState(
                n, self._namespace, self._target.quirks.think_tags, self._names
            )
        return state

    def _choice(
        self, choice: dict[str, Any], position: int, data: dict[str, Any], out: list[d.Delta]
    ) -> ErrorInfo | None:
        state = self._state(choice.get("index"), position)
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict) and (delta or not isinstance(message, dict)):
            self._message(state, delta, out)
            if isinstance(message, dict):  # Perplexity repeats the whole message so far beside each delta
                self._unknown(state, message, out)
        elif isinstance(message, dict):
            self._message(state, message, out)
        elif isinstance(choice.get("text"), str):  # the shape of the older text completions
            self._text(state, choice["text"], out)
        self._choice_facts(state, choice, out)
        if isinstance(choice.get("usage"), dict):  # Moonshot
            self._usage(choice, out)
        native = choice.get("finish_reason")
        if choice.get("error"):
            return error_info(None, {}, {"error": choice["error"]}, self._target)
        if native is None or native == "":
            return None
        return self._finish(state, str(native), data, out)

    def _choice_facts(self, state: ChoiceState, choice: dict[str, Any], out: list[d.Delta]) -> None:
        if isinstance(choice.get("logprobs"), dict):
            state.add_logprobs(choice["logprobs"])
        news = {
            name: value
            for name, value in choice.items()
            if name not in _CHOICE_FIELDS and name != "text" and value is not None and state.seen.get(name) != value
        }
        if news:
            state.seen.update(news)
            self._facts(state, news, out)

    def _facts(self, state: ChoiceState, facts: dict[str, JSON], out: list[d.Delta]) -> None:
        """Keep facts about a choice: the first one's with the response's own, the others' under ``choices``."""
        if state.index == 0:
            out.append(d.Meta(extra={self._namespace: facts}))
            return
        self._further.setdefault(str(state.index), {}).update(facts)
        further = {n: dict(values) for n, values in self._further.items()}
        out.append(d.Meta(extra={self._namespace: {"choices": further}}))

    def _finish(
        self, state: ChoiceState, native: str, data: dict[str, Any], out: list[d.Delta]
    ) -> ErrorInfo | None:
        state.finish = native
        if state.index != 0:
            self._facts(state, {"finish_reason": native}, out)
            return None
        reason = finish_reason(native)
        if reason == "error":
            return self._fault("server_error", f"the provider broke the answer off: finish_reason {native!r}", data)
        if reason == "stop" and state.refused:
            reason = "refusal"
        self._finished = True
        out.append(d.Finish(reason, native))
        return None

    # -- one message, or a piece of it ----------------------------------------------------------------

    def _message(self, state: ChoiceState, message: dict[str, Any], out: list[d.Delta]) -> None:
        self._reasoning(state, message, out)
        content = message.get("content")
        if isinstance(content, str):
            if content:
                self._text(state, content, out)
        elif content is not None:
            self._content(state, content if isinstance(content, list) else [content], out)
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refusal(state, refusal, out)
        if isinstance(message.get("audio"), dict):
            self._audio(state, message["audio"], out)
        for image in _objects(message.get("images")):
            self._image(state, image, out)
        for position, tool in enumerate(_objects(message.get("executed_tools"))):
            self._executed(state, tool, position, out)
        if message.get("tool_calls"):
            out.extend(state.calls.feed(message["tool_calls"], whole=self._whole))
        if isinstance(message.get("function_call"), dict):
            out.extend(state.calls.legacy(message["function_call"], whole=self._whole))
        for annotation in _objects(message.get("annotations")):
            self._cite(state, annotation, out)
        self._unknown(state, message, out)

    def _text(self, state: ChoiceState, text: str, out: list[d.Delta]) -> None:
        if state.tags is None or state.tags.settled:
            out.append(d.Text(text, state.key("text")))
            return
        for kind, piece in state.tags.feed(text):
            self._piece(state, kind, piece, out)

    def _piece(self, state: ChoiceState, kind: str, piece: str, out: list[d.Delta]) -> None:
        if kind == "text":
            out.append(d.Text(piece, state.key("text")))
        else:
            self._think(state, piece, "think_tags", out)

    def _think(self, state: ChoiceState, text: str, field: str | None, out: list[d.Delta]) -> None:
        key = state.key("thinking")
        out.append(d.Thinking(text, key))
        if field is not None and state.field is None:
            # The name is remembered for replay (C021): with the message, since the part itself is plain text that other models may read.
            state.field = field
            self._message_facts(state, {"reasoning_field": field}, out)

    def _reasoning(self, state: ChoiceState, message: dict[str, Any], out: list[d.Delta]) -> None:
        taken: list[str] = []
        for name in REASONING_FIELDS:
            text = message.get(name)
            if isinstance(text, str) and text and text not in taken:
                taken.append(text)
                self._think(state, text, name, out)
        state.reasoned = state.reasoned or bool(taken)
        opaque = message.get("reasoning_opaque")  # Copilot
        if isinstance(opaque, str) and opaque:
            out.append(d.Signature(opaque=opaque, part=state.key("thinking")))
        for detail in _objects(message.get("reasoning_details")):
            self._detail(state, detail, out)

    def _detail(self, state: ChoiceState, detail: dict[str, Any], out: list[d.Delta]) -> None:
        state.add_detail(detail)
        text = detail.get("text") or detail.get("summary")
        if isinstance(text, str) and text and not state.reasoned:
            self._think(state, text, None, out)
        signature, data = detail.get("signature"), detail.get("data")
        if isinstance(signature, str) and signature:
            out.append(d.Signature(signature=signature, part=state.key("thinking")))
        if isinstance(data, str) and data:
            out.append(d.Signature(opaque=data, part=state.key("thinking")))

    def _refusal(self, state: ChoiceState, text: str, out: list[d.Delta]) -> None:
        state.refused = True
        out.append(d.Refusal(text, state.named("refusal")))

    def _content(self, state: ChoiceState, parts: list[JSON], out: list[d.Delta]) -> None:
        """Content as a list of typed parts: Mistral, Databricks, gateways."""
        state.lists = True
        for part in parts:
            if isinstance(part, str):
                self._text(state, part, out)
                continue
            if not isinstance(part, dict):
                continue
            kind = part.get("type")
            text = part.get("text")
            if kind in ("text", "output_text") and isinstance(text, str):
                if text:
                    self._text(state, text, out)
                for annotation in _objects(part.get("annotations")):
                    self._cite(state, annotation, out)
            elif kind in ("thinking", "reasoning"):
                self._thinking_part(state, part, out)
            elif kind == "refusal" and isinstance(part.get("refusal"), str):
                self._refusal(state, part["refusal"], out)
            elif kind == "image_url":
                self._image(state, part, out)
            elif kind in ("reference", "citation"):
                self._cite(state, part, out)
            else:
                state.parts.append(part)

    def _thinking_part(self, state: ChoiceState, part: dict[str, Any], out: list[d.Delta]) -> None:
        inner = next((part[n] for n in ("thinking", "summary", "content", "text") if part.get(n)), None)
        for piece in inner if isinstance(inner, list) else [inner]:
            text = piece.get("text") if isinstance(piece, dict) else piece
            if isinstance(text, str) and text:
                self._think(state, text, "content", out)
            signature = piece.get("signature") if isinstance(piece, dict) else None
            if isinstance(signature, str) and signature:  # Databricks
                out.append(d.Signature(signature=signature, part=state.key("thinking")))
            if isinstance(piece, dict) and piece.get("type") in ("reference", "tool_reference"):
                state.parts.append(piece)

    def _audio(self, state: ChoiceState, audio: dict[str, Any], out: list[d.Delta]) -> None:
        transcript = state.add_audio(audio)
        if not transcript:
            return
        key = state.named("transcript")
        out.append(d.Text(transcript, key))
        if "transcript" not in state.runs:
            state.runs["transcript"] = 0
            out.append(d.PartExtra({self._namespace: {"audio": "transcript"}}, key))

    def _image(self, state: ChoiceState, image: dict[str, Any], out: list[d.Delta]) -> None:
        inner = image.get("image_url")
        media = image_from_url(inner.get("url") if isinstance(inner, dict) else inner)
        if media is None:
            state.parts.append(image)
            return
        out.append(d.Media(media, (state.index, "image", state.media)))
        state.media += 1

    def _executed(self, state: ChoiceState, tool: dict[str, Any], position: int, out: list[d.Delta]) -> None:
        """A tool that the provider ran (Groq compound systems): first its call, later the same with its output."""
        n = tool["index"] if type(tool.get("index")) is int else position
        given = tool.get("arguments")
        if isinstance(given, str):
            try:
                given = loads(given)
            except (ValueError, RecursionError):
                pass  # shown as the text it is
        output = tool.get("output")
        if output is None:
            output = tool.get("code_results") or tool.get("search_results")
        name = tool.get("type") or tool.get("name")
        out.append(
            d.ServerTool(
                (state.index, "executed", n),
                id=str(tool.get("id") or n),
                name=name if isinstance(name, str) else None,
                input=given,
                output=output,
                payload=tool,
            )
        )

    def _cite(self, state: ChoiceState, annotation: dict[str, Any], out: list[d.Delta]) -> None:
        if annotation in state.annotations:
            return
        state.annotations.append(annotation)
        run = state.runs.setdefault("text", 0)
        out.append(d.Cite(citation(annotation, self._namespace), state.named("text", run)))

    def _unknown(self, state: ChoiceState, message: dict[str, Any], out: list[d.Delta]) -> None:
        """Fields beyond the interface: the first value at once, the others as a list when the stream ends."""
        for name, value in message.items():
            if name in _MESSAGE_FIELDS or value is None or value == "":
                continue
            values = state.unknown.get(name)
            if values is None:
                state.unknown[name] = [value]
                self._message_facts(state, {name: value}, out)
            elif values[-1] != value:
                values.append(value)

    def _message_facts(self, state: ChoiceState, facts: dict[str, JSON], out: list[d.Delta]) -> None:
        if state.index == 0:
            out.append(d.Meta(message_extra={self._namespace: facts}))
        else:
            self._facts(state, facts, out)

    # -- the end ----------------------------------------------------------------------------------------

    def _flush(self) -> list[d.Delta]:
        """What could only be said once all had been read."""
        out: list[d.Delta] = []
        if self._closed:
            return out
        self._closed = True
        for state in self._choices.values():
            for kind, piece in state.tags.flush() if state.tags is not None else ():
                self._piece(state, kind, piece, out)
            if self._finished:
                out.extend(state.calls.close_inputs())
            out.extend(state.calls.make_ids(self._id))
            out.extend(state.sound(self._namespace, self._audio_mime))
            if state.details:
                # Half a signed block must not go back, so what a cut left has another name.
                name = "reasoning_details" if self._finished else "incomplete_reasoning_details"
                extra = {self._namespace: {name: state.details}}
                out.append(d.PartExtra(extra, state.named("thinking", state.runs.get("thinking", 0)), kind="thinking"))
            if state.logprobs:
                self._facts(state, {"logprobs": state.logprobs}, out)
            late: dict[str, JSON] = {name: values for name, values in state.unknown.items() if len(values) > 1}
            if state.parts:
                late["content_parts"] = state.parts
            if late:
                self._message_facts(state, late, out)
        first = self._choices.get(0)
        if first is not None:
            self._sources(first, out)
        return out

    def _sources(self, state: ChoiceState, out: list[d.Delta]) -> None:
        """Sources that stand beside the choices: Perplexity's and xAI's ``citations`` and ``search_results``."""
        found = self._seen.get("search_results") or self._seen.get("citations")
        cited = {a.get("url") for a in state.annotations} | {
            inner.get("url") for a in state.annotations if isinstance(inner := a.get("url_citation"), dict)
        }
        for source in found if isinstance(found, list) else ():
            item = {"url": source} if isinstance(source, str) else source
            if isinstance(item, dict) and item.get("url") not in cited:
                self._cite(state, cast(dict[str, Any], item), out)


def _objects(value: JSON) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _audio_mime(call: WireCall | None) -> str | None:
    audio = call.body.get("audio") if call is not None else None
    name = audio.get("format") if isinstance(audio, dict) else None
    return AUDIO_FORMATS.get(name) if isinstance(name, str) else None


def whole_deltas(response: JSON, target: Target, call: WireCall | None = None) -> list[d.Delta]:
    """Deltas for a response that came as one object."""
    decoder = ChatDecoder(target, call, whole=True)
    if not isinstance(response, dict):
        text = response if isinstance(response, str) else json.dumps(response)
        return decoder.fail(f"not a chat completion: {text.strip()[:200]}", response)
    return [*decoder.feed(response), *decoder.end()]

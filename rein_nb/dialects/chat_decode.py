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
from typing import Any, TypeAlias

from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.chat_media import AUDIO_FORMATS
from rein_nb.dialects.chat_message import PADDING, MessageReader
from rein_nb.dialects.chat_state import ChoiceState
from rein_nb.dialects.chat_usage import chat_usage
from rein_nb.dialects.errors import error_info
from rein_nb.ir import ErrorInfo, FinishReason, TurnOutcome, normalize_finish_reason
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON

_PINGS = frozenset({"ping", "keepalive", "keep-alive", "heartbeat"})
_RESPONSE_FIELDS = frozenset({"choices", "usage", "error", "object", "id", "model", *PADDING})
_CHOICE_FIELDS = frozenset({"index", "delta", "message", "finish_reason", "logprobs", "usage", "error"})
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
        self._reader = MessageReader(target.provider, whole=whole)
        self._seen: dict[str, JSON] = {}
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
        if (
            state.index != 0
            or (state.tags is not None and not state.tags.settled)
            or (state.lists and state.last != "text")
        ):
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
            state = self._choices[n] = ChoiceState(n, self._namespace, self._target.quirks.think_tags, self._names)
        return state

    def _choice(
        self, choice: dict[str, Any], position: int, data: dict[str, Any], out: list[d.Delta]
    ) -> ErrorInfo | None:
        state = self._state(choice.get("index"), position)
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict) and (delta or not isinstance(message, dict)):
            self._reader.message(state, delta, out)
            if isinstance(message, dict):  # Perplexity repeats the whole message so far beside each delta
                self._reader.unknown(state, message, out)
        elif isinstance(message, dict):
            self._reader.message(state, message, out)
        elif isinstance(choice.get("text"), str):  # the shape of the older text completions
            self._reader.text(state, choice["text"], out)
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
            self._reader.facts(state, news, out)

    def _finish(self, state: ChoiceState, native: str, data: dict[str, Any], out: list[d.Delta]) -> ErrorInfo | None:
        state.finish = native
        if state.index != 0:
            self._reader.facts(state, {"finish_reason": native}, out)
            return None
        reason = finish_reason(native)
        if reason == "error":
            return self._fault("server_error", f"the provider broke the answer off: finish_reason {native!r}", data)
        if reason == "stop" and state.refused:
            reason = "refusal"
        self._finished = True
        out.append(d.Finish(reason, native))
        return None

    # -- the end ----------------------------------------------------------------------------------------

    def _flush(self) -> list[d.Delta]:
        """What could only be said once all had been read."""
        out: list[d.Delta] = []
        if self._closed:
            return out
        self._closed = True
        for state in self._choices.values():
            for kind, piece in state.tags.flush() if state.tags is not None else ():
                self._reader.piece(state, kind, piece, out)
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
                self._reader.facts(state, {"logprobs": state.logprobs}, out)
            late: dict[str, JSON] = {name: values for name, values in state.unknown.items() if len(values) > 1}
            if state.parts:
                late["content_parts"] = state.parts
            if late:
                self._reader.message_facts(state, late, out)
        first = self._choices.get(0)
        if first is not None:
            # Perplexity and xAI name their sources beside the choices.
            self._reader.sources(first, self._seen.get("search_results") or self._seen.get("citations"), out)
        return out


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

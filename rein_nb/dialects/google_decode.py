"""Google's answers as deltas: one decoder for streamed chunks and for whole responses.

The wire has no blocks. Consecutive pieces of text, and of thought, are one part; a piece with a thought signature is a part of its own,
since signatures go back on the very part they came on and are never merged (https://ai.google.dev/gemini-api/docs/thought-signatures).
A function call is a part; one without an id gets a made one, marked as ``synthetic_id`` so that it is never sent to the API.

The wire has no end marker either: a stream is complete when its first candidate gave a finish reason.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Sequence
from typing import Any

from pydantic import ValidationError

from rein_nb.dialects.base import Target
from rein_nb.dialects.errors import error_info
from rein_nb.dialects.google_args import PartialArgs
from rein_nb.dialects.google_citations import Offsets, citations
from rein_nb.dialects.google_usage import usage_of
from rein_nb.ir import ErrorInfo, FinishReason, MediaPart
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON
from rein_nb.ir.errors import ErrorKind

NAMESPACE = "google"
"""Where `extra` keeps this dialect's own data, whoever serves it."""

FINISH: dict[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "LANGUAGE": "content_filter",
    "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter",
    "SPII": "content_filter",
    "IMAGE_SAFETY": "content_filter",
    "IMAGE_PROHIBITED_CONTENT": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "MODEL_ARMOR": "content_filter",
    "UNEXPECTED_TOOL_CALL": "tool_calls",
    "MALFORMED_FUNCTION_CALL": "error",
    "MALFORMED_RESPONSE": "error",
    "MISSING_THOUGHT_SIGNATURE": "error",
    "TOO_MANY_TOOL_CALLS": "error",
}
"""Neutral reasons; a word that is not here is ``other``. Numbers are the enum's own (Vertex over gRPC-JSON)."""

_NUMBERED = (
    "FINISH_REASON_UNSPECIFIED", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT",
    "SPII", "MALFORMED_FUNCTION_CALL",
)  # fmt: skip
_AGAIN = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
"""Failures of the model's own, which the same request may not meet again (C055)."""

_PART_DATA = (
    "text",
    "functionCall",
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
_KNOWN_CANDIDATE = ("content", "finishReason", "index")


class GoogleDecoder:
    """Decodes one response, fed chunk by chunk (or all at once)."""

    def __init__(self, target: Target, tool_names: dict[str, str] | None = None, *, whole: bool = False) -> None:
        self._target = target
        self._tool_names = tool_names or {}
        self._whole = whole
        self._response_id: Any = None
        self._facts: tuple[Any, ...] = (None, None, {})
        self._usage: dict[str, Any] | None = None
        self._candidates: dict[int, _Candidate] = {}
        self._ended = False
        self._blocked = False
        self._half: str | None = None

    def feed(self, data: JSON, event: str | None = None) -> Sequence[d.Delta]:
        """Deltas for one chunk."""
        if isinstance(data, list):
            return [delta for item in data for delta in self.feed(item)]
        if self._ended:
            return ()
        if self._half is not None:
            data = self._half  # something follows, so that the bytes were not cut there
        if not isinstance(data, dict):
            if isinstance(data, str) and self._half is None and not self._whole and data.lstrip()[:1] in ("{", "["):
                self._half = data
                return ()
            return self._fault(self._malformed(f"not a JSON object: {str(data)[:200]}", data))
        if data.get("error"):
            return self._fault(error_info(None, None, data, self._target))
        out: list[d.Delta] = []
        self._meta(data, out)
        candidates = data.get("candidates")
        for n, item in enumerate(candidates if isinstance(candidates, list) else ()):
            if isinstance(item, dict):
                index = item.get("index")
                index = index if isinstance(index, int) and index >= 0 else n
                candidate = self._candidates.get(index)
                if candidate is None:
                    candidate = self._candidates[index] = _Candidate(self, index)
                candidate.feed(item, out)
        self._feedback(data.get("promptFeedback"), out)
        self._report(data.get("usageMetadata"), out)
        return out

    def close(self) -> Sequence[d.Delta]:
        """Deltas for the end of the bytes."""
        if self._ended:
            return ()
        self._ended = True
        out: list[d.Delta] = []
        first = self._candidates.get(0)
        for candidate in self._candidates.values():
            candidate.close(out)
        if first is not None and first.fault is not None:
            # Only now: usage may come after the reason.
            return [*out, d.Fault(first.fault)]
        if not self._whole or self._blocked or (first is not None and first.finished):
            return out
        if first is None:
            return [*out, d.Fault(self._malformed("the answer has no candidates", None))]
        # A whole answer came whole, even where a server leaves the reason out.
        return [*out, d.Finish("stop", None)]

    # -- the response as a whole ----------------------------------------------------------------------

    def _fault(self, error: ErrorInfo) -> Sequence[d.Delta]:
        self._ended = True
        return [d.Fault(error)]

    def _malformed(self, message: str, body: JSON, **fields: Any) -> ErrorInfo:
        target = self._target
        return ErrorInfo.make(
            "malformed_response", message, body=body, provider=target.provider, model=target.model, **fields
        )

    def _meta(self, data: dict[str, Any], out: list[d.Delta]) -> None:
        response_id, model = data.get("responseId"), data.get("modelVersion")
        extra = {
            key: value
            for key, value in data.items()
            if key not in ("candidates", "usageMetadata", "responseId", "modelVersion", "promptFeedback")
        }
        facts = (response_id, model, extra)
        if facts == self._facts:
            return
        self._facts = facts
        self._response_id = response_id
        meta = d.Meta(
            response_id=response_id if isinstance(response_id, str) else None,
            model=model if isinstance(model, str) else None,
            extra={NAMESPACE: extra} if extra else {},
        )
        out.append(meta)

    def _feedback(self, feedback: Any, out: list[d.Delta]) -> None:
        if not isinstance(feedback, dict):
            return
        out.append(d.Meta(extra={NAMESPACE: {"promptFeedback": feedback}}))
        reason = feedback.get("blockReason")
        if reason is None or reason == "BLOCK_REASON_UNSPECIFIED" or reason == 0:
            return
        self._blocked = True
        said = feedback.get("blockReasonMessage")
        out.append(d.Warn(f"the prompt was blocked ({reason})" + (f": {said}" if said else "")))
        out.append(d.Finish("content_filter", str(reason)))

    def _report(self, usage: Any, out: list[d.Delta]) -> None:
        if isinstance(usage, dict) and usage != self._usage:
            self._usage = usage
            out.append(d.UsageReport(usage_of(usage)))

    def made_id(self, *facts: Any) -> str:
        """An id for a call that came without one: the same for the same answer, different for each call of it."""
        seed = json.dumps([self._response_id, *facts], sort_keys=True, default=str)
        return "call_" + hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:24]

    def our_name(self, name: str) -> str:
        """The tool's name as the caller gave it."""
        return self._tool_names.get(name, name)


class _Candidate:
    """One of the answers in a response."""

    def __init__(self, decoder: GoogleDecoder, index: int) -> None:
        self.decoder = decoder
        self.index = index
        self.finished = False
        self.fault: ErrorInfo | None = None
        self._parts = 0
        self._calls = 0
        self._growing: tuple[str, Hashable] | None = None
        self._streamed: tuple[Hashable, PartialArgs] | None = None
        self._offsets = Offsets()
        self._grounding: dict[str, Any] = {}
        self._recited: list[Any] = []
        self._fetched: list[Any] = []

    def feed(self, data: dict[str, Any], out: list[d.Delta]) -> None:
        content = data.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for n, part in enumerate(parts if isinstance(parts, list) else ()):
            if isinstance(part, dict):
                self._part(part, n, out)
        self._evidence(data)
        extra = {key: value for key, value in data.items() if key not in _KNOWN_CANDIDATE}
        if extra:
            facts: dict[str, Any] = extra if self.index == 0 else {f"candidate_{self.index}": extra}
            out.append(d.Meta(extra={NAMESPACE: facts}))
        reason = data.get("finishReason")
        if reason is not None and reason not in ("FINISH_REASON_UNSPECIFIED", 0):
            self._finish(reason, data.get("finishMessage"), out)

    def close(self, out: list[d.Delta]) -> None:
        self._grow(None, out)
        out.extend(citations(self._grounding, self._recited, self._fetched, self._offsets, whole=self.decoder._whole))

    # -- parts ----------------------------------------------------------------------------------------

    def _key(self) -> Hashable:
        self._parts += 1
        return (self.index, self._parts)

    def _grow(self, kind: str | None, out: list[d.Delta]) -> Hashable:
        """The part that text of this kind goes to; None closes the one that was growing."""
        if self._growing is not None:
            if self._growing[0] == kind:
                return self._growing[1]
            out.append(d.PartEnd(self._growing[1]))
            self._growing = None
        if kind is None:
            return None
        key = self._key()
        self._growing = (kind, key)
        return key

    def _part(self, part: dict[str, Any], n: int, out: list[d.Delta]) -> None:
        signature = part.get("thoughtSignature")
        call = part.get("functionCall")
        if isinstance(call, dict):
            self._call(call, part, out)
            return
        text = part.get("text")
        rest = {key: value for key, value in part.items() if key not in ("text", "thought", "thoughtSignature")}
        if not rest and (isinstance(text, str) or signature is not None):
            self._text(text if isinstance(text, str) else "", bool(part.get("thought")), signature, n, out)
        elif rest:
            self._grow(None, out)
            inline = part.get("inlineData") or part.get("fileData")
            if not (isinstance(inline, dict) and self._media(inline, part, out)):
                self._other(part, out)

    def _text(self, text: str, thought: bool, signature: Any, n: int, out: list[d.Delta]) -> None:
        if not text and signature is None:
            return
        if signature is None:
            key = self._grow("thinking" if thought else "text", out)
        else:
            self._grow(None, out)
            key = self._key()
        if thought:
            out.append(d.Thinking(text, key))
            if signature is not None:
                out.append(d.Signature(signature=str(signature), part=key))
        else:
            out.append(d.Text(text, key))
            if signature is not None:
                out.append(d.PartExtra({NAMESPACE: {"thought_signature": signature}}, key))
            if text:
                self._offsets.add(key, text, n)
        if signature is not None:
            out.append(d.PartEnd(key))

    def _call(self, call: dict[str, Any], part: dict[str, Any], out: list[d.Delta]) -> None:
        self._grow(None, out)
        name, arguments = call.get("name"), call.get("args")
        if not name and self._streamed is not None:
            key, args = self._streamed
        else:
            self._end_streamed(out)
            key, args = self._key(), PartialArgs()
            self._open(key, name, call.get("id"), arguments, out)
        if (extra := _part_extra(part, "functionCall")) is not None:
            out.append(d.PartExtra(extra, key, "tool_call"))
        pieces = call.get("partialArgs")
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict) and (text := args.feed(piece)):
                out.append(d.ToolArgs(text, key))
        self._streamed = (key, args)
        if isinstance(arguments, dict):
            self._streamed = None
            out.append(d.ToolArgsObject(arguments, key))
            out.append(d.PartEnd(key))
        elif not call.get("willContinue"):
            self._end_streamed(out)

    def _open(self, key: Hashable, name: Any, id: Any, arguments: Any, out: list[d.Delta]) -> None:
        self._calls += 1
        decoder = self.decoder
        made = not (isinstance(id, str) and id)
        if made:
            id = decoder.made_id(self.index, self._calls, name, arguments)
        out.append(d.ToolOpen(key, id, decoder.our_name(name) if isinstance(name, str) else None))
        if made:
            out.append(d.PartExtra({NAMESPACE: {"synthetic_id": True}}, key, "tool_call"))

    def _end_streamed(self, out: list[d.Delta]) -> None:
        if self._streamed is None:
            return
        key, args = self._streamed
        self._streamed = None
        text = args.close()
        out.append(d.ToolArgs(text, key) if args.in_order else d.ToolArgsObject(args.value(), key))
        out.append(d.PartEnd(key))

    def _media(self, inline: dict[str, Any], part: dict[str, Any], out: list[d.Delta]) -> bool:
        mime = inline.get("mimeType")
        where = {"data": inline.get("data")} if "data" in inline else {"url": inline.get("fileUri")}
        try:
            media = MediaPart.model_validate(
                {"kind": media_kind(mime), "mime_type": mime, "name": inline.get("displayName"), **where}
            )
        except ValidationError:
            out.append(d.Warn("a media part could not be read; it is kept as it came"))
            return False
        key = self._key()
        out.append(d.Media(media, key))
        if (extra := _part_extra(part, "inlineData", "fileData")) is not None:
            out.append(d.PartExtra(extra, key, "media"))
        return True

    def _other(self, part: dict[str, Any], out: list[d.Delta]) -> None:
        """A tool that Google ran itself, or a kind of part that is not known here: kept whole."""
        key = self._key()
        kind = next((name for name in (*_PART_DATA, *part) if isinstance(part.get(name), dict)), "part")
        body = part.get(kind, part)
        name = "code_execution" if kind in ("executableCode", "codeExecutionResult") else kind
        if isinstance(body.get("toolType"), str):
            name = body["toolType"].lower()
        given = {k: v for k, v in body.items() if k not in ("id", "toolType")}
        result = kind in ("codeExecutionResult", "toolResponse")
        id = body.get("id")
        tool = d.ServerTool(
            key,
            id=id if isinstance(id, str) else None,
            name=name,
            input=None if result else given,
            output=given if result else None,
            payload=part,
        )
        out += (tool, d.PartEnd(key))

    # -- the end --------------------------------------------------------------------------------------

    def _evidence(self, data: dict[str, Any]) -> None:
        grounding = data.get("groundingMetadata")
        if isinstance(grounding, dict):
            self._grounding = {**self._grounding, **grounding}
        recited = data.get("citationMetadata")
        if isinstance(recited, dict):
            entries = recited.get("citations", recited.get("citationSources"))
            new = [entry for entry in entries or () if entry not in self._recited] if isinstance(entries, list) else []
            self._recited += new
        fetched = data.get("urlContextMetadata")
        if isinstance(fetched, dict) and isinstance(fetched.get("urlMetadata"), list):
            self._fetched = fetched["urlMetadata"]

    def _finish(self, reason: Any, message: Any, out: list[d.Delta]) -> None:
        native = str(reason)
        word = _NUMBERED[reason] if isinstance(reason, int) and 0 <= reason < len(_NUMBERED) else native
        neutral = FINISH.get(word, "other")
        if word == "UNEXPECTED_TOOL_CALL" and not self._calls:
            neutral = "error"
        if self._streamed is not None:
            # A call that was to go on stays incomplete, whatever the reason says, so that it is never run.
            key, args = self._streamed
            self._streamed = None
            out.append(d.ToolArgs(args.cut_off(), key))
        self.finished = True
        if self.index == 0:
            out.append(d.Finish(neutral, native))
        if neutral == "error":
            said = f"{word}: {message}" if message else f"the model's answer ended with {word}"
            kind: ErrorKind = "bad_request" if word == "MISSING_THOUGHT_SIGNATURE" else "malformed_response"
            target = self.decoder._target
            self.fault = ErrorInfo.make(
                kind, said, code=word, retryable=word in _AGAIN, provider=target.provider, model=target.model
            )


def _part_extra(part: dict[str, Any], *data: str) -> dict[str, dict[str, Any]] | None:
    """What stands beside a part's data: its signature under our name, anything else as it came."""
    extra: dict[str, Any] = {}
    for key, value in part.items():
        if key == "thoughtSignature":
            extra["thought_signature"] = value
        elif key not in data:
            extra.setdefault("beside", {})[key] = value
    return {NAMESPACE: extra} if extra else None


def media_kind(mime: Any) -> str:
    """The kind of media that a mime type names; a document where it names none of the others."""
    head = mime.split("/", 1)[0] if isinstance(mime, str) else ""
    return head if head in ("image", "audio", "video") else "document"

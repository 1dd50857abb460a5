"""What a Chat decoder remembers of one choice: part keys, and the little that can only be said when the stream ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rein_nb.dialects.chat_calls import CallTracker
from rein_nb.dialects.chat_media import decode_base64
from rein_nb.dialects.think_tags import ThinkTags
from rein_nb.ir import Citation, MediaPart
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON

_TEXT_OF_DETAIL = {"reasoning.text": "text", "reasoning.summary": "summary"}


class ChoiceState:
    """One choice while it streams. Keeps ids, positions and opaque state; of text, only what comes in one piece at the end."""

    __slots__ = (
        "annotations", "audio", "calls", "details", "field", "finish", "index", "last", "lists", "logprobs", "media",
        "parts", "reasoned", "refused", "runs", "seen", "sounds", "tags", "unknown",
    )  # fmt: skip

    def __init__(self, index: int, namespace: str, think_tags: bool, names: Mapping[str, str] | None = None) -> None:
        self.index = index
        self.calls = CallTracker(index, namespace, names)
        self.tags = ThinkTags() if think_tags else None
        self.finish: str | None = None
        self.refused = False
        self.reasoned = False
        self.field: str | None = None
        self.lists = False
        self.last = ""
        self.runs: dict[str, int] = {}
        self.logprobs: dict[str, Any] = {}
        self.details: list[dict[str, Any]] = []
        self.audio: dict[str, Any] = {}
        self.sounds: list[str] = []
        self.annotations: list[JSON] = []
        self.parts: list[JSON] = []
        self.seen: dict[str, JSON] = {}
        self.unknown: dict[str, list[JSON]] = {}
        self.media = 0

    def key(self, kind: str) -> d.PartKey:
        """The part that content of a kind goes to. Content that comes as a list keeps its order: a kind that returns gets a new part."""
        run = self.runs.get(kind)
        if run is None:
            run = self.runs[kind] = 0
        elif self.lists and self.last != kind:
            run = self.runs[kind] = run + 1
        self.last = kind
        return self.named(kind, run)

    def named(self, kind: str, run: int = 0) -> d.PartKey:
        """The key of a kind's n-th part."""
        if run == 0 and self.index == 0:
            return kind
        return (self.index, kind, run)

    def add_logprobs(self, logprobs: dict[str, Any]) -> None:
        """Append what a chunk reports: every list grows, everything else is replaced."""
        for name, value in logprobs.items():
            if isinstance(value, list):
                known = self.logprobs.get(name)
                if isinstance(known, list):
                    known.extend(value)
                else:
                    self.logprobs[name] = list(value)
            elif value is not None:
                self.logprobs[name] = value

    def add_detail(self, detail: dict[str, Any]) -> None:
        """Append a ``reasoning_details`` item, or join it to the one it continues: same type, index and id (C064)."""
        field = _TEXT_OF_DETAIL.get(str(detail.get("type")))
        last = self.details[-1] if self.details else None
        if (
            field is not None
            and last is not None
            and last.get("type") == detail.get("type")
            and last.get("index") == detail.get("index")
            and (not last.get("id") or not detail.get("id") or last["id"] == detail["id"])
        ):
            for name, value in detail.items():
                if name == field and isinstance(value, str) and isinstance(last.get(name), str):
                    last[name] += value
                elif value is not None:
                    last[name] = value
        else:
            self.details.append(dict(detail))

    def add_audio(self, audio: dict[str, Any]) -> str:
        """Keep a piece of generated sound; returns the transcript's piece."""
        for name, value in audio.items():
            if not value:
                continue
            if name == "data" and isinstance(value, str):
                self.sounds.append(value)
            elif name != "transcript":
                self.audio[name] = value
        transcript = audio.get("transcript")
        return transcript if isinstance(transcript, str) else ""

    def sound(self, namespace: str, mime_type: str | None) -> list[d.Delta]:
        """The generated sound as one media part, with the id that refers to it in a later request."""
        pieces, facts = self.sounds, self.audio
        if not pieces and not facts:
            return []
        data = decode_base64(pieces)
        part = (self.index, "audio", 0)
        if data is None or not pieces:
            text = "".join(pieces)
            extra = {namespace: {"audio": {**facts, **({"data": text} if text else {})}}}
            return [d.PartExtra(extra, self.named("text"), kind="text")]
        media = MediaPart(kind="audio", mime_type=mime_type, data=data, extra={namespace: facts} if facts else {})
        return [d.Media(media, part)]


def citation(annotation: dict[str, Any], namespace: str) -> Citation:
    """A citation from an annotation of any known type; what is native to it is kept verbatim."""
    kind = str(annotation.get("type") or "")
    inner = annotation.get(kind)
    body = inner if isinstance(inner, dict) else annotation
    start, end = body.get("start_index"), body.get("end_index")
    quote = body.get("content") or body.get("snippet") or body.get("quote")
    if isinstance(quote, list):  # OpenRouter: a parsed file, as content parts
        quote = "\n".join(p["text"] for p in quote if isinstance(p, dict) and isinstance(p.get("text"), str))
    source = next((body[n] for n in ("url", "file_id", "hash", "id") if isinstance(body.get(n), str)), "")
    title = next((body[n] for n in ("title", "filename", "name") if isinstance(body.get(n), str)), None)
    return Citation(
        source=source,
        title=title,
        quote=quote if isinstance(quote, str) and quote else None,
        start=start if type(start) is int else None,
        end=end if type(end) is int else None,
        extra={namespace: annotation},
    )

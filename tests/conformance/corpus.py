"""The recorded exchanges that are model calls, each with the provider that reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rein_nb import LLM, Config
from rein_nb.dialects.base import Codec, Target
from rein_nb.dialects.framing import EventReader, JSONArrayParser, NDJSONParser, SSEParser, parse_event
from rein_nb.ir import Completion, StreamEvent
from rein_nb.providers.codecs import codec_for
from rein_nb.stream import Accumulator
from tests.support import load_recording, recordings

FOLDERS = (
    "anthropic", "deepseek", "google", "google-code-assist", "openai-chat", "openai-compatible", "openai-responses",
)  # fmt: skip

_KINDS = (
    (re.compile(r"/messages$|:(?:stream)?[rR]awPredict$"), "anthropic", "anthropic"),
    (re.compile(r"/v1internal:(?:stream)?[gG]enerateContent$"), "antigravity", "google-code-assist"),
    (re.compile(r":(?:stream)?[gG]enerateContent$"), "google", "google"),
    (re.compile(r"/responses$|/responses/resp_[0-9a-f]+$"), "openai", "openai-responses"),
    (re.compile(r"/api/chat$"), "ollama", "ollama"),
    (re.compile(r"/completions$"), "openai-chat", "openai-chat"),
)
KEY = "sk-conformance-0123456789"


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded answer to a model call."""

    name: str
    provider: str
    dialect: str
    scenario: str
    model: str
    asked: Any
    response: dict[str, Any] = field(repr=False)
    vendor: str = ""

    @property
    def ok(self) -> bool:
        """Whether the answer was a success by its status."""
        return bool(self.response["status"] < 300)

    @property
    def streamed(self) -> bool:
        """Whether the body is a stream of events."""
        return bool(self.response["stream"]) and self.framing is not None

    @property
    def framing(self) -> str | None:
        """How events are framed: ``sse``, ``ndjson``, ``array``; None for one JSON document."""
        body = self.response["body"].lstrip("\ufeff \r\n\t")
        if body[:1] == "[":
            return "array"
        if body[:1] != "{":
            return "sse" if re.search(r"(?m)^(data|event|id|retry)?:", body) else None
        return "ndjson" if self.dialect == "ollama" and body.count("\n{") else None

    def llm(self, base_url: str, **config: Any) -> LLM:
        """An LLM of ours that is pointed at a server with this answer."""
        config.setdefault("max_retries", 0)
        prefix = {"openai": "/v1", "openai-chat": "/v1"}.get(self.provider, "")
        extra = {"opt_in": True} if self.provider == "antigravity" else {}
        extensions = {"google-code-assist": {"project": "p"}} if self.provider == "antigravity" else {}
        return LLM(
            Config(
                provider=self.provider,
                model=self.model,
                api_key=KEY,
                base_url=base_url + prefix,
                extra=extra,
                extensions=extensions,
                **config,
            )
        )

    def events(self) -> list[tuple[str | None, Any]]:
        """The stream's events, parsed."""
        parser = {"sse": SSEParser, "ndjson": NDJSONParser, "array": JSONArrayParser}[self.framing or "sse"]()
        frames = [*parser.feed(self.response["body"].encode()), *parser.close()]
        read = EventReader().read
        return [(name, read(data)) for name, data in frames]

    def document(self) -> Any:
        """A whole answer, parsed."""
        return parse_event(self.response["body"])

    def prefixes(self) -> list[str]:
        """The body's prefixes, cut after each event, the whole left out."""
        body = self.response["body"]
        if self.framing != "sse":
            return []
        ends = [m.end() for m in re.finditer(r"\r\n\r\n|\n\n|\r\r", body)]
        return [body[:end] for end in ends if body[end:].strip()]


def cases(*folders: str) -> Iterator[Case]:
    """Every recorded answer to a model call in these folders (all by default), errors included."""
    for path in recordings(*(folders or FOLDERS)):
        recording = load_recording(path)
        for n, exchange in enumerate(recording["exchanges"]):
            request = exchange["request"]
            where = request["path"].partition("?")[0]
            kind = next(((provider, dialect) for pattern, provider, dialect in _KINDS if pattern.search(where)), None)
            if kind is None:
                continue
            asked = request["json"] if isinstance(request["json"], dict) else {}
            named = re.search(r"models/([^:/]+)", where)
            model = asked.get("model") or recording.get("model") or (named[1] if named else "") or "unknown-model"
            yield Case(
                name=f"{path.parent.name}/{path.stem}#{n}",
                provider=kind[0],
                dialect=kind[1],
                scenario=recording["scenario"],
                model=str(model),
                asked=asked,
                response=exchange["response"],
                vendor=recording["provider"].partition(".")[0],  # for hosts, what is the same in all regions
            )


def through_codec(case: Case, target: Target, events: list[tuple[str | None, Any]] | None = None) -> Completion:
    """The completion that the codec and the accumulator give, without any network."""
    codec: Codec = codec_for(case.dialect)
    acc = Accumulator(target.origin)
    if case.streamed:
        decoder = codec.decoder(target)
        for name, data in case.events() if events is None else events:
            for delta in decoder.feed(data, name):
                acc.feed(delta)
        for delta in decoder.close():
            acc.feed(delta)
    else:
        for delta in codec.deltas(case.document(), target):
            acc.feed(delta)
    acc.end()
    return acc.completion


def events_while_open(case: Case, target: Target) -> int:
    """How many events a stream gives before its end is known: what a consumer of an unfinished stream has seen."""
    acc = Accumulator(target.origin)
    count = len(acc.start())
    decoder = codec_for(case.dialect).decoder(target)
    for name, data in case.events():
        for delta in decoder.feed(data, name):
            count += len(acc.feed(delta))
    return count


def comparable(completion: Completion) -> dict[str, Any]:
    """A completion as JSON data, less what differs by nature: times, the connection's headers, prices, request warnings."""
    data: dict[str, Any] = json.loads(completion.model_dump_json(exclude={"timing", "warnings"}))
    data["usage"].pop("cost_usd", None)
    data["extra"].pop("http", None)
    if data["error"] and data["error"]["kind"] in ("stream_cut", "malformed_response"):
        # Our own words for a cut, and how much of the cut event is quoted, depend on who noticed it.
        data["error"] = {"kind": data["error"]["kind"]}
    return data


def terminal_count(events: list[StreamEvent]) -> int:
    """How many terminal events there are."""
    return sum(event.type in ("done", "error") for event in events)

"""Replaying recorded answers through a codec, for the tests of single dialects."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rein_nb.dialects.base import Codec, Target
from rein_nb.dialects.framing import Frame, SSEParser, parse_event
from rein_nb.ir import Completion, Message, StreamDone, StreamError, StreamEvent
from rein_nb.stream import Accumulator
from tests.support import load_recording, recordings


@dataclass(frozen=True, slots=True)
class Exchange:
    """One recorded exchange: where it is from, what was asked, what came."""

    name: str
    n: int
    path: str
    request: Any
    status: int
    streamed: bool
    body: str
    scenario: str

    @property
    def is_sse(self) -> bool:
        return self.streamed and self.body.lstrip()[:1] not in ("{", "[")


def exchanges(folders: Sequence[str], ending: str) -> Iterator[Exchange]:
    """All recorded exchanges in the folders whose path (without query) ends so."""
    for path in recordings(*folders):
        recording = load_recording(path)
        for n, item in enumerate(recording["exchanges"]):
            request, response = item["request"], item["response"]
            if request["path"].partition("?")[0].endswith(ending):
                yield Exchange(
                    f"{path.parent.name}/{path.stem}", n, request["path"], request["json"], response["status"],
                    response["stream"], response["body"], recording["scenario"],
                )  # fmt: skip


def frames(body: str) -> list[Frame]:
    """The events of an SSE body, fed in uneven pieces."""
    parser = SSEParser()
    data = body.encode()
    out: list[Frame] = []
    at = 0
    for size in [7, 1, 4096, 333] * (len(data) // 4000 + 1):
        out += parser.feed(data[at : at + size])
        at += size
    out += parser.feed(data[at:])
    return out + list(parser.close())


def replay(codec: Codec, events: Sequence[tuple[str | None, Any]], target: Target) -> list[StreamEvent]:
    """Every stream event that parsed wire events give."""
    accumulator = Accumulator(target.origin)
    decoder = codec.decoder(target)
    out: list[StreamEvent] = []
    for name, data in events:
        for delta in decoder.feed(data, name):
            out += accumulator.feed(delta)
    for delta in decoder.close():
        out += accumulator.feed(delta)
    out += accumulator.end()
    return out


def outcome(events: Sequence[StreamEvent]) -> Completion:
    """The completion of a replay, having checked that it ends with its one terminal event."""
    terminal = [event for event in events if isinstance(event, StreamDone | StreamError)]
    assert len(terminal) == 1
    assert events[-1] is terminal[0]
    return terminal[0].completion


def parsed(body: str) -> list[tuple[str | None, Any]]:
    """The events of an SSE body, their data parsed."""
    return [(name, parse_event(data)) for name, data in frames(body)]


def stored(message: Message) -> Message:
    """The message after it was saved and loaded."""
    loaded = Message.model_validate_json(message.model_dump_json())
    assert loaded == message
    return loaded


def comparable(completion: Completion) -> dict[str, Any]:
    """A completion as JSON data, without its times."""
    return json.loads(completion.model_dump_json(exclude={"timing"}))


def without_nulls(value: Any) -> Any:
    """JSON without null members."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value

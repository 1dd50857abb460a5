"""Damaged streams, for robustness tests: events lost, doubled, reordered, cut, and filled with junk."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from rein_nb.dialects.base import Codec, Target
from rein_nb.ir import InvalidRequest, Message, Request
from tests.dialects.wire_replay import outcome, replay

JUNK: list[Any] = [
    None, True, 0, -1, 10**30, 1.5, float("nan"), "", "x", [], {}, [None], {"type": None}, {"type": []}, [[[]]],
    {"type": "message"}, {"text": 3}, {"error": 1},
]  # fmt: skip

Events = list[tuple[str | None, Any]]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else []
        for key in keys:
            found.append((item, key))
            waiting.append(item[key])
    return found


@st.composite
def damaged(draw: st.DrawFn, streams: list[Events]) -> Events:
    """One of the streams, damaged in up to six ways."""
    events = copy.deepcopy(draw(st.sampled_from(streams)))
    for _ in range(draw(st.integers(0, 6))):
        if not events:
            break
        at = draw(st.integers(0, len(events) - 1))
        match draw(st.sampled_from(["lose", "double", "move", "cut", "junk", "junk", "junk", "drop", "replace"])):
            case "lose":
                del events[at]
            case "double":
                events.insert(draw(st.integers(0, len(events))), copy.deepcopy(events[at]))
            case "move":
                events.insert(draw(st.integers(0, len(events) - 1)), events.pop(at))
            case "cut":
                del events[at:]
            case "replace":
                events[at] = (
                    draw(st.sampled_from([None, "error", events[at][0]])),
                    copy.deepcopy(draw(st.sampled_from(JUNK))),
                )
            case how:
                places = _places(events[at][1])
                if places:
                    container, key = draw(st.sampled_from(places))
                    if how == "junk" or not isinstance(container, dict):
                        container[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
                    else:
                        del container[key]
    return events


def survives(codec: Codec, events: Events, target: Target) -> None:
    """Whatever came: no exception, one terminal event, a message that can be saved, loaded and sent."""
    seen = replay(codec, events, target)
    completion = outcome(seen)
    for event in seen[:: max(1, len(seen) // 5)]:
        assert isinstance(event.partial, Message)
    assert completion.message.parts == seen[-1].partial.parts
    loaded = Message.model_validate_json(completion.message.model_dump_json())
    try:
        body = codec.encode(Request(messages=[Message(role="user", content="hi"), loaded]), target, stream=True).body
    except InvalidRequest:
        return
    assert body["model"] == target.model

"""Small Chat inputs for tests: chunks, streams of them, and what they decode to."""

from __future__ import annotations

from typing import Any

from rein_nb.dialects.base import Capabilities, Quirks, Target, WireCall
from rein_nb.dialects.chat import ChatCodec
from rein_nb.ir import Completion, Message, Request, StreamDone, StreamError, StreamEvent
from rein_nb.stream import Accumulator

CODEC = ChatCodec()


def target(provider: str = "acme", model: str = "m1", **quirks: Any) -> Target:
    return Target(provider=provider, dialect="openai-chat", model=model, quirks=Quirks(**quirks))


def limited(**capabilities: Any) -> Target:
    return Target(provider="acme", dialect="openai-chat", model="m1", capabilities=Capabilities(**capabilities))


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk with one choice."""
    return {
        "id": "r1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m1-snapshot",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
        **more,
    }


def fragment(**call: Any) -> dict[str, Any]:
    """A delta with one tool-call fragment: `name` and `arguments` go into its function."""
    function = {key: call.pop(key) for key in ("name", "arguments") if key in call}
    return {"tool_calls": [{**call, "function": function}]}


def events(wire: list[Any], to: Target | None = None, call: WireCall | None = None) -> list[StreamEvent]:
    """All events of a stream of parsed wire events; a pair is (event name, data)."""
    to = to or target()
    accumulator, decoder = Accumulator(to.origin), CODEC.decoder(to, call)
    out: list[StreamEvent] = []
    for item in wire:
        name, data = item if isinstance(item, tuple) else (None, item)
        for delta in decoder.feed(data, name):
            out += accumulator.feed(delta)
    for delta in decoder.close():
        out += accumulator.feed(delta)
    return [*out, *accumulator.end()]


def stream(*wire: Any, to: Target | None = None, call: WireCall | None = None) -> Completion:
    """The completion of a stream."""
    last = events(list(wire), to, call)[-1]
    assert isinstance(last, StreamDone | StreamError)
    return last.completion


def body(messages: list[Message] | Message, to: Target | None = None, *, streamed: bool = False, **fields: Any) -> Any:
    """The wire body of a request."""
    messages = [messages] if isinstance(messages, Message) else messages
    return CODEC.encode(Request(messages=messages, **fields), to or target(), stream=streamed).body


def user(text: str = "hi") -> Message:
    return Message(role="user", content=text)


DONE = "[DONE]"

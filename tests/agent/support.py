"""Helpers for the agent's tests: what a valid transcript is, and event grammar."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rein_nb.agent import heal
from rein_nb.agent.events import AgentEnd, AgentEvent
from rein_nb.dialects.base import Target
from rein_nb.dialects.handoff import handoff
from rein_nb.ir import Message, ToolCall
from rein_nb.testing import validate

TARGETS = [
    Target(provider="openai", dialect="openai-responses", model="m"),
    Target(provider="openai-chat", dialect="openai-chat", model="m"),
    Target(provider="anthropic", dialect="anthropic", model="m"),
    Target(provider="deepseek", dialect="openai-chat", model="m"),
    Target(provider="google", dialect="google", model="m"),
    Target(provider="mistral", dialect="openai-chat", model="m"),
]


def call(id: str, name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def assert_valid(messages: Sequence[Message]) -> None:
    """Every call has exactly one result, right behind its message and in order; nothing is left to repair for anybody."""
    expected: list[str] = []
    for message in messages:
        results = message.tool_results
        if results:
            assert message.role == "tool"
            assert [r.tool_call_id for r in results] == expected[: len(results)], [m.role for m in messages]
            del expected[: len(results)]
            continue
        assert not expected, f"calls without a result: {expected}"
        expected = [c.id for c in message.tool_calls]
    assert not expected, f"calls without a result at the end: {expected}"
    healed = heal(messages)
    assert healed.repaired == []
    assert healed.messages == list(messages)
    # Some APIs want a user's message first; that is no fault of the part that is looked at.
    opened = [Message(role="user", content="hi"), *messages]
    for target in TARGETS:
        assert handoff(opened, target).repairs == 0, target.dialect


def assert_accepted(messages: Sequence[Message]) -> None:
    """All six kinds of provider would take the transcript and a next question, by their documented rules."""
    for target in validate.TARGETS:
        assert validate.validate_transcript([*messages, Message(role="user", content="and now?")], target) == [], target


def assert_event_grammar(events: Sequence[AgentEvent]) -> None:
    """`AgentStart` first, exactly one `AgentEnd`, last; numbers without gaps; calls start before they end; turns are closed in order."""
    assert events[0].type == "agent_start"
    assert [e.type for e in events].count("agent_end") == 1
    assert isinstance(events[-1], AgentEnd)
    assert [e.seq for e in events] == list(range(len(events)))
    assert len({e.run_id for e in events}) == 1
    open_turn = None
    message_open = False
    call_open = None
    running: set[str] = set()
    for event in events:
        if event.type == "turn_start":
            assert open_turn is None
            open_turn = event.turn
        elif event.type == "turn_end":
            assert open_turn == event.turn
            assert not running
            assert call_open is None
            open_turn = None
        elif event.type == "model_call_start":
            assert call_open is None
            assert open_turn == event.turn
            call_open = event.purpose
        elif event.type == "model_call_end":
            assert call_open == event.purpose
            call_open = None
        elif event.type == "message_start":
            assert not message_open
            message_open = True
        elif event.type == "message_update":
            assert message_open
        elif event.type == "message_end":
            assert message_open
            message_open = False
        elif event.type == "tool_execution_start":
            assert event.call.id not in running
            running.add(event.call.id)
        elif event.type == "tool_execution_update":
            assert event.call_id in running
        elif event.type == "tool_execution_end":
            running.discard(event.call.id)
    assert not running
    assert not message_open
    assert open_turn is None


@contextlib.contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, as it does in a terminal; a shell's background jobs are started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        await asyncio.sleep(0.01)
    return False

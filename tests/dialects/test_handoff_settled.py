"""What is remembered of a history's beginning changes nothing of what is sent, however the conversation goes on."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rein_nb.dialects import handoff_settled
from rein_nb.dialects.base import Quirks, Target
from rein_nb.ir import InvalidRequest, Message, Options, Request, TextPart, ThinkingPart, ToolCall, ToolResult
from rein_nb.providers.codecs import codec_for
from tests.dialects.test_handoff import CLAUDE, DEEPSEEK, TARGETS, _messages
from tests.support import examples

AUTO = Options(model="m", max_output_tokens=9, extensions={"anthropic": {"cache_control": "auto"}})
PLAIN = Options(model="m", max_output_tokens=9)
TOOL_TURNS = replace(DEEPSEEK, quirks=Quirks(reasoning_replay="tool_turns", reasoning_field="reasoning_content"))
ALL = [*TARGETS, TOOL_TURNS, replace(CLAUDE, quirks=Quirks(mid_system=True))]


@pytest.fixture(autouse=True)
def from_the_first_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rein_nb.dialects.handoff.LEAST", 0)
    monkeypatch.setattr(handoff_settled, "LEAST", 0)


def sent(history: list[Message], target: Target) -> tuple[Any, ...]:
    """Everything that comes of a request; what is refused is a result too."""
    options = AUTO if target.dialect == "anthropic" else PLAIN
    try:
        call = codec_for(target.dialect).encode(Request.make(history, options=options), target, stream=True)
    except InvalidRequest as exc:
        return ("refused", str(exc))
    return (json.dumps(call.body), call.warnings, call.tool_names, call.body)


def strangers(history: list[Message]) -> list[Message]:
    """The same messages as new objects, of which nothing is known."""
    return [Message.model_validate(message.model_dump()) for message in history]


def round_of(ids: list[str], names: list[str], origin: Any, thinking: bool, text: str) -> list[Message]:
    """An assistant message with calls, and the results on the spot."""
    parts: list[Any] = [ThinkingPart(text="hm", signature="S")] if thinking else []
    parts += [TextPart(text=text)] if text else []
    parts += [ToolCall(id=i, name=n, arguments={"q": n}) for i, n in zip(ids, names, strict=False)]
    results = [ToolResult(tool_call_id=i, name=n, content=f"done {i}") for i, n in zip(ids, names, strict=False)]
    return [Message(role="assistant", parts=parts, origin=origin), Message(role="tool", parts=results)]


_rounds = st.builds(
    round_of,
    st.lists(st.sampled_from(["a", "b", "c", "call_1", "x|y", "é"]), min_size=1, max_size=2, unique=True),
    st.lists(st.sampled_from(["ls", "files/read", "pwd"]), min_size=2, max_size=2),
    st.sampled_from([None, *(target.origin for target in TARGETS)]),
    st.booleans(),
    st.sampled_from(["", "words"]),
)
_histories = st.lists(
    st.one_of(_rounds, _rounds, _rounds, _messages.map(lambda message: [message])), min_size=1, max_size=6
).map(lambda chunks: [Message(role="user", content="go"), *(message for chunk in chunks for message in chunk)])


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(_histories, st.sampled_from(ALL), st.data())
def test_a_growing_history_is_sent_as_one_that_nobody_knows(
    history: list[Message], target: Target, data: st.DataObject
) -> None:
    system = Message(role="system", content="be brief")
    lead = [system] if data.draw(st.booleans()) else []
    before: list[tuple[Any, ...]] = []
    for end in range(1, len(history) + 1):
        grown = [*lead, *history[:end]]
        out = sent(grown, target)
        assert out == sent(strangers(grown), target)
        before.append(out)
    for out in before:
        assert out[0] == "refused" or json.dumps(out[3]) == out[0], "a later request changed an earlier one's body"


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(_histories, _histories, st.sampled_from(ALL), st.data())
def test_a_conversation_that_goes_another_way_is_sent_as_it_is(
    history: list[Message], other: list[Message], target: Target, data: st.DataObject
) -> None:
    for end in range(1, len(history) + 1):
        sent(history[:end], target)
    at = data.draw(st.integers(0, len(history)))
    branch = [*history[:at], *other[1:]]
    assert sent(branch, target) == sent(strangers(branch), target)
    assert sent(history, target) == sent(strangers(history), target)


def long(n: int) -> list[Message]:
    rounds = [m for i in range(n) for m in round_of([f"id{i}"], ["ls"], CLAUDE.origin, False, "words")]
    return [Message(role="user", content="go"), *rounds]


def test_the_settled_part_is_known_and_only_the_rest_is_new() -> None:
    history = long(8)
    sent(history[:-2], CLAUDE)
    known = handoff_settled.find(history, CLAUDE)
    assert known is not None
    assert len(known.sources) == len(history) - 2
    at, turns = known.wire["anthropic"]
    assert (at, len(turns)) == (len(history) - 2, len(history) - 2)


def test_an_answer_that_may_still_be_gone_on_with_is_not_settled() -> None:
    history = [*long(8), Message(role="assistant", parts=[ToolCall(id="last", name="ls")], origin=CLAUDE.origin)]
    sent(history, CLAUDE)
    history.append(Message(role="user", content="and?"))
    known = handoff_settled.find(history, CLAUDE)
    assert known is not None
    assert len(known.sources) == len(history) - 2


def test_parts_that_were_exchanged_in_place_are_seen() -> None:
    history = long(8)
    sent(history, CLAUDE)
    history[2].parts[0] = history[2].parts[0].model_copy(update={"content": [TextPart(text="redacted")]})
    assert "redacted" in sent(history, CLAUDE)[0]


def test_nothing_is_remembered_of_a_conversation_that_is_gone() -> None:
    history = long(8)
    sent(history, CLAUDE)
    anchor = id(history[0])
    assert any(key[1] == anchor for key in handoff_settled._known)
    del history
    gc.collect()
    assert not any(key[1] == anchor for key in handoff_settled._known)


def test_no_more_conversations_than_a_few_are_remembered() -> None:
    alive = [long(4) for _ in range(handoff_settled.MOST + 10)]
    for history in alive:
        sent(history, CLAUDE)
    assert len(handoff_settled._known) <= handoff_settled.MOST
    assert handoff_settled._known.keys() == handoff_settled._anchors.keys()


def test_marks_that_are_taken_off_one_request_are_still_there_for_the_next() -> None:
    mark = {"anthropic": {"cache_control": {"type": "ephemeral"}}}
    history = long(8)
    marked = [
        message.model_copy(update={"parts": [part.model_copy(update={"extra": mark}) for part in message.parts]})
        for message in history
    ]
    for end in range(3, len(marked) + 1, 2):
        for options in (PLAIN, AUTO):
            request = Request.make(marked[:end], options=options)
            fresh = Request.make(strangers(marked[:end]), options=options)
            encode = codec_for("anthropic").encode
            known = encode(request, CLAUDE, stream=True)
            again = encode(fresh, CLAUDE, stream=True)
            assert (known.body, known.warnings) == (again.body, again.warnings)

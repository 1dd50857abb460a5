"""Healing: a pure pass that makes any record valid, says what it repaired, and changes nothing that was right."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rein_nb.agent import Agent, heal
from rein_nb.ir import Message, ToolCall, ToolResult
from rein_nb.testing import ScriptedProvider
from tests.agent.support import assert_valid, call


def user(text: str = "hi") -> Message:
    return Message(role="user", content=text)


def said(*calls: ToolCall, text: str = "") -> Message:
    return Message(role="assistant", content=text or None, tool_calls=list(calls))


def answered(id: str, text: str = "ok") -> Message:
    return Message(role="tool", tool_call_id=id, content=text)


def test_a_valid_transcript_passes_unchanged() -> None:
    messages = [user(), said(call("1", "f"), call("2", "f")), answered("1"), answered("2"), said(text="done")]
    healed = heal(messages)
    assert healed.repaired == []
    assert all(a is b for a, b in zip(healed.messages, messages, strict=True))


def test_C107_a_lost_result_is_made_up_truthfully_and_the_others_stay() -> None:
    healed = heal(
        [user("go"), said(call("t1", "ls"), call("t2", "pwd"), text="ok"), answered("t1", "L"), user("continue")]
    )
    assert [m.role for m in healed.messages] == ["user", "assistant", "tool", "tool", "user"]
    assert healed.messages[2].text == "L"
    lost = healed.messages[3].tool_results[0]
    assert (lost.tool_call_id, lost.status) == ("t2", "interrupted")
    assert "may have run" in lost.text
    assert len(healed.repaired) == 1
    assert_valid(healed.messages)


def test_words_between_call_and_result_move_behind_it() -> None:
    healed = heal([said(call("1", "f")), user("hurry"), answered("1")])
    assert [m.role for m in healed.messages] == ["assistant", "tool", "user"]
    assert_valid(healed.messages)


def test_results_out_of_order_doubled_or_orphaned_are_put_right() -> None:
    messages = [
        answered("0"),
        said(call("1", "f"), call("2", "f")),
        answered("2", "two"),
        answered("1", "one"),
        answered("1", "again"),
        answered("9"),
    ]
    healed = heal(messages)
    assert [m.text for m in healed.messages if m.role == "tool"] == ["one", "two"]
    assert len(healed.repaired) == 3
    assert_valid(healed.messages)


def test_several_results_in_one_message_are_taken_apart() -> None:
    both = Message(
        role="user", parts=[ToolResult(tool_call_id="1", content="a"), ToolResult(tool_call_id="2", content="b")]
    )
    mixed = Message(role="user", content=[*both.parts, "and go on"])
    healed = heal([said(call("1", "f"), call("2", "f")), mixed])
    assert [(m.role, m.text) for m in healed.messages[1:]] == [("tool", "a"), ("tool", "b"), ("user", "and go on")]
    assert_valid(healed.messages)


def test_calls_without_ids_get_them_and_keep_their_results() -> None:
    healed = heal([said(ToolCall(name="f"), ToolCall(name="g")), answered("", "first"), answered("", "second")])
    assert [m.text for m in healed.messages[1:]] == ["first", "second"]
    assert_valid(healed.messages)


CALL_IDS = st.sampled_from(["", "a", "b", "c"])
MESSAGES = st.one_of(
    st.just(user()),
    st.lists(CALL_IDS, max_size=3).map(lambda ids: said(*(ToolCall(id=i, name="f") for i in ids), text="t")),
    CALL_IDS.map(answered),
    st.lists(CALL_IDS, min_size=1, max_size=2).map(
        lambda ids: Message(role="user", parts=[ToolResult(tool_call_id=i, content="r") for i in ids])
    ),
    st.just(Message(role="system", content="s")),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(MESSAGES, max_size=8))
def test_any_history_heals_to_a_valid_one_and_healing_twice_is_healing_once(messages: list[Message]) -> None:
    before = [m.model_dump_json() for m in messages]
    healed = heal(messages)
    assert_valid(healed.messages)
    again = heal(healed.messages)
    assert again.repaired == []
    assert again.messages == healed.messages
    assert [m.model_dump_json() for m in messages] == before, "nothing is changed in place"


async def test_an_agent_heals_what_it_is_given() -> None:
    llm = ScriptedProvider.llm("fine")
    agent = Agent(llm, messages=[user("go"), said(call("1", "f"))])
    result = await agent.arun("and?")
    assert_valid(result.messages)
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "user", "assistant"]


async def test_dicts_are_messages_too() -> None:
    wire: list[Any] = [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
    ]
    agent = Agent(ScriptedProvider.llm("fine"), messages=wire)
    assert_valid(agent.messages)

"""The context window: measured by what the provider reported, shortened at turn boundaries only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rein_nb.agent import Agent, Context
from rein_nb.agent.context import Compaction, Meter, boundaries, choose_cut, compact, estimate_tokens
from rein_nb.agent.events import Notice
from rein_nb.ir import Completion, ContextOverflow, ErrorInfo, InvalidRequest, MediaPart, Message, Usage
from rein_nb.store import Store
from rein_nb.testing import ScriptedProvider
from tests.agent.support import assert_event_grammar, assert_valid, call

scripted = ScriptedProvider.llm


def user(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str, *calls: Any) -> Message:
    return Message(role="assistant", content=text or None, tool_calls=list(calls))


def result(id: str, text: str) -> Message:
    return Message(role="tool", tool_call_id=id, content=text)


LONG = [
    message
    for n in range(6)
    for message in (
        user(f"q{n}"),
        said("", call(f"a{n}", "f"), call(f"b{n}", "f")),
        result(f"a{n}", "x" * 700),
        result(f"b{n}", "y"),
        said(f"a{n}"),
    )
]


def test_a_cut_never_splits_a_call_from_its_result() -> None:
    for at in boundaries(LONG):
        assert_valid(LONG[at:])
        assert_valid(LONG[:at])
    assert boundaries(LONG)[:4] == [1, 4, 5, 6]


@pytest.mark.parametrize("keep", [1, 50, 300, 600, 100_000])
def test_the_cut_prefers_a_users_turn_that_fits(keep: int) -> None:
    cut = choose_cut(LONG, Compaction(), keep)
    assert cut in boundaries(LONG)
    if 250 < keep < 1000:
        assert LONG[cut].role == "user"
        assert sum(map(estimate_tokens, LONG[cut:])) <= keep


def test_reported_usage_is_the_anchor() -> None:
    meter = Meter()
    guessed = meter.tokens(LONG, Compaction())
    assert guessed == sum(map(estimate_tokens, LONG))
    meter.anchor(Usage(input_tokens=5000, output_tokens=100), len(LONG))
    assert meter.tokens(LONG, Compaction()) == 5100
    assert meter.tokens([*LONG, user("x" * 350)], Compaction()) == 5100 + estimate_tokens(user("x" * 350))
    meter.anchor(Usage(), 99)
    assert meter.reported == 5100, "an unreported count is no count"


def test_media_count_too() -> None:
    assert estimate_tokens(Message(role="user", content=[MediaPart(kind="image", data=b"x")])) > 1000


async def never(_: list[Message]) -> str:
    raise AssertionError("no summary was wanted")


async def test_dropping_leaves_a_visible_note_and_the_task() -> None:
    done = await compact(LONG, Compaction(), Context(), 250, never)
    assert done is not None
    view = done.view(LONG)
    assert "left out" in view[0].text
    assert_valid(view)
    one_turn = [
        user("the task"),
        *[m for n in range(6) for m in (said("", call(f"{n}", "f")), result(f"{n}", "x" * 700))],
    ]
    inside = await compact(one_turn, Compaction(), Context(), 300, never)
    assert inside is not None
    view = inside.view(one_turn)
    assert [m.text for m in view[:2]][1] == "the task"
    assert_valid(view)


async def test_a_function_of_ones_own_may_be_plain_or_async() -> None:
    def keep_first(older: list[Message]) -> list[Message]:
        return older[:1]

    async def nothing(older: list[Message]) -> list[Message]:
        return []

    for strategy, expected in ((keep_first, 1), (nothing, 0)):
        done = await compact(LONG, Compaction(), Context(strategy=strategy), 250, never)  # type: ignore[arg-type]
        assert done is not None
        assert len(done.instead) == expected


async def test_a_full_window_is_shortened_before_the_request_and_the_record_is_kept() -> None:
    notices: list[str] = []
    llm = scripted(*[[f"answer {n}", Usage(input_tokens=300 + 200 * n, output_tokens=10)] for n in range(6)])
    agent = Agent(
        llm, context=Context(max_tokens=1000, keep=0.3),
        on_event=lambda e: notices.append(e.message) if isinstance(e, Notice) and e.kind == "compaction" else None,
    )  # fmt: skip
    for n in range(6):
        await agent.arun(f"question {n} " + "x" * 200)
    sizes = [len(r.messages) for r in llm.backend.requests]  # type: ignore[attr-defined]
    assert notices
    assert sizes[-1] < 11
    assert len(agent.messages) == 12
    assert llm.backend.requests[-1].messages[-1].text.startswith("question 5")  # type: ignore[attr-defined]


async def test_a_summary_is_asked_for_and_counted() -> None:
    overflow = ContextOverflow(ErrorInfo.make("context_overflow", "too long"))
    llm = scripted(overflow, ["We spoke of q0 to q4.", Usage(input_tokens=500, output_tokens=20)], "fits")
    agent = Agent(llm, messages=LONG, context="summary")
    outcome = await agent.arun("and?")
    assert outcome.text == "fits"
    assert outcome.usage.input_tokens is not None
    assert outcome.usage.input_tokens >= 500
    sent = llm.backend.requests[-1].messages  # type: ignore[attr-defined]
    assert sent[0].text.endswith("We spoke of q0 to q4.")
    assert "Summarise" in llm.backend.requests[1].messages[-1].text  # type: ignore[attr-defined]
    assert_valid(sent)
    assert "Summarise" not in "".join(m.text for m in agent.messages)


async def test_the_next_run_goes_on_from_the_shortened_view() -> None:
    overflow = ContextOverflow(ErrorInfo.make("context_overflow", "too long"))
    llm = scripted(overflow, "fits", "next")
    agent = Agent(llm, messages=LONG)
    await agent.arun("and?")
    await agent.arun("more?")
    sizes = [len(r.messages) for r in llm.backend.requests]  # type: ignore[attr-defined]
    assert sizes[2] == sizes[1] + 2
    assert len(agent.messages) == len(LONG) + 4
    agent.messages = agent.messages
    assert agent._compaction == Compaction()


async def test_overflow_with_nothing_to_leave_out_is_the_providers_error() -> None:
    with pytest.raises(ContextOverflow):
        await Agent(scripted("x", fault="context_overflow", repeat=True)).arun("x")


@pytest.mark.parametrize("wrong", [{"strategy": "forget"}, {"keep": 0.9}, {"max_tokens": 0}])
def test_bad_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Context(**wrong)


async def test_the_usage_of_all_turns_adds_up_to_the_runs_whatever_was_asked_again(tmp_path: Path) -> None:
    overflow = ErrorInfo.make("context_overflow", "too long").to_exception()
    overloaded = ErrorInfo.make("overloaded", "busy").to_exception()
    unreadable = Completion(
        message=Message(role="assistant", parts=[]),
        usage=Usage(input_tokens=7, output_tokens=70),
        finish_reason="error",
        native_finish_reason="MALFORMED_FUNCTION_CALL",
        error=ErrorInfo.make("malformed_response", "unreadable", code="MALFORMED_FUNCTION_CALL"),
    )
    history = [Message(role=role, content=f"{role} {n}") for n in range(4) for role in ("user", "assistant")]
    llm = ScriptedProvider.llm(
        [Usage(input_tokens=11), "half an ", overflow],
        [Usage(input_tokens=300), "a summary"],
        unreadable,
        [Usage(input_tokens=13), overloaded],
    )
    other = ScriptedProvider.llm([Usage(input_tokens=17), "there"])
    with Store(tmp_path / "s.sqlite") as store:
        session = store.create()
        agent = Agent(llm, messages=history, context=Context(strategy="summary"), fallback=other, session=session)
        events = [event async for event in agent.events("go on")]
        (result,) = agent.results
        (saved,) = session.results
    assert_event_grammar(events)
    assert result.text == "there"
    (turn,) = result.turns
    assert len(turn.other_calls) == 4
    added = sum((call.usage for call in turn.other_calls), turn.completion.usage)
    assert (added.input_tokens, added.output_tokens) == (result.usage.input_tokens, result.usage.output_tokens)
    frame = result.to_frame("usage")
    assert list(frame["answer"]) == [False] * 4 + [True]
    assert frame["input_tokens"].sum() == result.usage.input_tokens == result.to_frame("runs")["input_tokens"].item()
    assert saved.to_frame("usage")["input_tokens"].tolist() == frame["input_tokens"].tolist()
    assert [call.usage for call in saved.turns[0].other_calls] == [call.usage for call in turn.other_calls]


@pytest.mark.parametrize("made", ["a text", [{"role": "user", "content": "x"}], 3])
async def test_a_compaction_function_that_gives_no_messages_is_told_so(made: Any) -> None:
    agent = Agent(
        ScriptedProvider.llm("x", fault="context_overflow"),
        messages=["a", "b", "c"],
        context=Context(lambda older: made),
    )
    with pytest.raises(InvalidRequest, match="compaction function must return"):
        await agent.arun("go")
    assert_valid(agent.messages)

"""The loop: what follows what."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rein_nb.agent import Agent, Limits
from rein_nb.agent.events import AgentEnd, MessageUpdate, Notice, ToolExecutionEnd, ToolExecutionStart
from rein_nb.ir import (
    Completion,
    ContextOverflow,
    ErrorInfo,
    InvalidRequest,
    MalformedResponse,
    MediaPart,
    Message,
    Overloaded,
    ProviderError,
    ServerToolPart,
    ToolCall,
    Usage,
)
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Toolset, tool
from tests.agent.support import assert_event_grammar, assert_valid, call

scripted = ScriptedProvider.llm


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_run_answers_calls_until_the_model_is_done() -> None:
    llm = scripted(["Let me add. ", call("1", "add", a=1, b=2)], [call("2", "add", a=3, b=3)], "Six.")
    agent = Agent(llm, [add], "Be brief.")
    result = await agent.arun("1+2+3?")
    assert result.text == result.output == "Six."
    assert result.stop_reason == "completed"
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [t.result.text for t in result.tool_runs] == ["3", "6"]
    assert len(result.turns) == 3
    assert result.usage.output_tokens == sum(t.completion.usage.output_tokens or 0 for t in result.turns)
    assert result.new_messages_from == 0
    assert agent.messages == result.messages
    assert_valid(result.messages)
    first = llm.backend.requests[0]  # type: ignore[attr-defined]
    assert [m.role for m in first.messages] == ["system", "user"]
    assert [t.name for t in first.tools] == ["add"]


async def test_the_agent_remembers_across_runs() -> None:
    llm = scripted("one", "two")
    agent = Agent(llm)
    await agent.arun("a")
    result = await agent.arun("b")
    assert [m.text for m in result.messages] == ["a", "one", "b", "two"]
    assert [m.text for m in result.new_messages] == ["b", "two"]
    agent.reset()
    assert agent.messages == []


async def test_events_follow_the_grammar_and_end_with_agent_end() -> None:
    agent = Agent(scripted(["Hm. ", call("1", "add", a=1, b=2), call("2", "add", a=1, b=1)], "Done."), [add])
    events = [event async for event in agent.events("x")]
    assert_event_grammar(events)
    assert (
        "".join(e.event.delta for e in events if isinstance(e, MessageUpdate) and e.event.type == "text_delta")
        == "Hm. Done."
    )
    end = events[-1]
    assert isinstance(end, AgentEnd)
    assert end.result.text == "Done."
    for event in events:
        event.to_dict()


async def test_astream_is_flat_over_all_turns() -> None:
    agent = Agent(scripted(["a", "b", call("1", "add", a=1, b=2)], ["c"]), [add])
    chunks = [chunk async for chunk in agent.astream("x")]
    assert [(c.type, c.text) for c in chunks] == [
        ("text", "a"),
        ("text", "b"),
        ("tool_calls", ""),
        ("text", "c"),
        ("done", ""),
    ]
    assert chunks[-1].completion is not None
    assert chunks[-1].usage is not None
    assert (chunks[-1].finish_reason, chunks[-1].usage.output_tokens) == ("stop", 4)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_eight_parallel_tools_run_at_the_same_time(kind: str) -> None:
    """Each waits until all eight are there; one after another, the first would wait in vain."""
    met, met_threads = asyncio.Barrier(8), threading.Barrier(8, timeout=20)

    async def meet(i: int) -> int:
        await asyncio.wait_for(met.wait(), 20)
        return i

    def meet_sync(i: int) -> int:
        met_threads.wait()
        return i

    fn = meet if kind == "async" else meet_sync
    calls = [call(str(i), fn.__name__, i=i) for i in range(8)]
    result = await Agent(scripted(calls, "ok"), [fn]).arun("x")
    assert [t.result.text for t in result.tool_runs] == [str(i) for i in range(8)], "results come in call order"


async def test_results_come_in_call_order_whatever_ends_first() -> None:
    async def wait(s: float) -> float:
        await asyncio.sleep(s)
        return s

    agent = Agent(
        scripted([call("a", "wait", s=0.06), call("b", "wait", s=0.0), call("c", "wait", s=0.03)], "ok"), [wait]
    )
    ended: list[str] = []
    async for event in agent.events("x"):
        if isinstance(event, ToolExecutionEnd):
            ended.append(event.call.id)
    assert ended == ["b", "c", "a"]
    assert [m.tool_call_id for m in agent.messages if m.role == "tool"] == ["a", "b", "c"]


async def test_a_tool_that_is_not_parallel_safe_runs_alone() -> None:
    running: set[str] = set()
    together: list[set[str]] = []

    async def body(name: str) -> str:
        running.add(name)
        together.append(set(running))
        await asyncio.sleep(0.01)
        running.discard(name)
        return name

    @tool(parallel_safe=False)
    async def alone(name: str) -> str:
        return await body(name)

    @tool
    async def social(name: str) -> str:
        return await body(name)

    calls = [
        call("1", "social", name="a"),
        call("2", "social", name="b"),
        call("3", "alone", name="c"),
        call("4", "social", name="d"),
    ]
    result = await Agent(scripted(calls, "ok"), [alone, social]).arun("x")
    assert [t.result.text for t in result.tool_runs] == ["a", "b", "c", "d"]
    assert {"a", "b"} in together
    assert all(len(group) == 1 for group in together if "c" in group)


async def test_C072_unknown_names_get_an_answer_and_the_run_goes_on() -> None:
    seen: list[str] = []

    def search_files(q: str) -> str:
        return f"found {q}"

    agent = Agent(
        scripted([call("c1", "search_file", q="x"), call("c2", "search_files", q="x")], "done"),
        [search_files],
        after_tool_call=lambda c, result, ctx: seen.append(f"{c.name}:{result.status}"),
    )
    result = await agent.arun("find x")
    first, second = result.tool_runs
    assert first.result.status == "error"
    assert "search_files" in first.result.text
    assert second.result.text == "found x"
    assert result.text == "done"
    assert sorted(seen) == ["search_file:error", "search_files:ok"]


async def test_C072_unknown_calls_without_end_stop_at_the_turn_limit() -> None:
    agent = Agent(scripted([call("c", "nope")], repeat=True), [add], limits=Limits(turns=4))
    result = await agent.arun("x")
    assert (result.stop_reason, len(result.turns)) == ("max_turns", 4)
    assert_valid(result.messages)


async def test_C077_one_failing_tool_leaves_the_others_alone(recwarn: pytest.WarningsRecorder) -> None:
    log: list[str] = []

    async def ok() -> str:
        await asyncio.sleep(0.02)
        log.append("ok")
        return "fine"

    async def bad() -> None:
        raise RuntimeError("disk full")

    async def slow() -> str:
        await asyncio.sleep(0.04)
        log.append("slow")
        return "late"

    result = await Agent(
        scripted([call("1", "ok"), call("2", "bad"), call("3", "slow")], "done"), [ok, bad, slow]
    ).arun("x")
    texts = [t.result.text for t in result.tool_runs]
    assert texts[0] == "fine"
    assert "disk full" in texts[1]
    assert texts[2] == "late"
    assert log == ["ok", "slow"]
    assert len(asyncio.all_tasks()) == 1
    assert not [w for w in recwarn if "never" in str(w.message)]


async def test_C078_malformed_calls_are_answered_and_never_run() -> None:
    ran: list[Any] = []

    def delete_rows(where: str | None = None) -> str:
        ran.append(where)
        return "deleted"

    turns = [
        [ToolCall(id=f"c{n}", name="delete_rows", arguments=raw)]  # type: ignore[arg-type]
        for n, raw in enumerate(('{"where": "id = 7', "[1]", '{"where": "id = 7"}'), 1)
    ]
    result = await Agent(scripted(*turns, "done"), [delete_rows]).arun("x")
    assert ran == ["id = 7"]
    assert [t.result.status for t in result.tool_runs] == ["error", "error", "ok"]
    assert "not complete JSON" in result.tool_runs[0].result.text
    assert "not a JSON object but list" in result.tool_runs[1].result.text
    assert result.messages[1].tool_calls[0].raw_arguments == '{"where": "id = 7'
    assert_valid(result.messages)


async def test_C078_only_malformed_turns_end_with_a_clear_error() -> None:
    broken = ToolCall(id="c", name="add", arguments='{"a": 1')  # type: ignore[arg-type]
    agent = Agent(scripted([broken], repeat=True), [add])
    with pytest.raises(MalformedResponse, match="3 turns in a row") as caught:
        await agent.arun("x")
    assert len(caught.value.result.turns) == 3
    assert_valid(agent.messages)


def paused(text: str) -> Completion:
    part = ServerToolPart(
        id="srv1", name="web_search", input={"query": "tides"}, payload={"type": "server_tool_use", "id": "srv1"}
    )
    return Completion(
        message=Message(role="assistant", parts=[part], content=text or None), finish_reason="length", native_finish_reason="pause_turn",
        usage=Usage(input_tokens=10, output_tokens=20),
    )  # fmt: skip


async def test_C031_a_paused_turn_is_sent_back_unchanged_and_continued() -> None:
    ran: list[str] = []

    def web_search(query: str) -> str:
        ran.append(query)
        return ""

    llm = scripted(paused(""), ["High tide at noon.", Usage(input_tokens=40, output_tokens=5)])
    result = await Agent(llm, [web_search]).arun("tides?")
    assert ran == []
    assert result.stop_reason == "completed"
    assert result.text == "High tide at noon."
    assert (result.usage.input_tokens, result.usage.output_tokens) == (50, 25)
    second = llm.backend.requests[1]  # type: ignore[attr-defined]
    assert [m.role for m in second.messages] == ["user", "assistant"]
    assert second.messages[1].parts[0].input == {"query": "tides"}


async def test_C031_pausing_for_ever_is_bounded() -> None:
    agent = Agent(scripted(paused("."), repeat=True))
    with pytest.raises(MalformedResponse, match="paused"):
        await agent.arun("x")
    limited = Agent(scripted(paused("."), repeat=True), limits={"turns": 3})
    assert (await limited.arun("x")).stop_reason == "max_turns"


def unreadable() -> Completion:
    return Completion(
        message=Message(role="assistant"), finish_reason="other", native_finish_reason="MALFORMED_FUNCTION_CALL",
        usage=Usage(input_tokens=100, output_tokens=0),
    )  # fmt: skip


async def test_C055_a_call_the_provider_could_not_read_is_asked_again_and_counted() -> None:
    result = await Agent(scripted(unreadable(), ["fine", Usage(input_tokens=100, output_tokens=1)]), [add]).arun("x")
    assert result.text == "fine"
    assert result.usage.input_tokens == 200
    assert [m.role for m in result.messages] == ["user", "assistant"]


async def test_C055_after_a_bound_it_is_a_typed_error() -> None:
    llm = scripted(unreadable(), repeat=True)
    with pytest.raises(MalformedResponse, match="MALFORMED_FUNCTION_CALL"):
        await Agent(llm, [add]).arun("x")
    assert len(llm.backend.requests) == 3  # type: ignore[attr-defined]


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault", ["rate_limited", "overloaded", "server_error", "stream_cut", "mid_stream", "authentication"]
)
async def test_a_providers_fault_raises_from_arun_and_ends_events(fault: Any) -> None:
    agent = Agent(scripted(["Some text", " and more"], fault=fault, repeat=True), [add])
    with pytest.raises(ProviderError) as caught:
        await agent.arun("x")
    assert caught.value.result.stop_reason == "error"
    assert caught.value.completion is not None
    assert_valid(agent.messages)
    events = [event async for event in agent.events("again")]
    assert_event_grammar(events)
    assert events[-1].result.error.kind == caught.value.kind  # type: ignore[union-attr]


async def test_after_a_fault_the_agent_goes_on() -> None:
    agent = Agent(scripted("fine", fault="mid_stream", fault_times=1, repeat=True))
    with pytest.raises(ProviderError):
        await agent.arun("x")
    result = await agent.arun("again")
    assert result.text == "fine"
    assert_valid(result.messages)


async def test_fallback_models_are_taken_in_order() -> None:
    heard: list[Notice] = []
    agent = Agent(
        scripted("never", fault="overloaded", model="first"),
        fallback=[scripted("never", fault="server_error", model="second"), scripted("from the third", model="third")],
        on_event=lambda event: heard.append(event) if isinstance(event, Notice) else None,
    )
    result = await agent.arun("x")
    assert result.text == "from the third"
    assert result.model == "third"
    assert [n.kind for n in heard] == ["fallback", "fallback"]
    with pytest.raises(Overloaded):
        await Agent(scripted("never", fault="overloaded")).arun("x")


async def test_length_keeps_the_text_and_says_so() -> None:
    result = await Agent(scripted(["one ", "two ", "three ", "four "], fault="length")).arun("x")
    assert result.stop_reason == "length"
    assert result.text


async def test_a_call_cut_by_length_is_not_run_and_the_model_may_correct_it() -> None:
    ran: list[int] = []

    def write(n: int) -> str:
        ran.append(n)
        return "ok"

    cut = Completion(
        message=Message(role="assistant", parts=[call("1", "write", n=1)]),
        finish_reason="length",
        native_finish_reason="max_tokens",
    )
    result = await Agent(scripted(cut, "I stop."), [write]).arun("x")
    assert ran == []
    assert "token limit" in result.tool_runs[0].result.text
    assert result.text == "I stop."


@pytest.mark.parametrize("reason", ["content_filter", "refusal"])
async def test_filtered_and_refused_turns_end_the_run_with_their_own_reason(reason: Any) -> None:
    refused = Completion(message=Message(role="assistant", parts=[call("1", "add", a=1, b=1)]), finish_reason=reason)
    result = await Agent(scripted(refused), [add]).arun("x")
    assert result.stop_reason == reason
    assert result.tool_runs[0].result.status == "error"
    assert_valid(result.messages)


# -- limits ----------------------------------------------------------------------------------------


async def test_each_limit_ends_with_its_own_reason_and_a_usable_transcript() -> None:
    async def nap() -> str:
        await asyncio.sleep(30)
        return "never"

    turn = [
        call("1", "add", a=1, b=1),
        call("2", "add", a=1, b=2),
        Usage(input_tokens=100, output_tokens=10, cost_usd=0.5),
    ]
    cases: list[tuple[dict[str, float], str, list[Any]]] = [
        ({"turns": 2}, "max_turns", turn),
        ({"tool_calls": 3}, "max_tool_calls", turn),
        ({"tokens": 150}, "max_tokens", turn),
        ({"usd": 0.9}, "max_cost", turn),
        ({"seconds": 0.05}, "max_time", [call("1", "nap")]),
    ]
    for limits, reason, script in cases:
        agent = Agent(scripted(script, repeat=True), [add, nap], limits=limits)
        result = await agent.arun("x")
        assert result.stop_reason == reason
        assert result.error is None
        assert_valid(result.messages)
        if reason != "max_turns":
            assert len(result.turns) <= 2
        agent.fork(llm=scripted("and on"), limits=None)
        assert (await agent.fork(llm=scripted("and on"), limits=None).arun("go on")).text == "and on"


async def test_calls_beyond_the_limit_were_not_started() -> None:
    agent = Agent(scripted([call(str(n), "add", a=n, b=0) for n in range(4)]), [add], limits={"tool_calls": 2})
    result = await agent.arun("x")
    assert [t.result.status for t in result.tool_runs] == ["ok", "ok", "interrupted", "interrupted"]
    assert result.tool_runs[3].result.details["started"] is False
    assert "limit of tool calls" in result.tool_runs[3].result.text


async def test_a_money_limit_on_a_model_without_a_price_warns_once() -> None:
    notices: list[str] = []
    agent = Agent(
        scripted([call("1", "add", a=1, b=1)], [call("2", "add", a=1, b=1)], "ok"), [add], limits={"usd": 1.0},
        on_event=lambda e: notices.append(e.message) if isinstance(e, Notice) else None,
    )  # fmt: skip
    await agent.arun("x")
    assert len(notices) == 1
    assert "price" in notices[0]


# -- steering --------------------------------------------------------------------------------------


async def test_steering_is_read_before_the_next_model_call() -> None:
    started = asyncio.Event()
    go = asyncio.Event()

    async def work() -> str:
        started.set()
        await go.wait()
        return "worked"

    llm = scripted([call("1", "work")], "ok, blue")
    stream = Agent(llm, [work]).events("paint")

    async def consume() -> list[Any]:
        return [event async for event in stream]

    task = asyncio.create_task(consume())
    await started.wait()
    stream.steer("make it blue")
    go.set()
    events = await task
    assert_event_grammar(events)
    asked = llm.backend.requests[1].messages  # type: ignore[attr-defined]
    assert [(m.role, m.text) for m in asked] == [
        ("user", "paint"),
        ("assistant", ""),
        ("tool", "worked"),
        ("user", "make it blue"),
    ]


async def test_a_follow_up_is_taken_up_when_the_agent_would_be_done() -> None:
    handle_llm = scripted(["first"], ["second"], delay_s=0.02)
    handle = Agent(handle_llm).start("a")
    handle.follow_up("b")
    result = await handle
    assert [m.text for m in result.messages] == ["a", "first", "b", "second"]


async def test_tools_added_while_it_runs_are_seen_at_the_next_turn() -> None:
    tools = Toolset()

    @tools.add
    def grow() -> str:
        def grown() -> str:
            return "I am new"

        tools.add(grown)
        return "grew"

    llm = scripted([call("1", "grow")], [call("2", "grown")], "ok")
    result = await Agent(llm, tools).arun("x")
    assert [t.result.text for t in result.tool_runs] == ["grew", "I am new"]
    assert [t.name for t in llm.backend.requests[1].tools] == ["grow", "grown"]  # type: ignore[attr-defined]


# -- what is given ---------------------------------------------------------------------------------


async def test_calls_without_ids_or_with_doubled_ones_get_their_own() -> None:
    calls = [
        ToolCall(name="add", arguments={"a": 1, "b": 1}),
        call("same", "add", a=1, b=2),
        call("same", "add", a=1, b=3),
    ]
    result = await Agent(scripted(calls, "ok"), [add]).arun("x")
    ids = [c.id for c in result.messages[1].tool_calls]
    assert len(set(ids)) == 3
    assert "" not in ids
    assert [t.result.text for t in result.tool_runs] == ["2", "3", "4"]
    assert_valid(result.messages)


async def test_prompts_may_hold_media_and_messages() -> None:
    image = MediaPart(kind="image", mime_type="image/png", data=b"x")
    llm = scripted("seen", repeat=True)
    agent = Agent(llm)
    await agent.arun(["what is this?", image])
    await agent.arun(image)
    await agent.arun(Message(role="user", content="hi"))
    await agent.arun([{"role": "user", "content": "as dict"}])
    assert [[p.type for p in m.parts] for m in agent.messages if m.role == "user"] == [
        ["text", "media"],
        ["media"],
        ["text"],
        ["text"],
    ]
    for wrong in ("", [], 3, [3], {"role": "user"}):
        with pytest.raises(InvalidRequest):
            agent._new_run(wrong, {})  # type: ignore[arg-type]


async def test_a_run_without_a_prompt_goes_on_from_the_conversation() -> None:
    agent = Agent(scripted("going on"), messages=[Message(role="user", content="start")])
    assert (await agent.arun()).text == "going on"
    with pytest.raises(InvalidRequest, match="prompt"):
        await Agent(scripted("x")).arun()


async def test_options_and_anything_else_can_be_replaced_for_one_run() -> None:
    llm, other = scripted("a", repeat=True), scripted("b")
    agent = Agent(llm, [add], "S", temperature=0.5)
    await agent.arun("x", temperature=0.1, max_output_tokens=7, tools=[], system=None)
    request = llm.backend.requests[0]  # type: ignore[attr-defined]
    assert (request.options.temperature, request.options.max_output_tokens) == (0.1, 7)
    assert request.tools == []
    assert [m.role for m in request.messages] == ["user"]
    await agent.arun("x")
    request = llm.backend.requests[1]  # type: ignore[attr-defined]
    assert (request.options.temperature, len(request.tools), request.messages[0].role) == (0.5, 1, "system")
    assert (await agent.arun("x", llm=other)).text == "b"


def test_what_could_never_work_is_refused_at_once() -> None:
    for wrong in (
        {"temperatur": 1},
        {"approval": "sometimes"},
        {"before_tool_call": 3},
        {"max_output_retries": -1},
        {"temperature": -1},
    ):
        with pytest.raises(InvalidRequest):
            Agent(scripted("x"), **wrong)
    with pytest.raises(InvalidRequest, match="provider/model"):
        Agent(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        Agent(scripted("x")).run("hi", temperatur=1)
    with pytest.raises(InvalidRequest, match="signal"):
        Agent(scripted("x")).run("hi", signal=3)


async def test_a_programmers_mistake_raises_from_every_form() -> None:
    agent = Agent(scripted("x"), [add], tool_choice="nope")
    with pytest.raises(InvalidRequest, match="nope"):
        await agent.arun("x")
    with pytest.raises(InvalidRequest, match="nope"):
        async for _ in agent.events("x"):
            pass
    assert_valid(agent.messages)


async def test_a_required_choice_holds_for_the_first_call_only() -> None:
    llm = scripted([call("1", "add", a=1, b=1)], "done")
    await Agent(llm, [add], tool_choice="required").arun("x")
    assert [r.tool_choice.mode for r in llm.backend.requests] == ["required", "auto"]  # type: ignore[attr-defined]


async def test_a_listener_that_fails_is_taken_off_and_the_run_goes_on() -> None:
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context["exception"]))
    heard: list[str] = []

    def bad(event: Any) -> None:
        raise RuntimeError("listener broke")

    result = await Agent(scripted("fine"), on_event=[bad, lambda e: heard.append(e.type)]).arun("x")
    assert result.text == "fine"
    assert [str(p) for p in problems] == ["listener broke"]
    assert heard[-1] == "agent_end"


async def test_the_python_object_of_a_tool_is_in_its_event() -> None:
    made = object()

    def give() -> Any:
        return made

    events = [e async for e in Agent(scripted([call("1", "give")], "ok"), [give]).events("x")]
    (end,) = [e for e in events if isinstance(e, ToolExecutionEnd)]
    assert end.value is made
    assert "value" not in end.to_dict()
    assert any(isinstance(e, ToolExecutionStart) for e in events)


async def test_overflow_compacts_once_and_asks_once_more() -> None:
    overflow = ContextOverflow(ErrorInfo.make("context_overflow", "too long"))
    history = [
        m
        for n in range(10)
        for m in (Message(role="user", content=f"q{n} " * 50), Message(role="assistant", content=f"a{n}"))
    ]
    llm = scripted(overflow, "fits now")
    agent = Agent(llm, messages=history)
    result = await agent.arun("and?")
    assert result.text == "fits now"
    first, second = (r.messages for r in llm.backend.requests)  # type: ignore[attr-defined]
    assert len(second) < len(first)
    assert second[-1].text == "and?"
    assert len(result.messages) == 22, "the whole transcript is kept"
    twice = scripted(overflow, overflow, "never")
    with pytest.raises(ContextOverflow):
        await Agent(twice, messages=history).arun("and?")
    assert len(twice.backend.requests) == 2  # type: ignore[attr-defined]


async def test_C047_asked_for_one_call_at_a_time_the_loop_runs_them_one_by_one_whatever_the_model_did() -> None:
    going = 0
    most = 0

    async def step(i: int) -> int:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await asyncio.sleep(0.01)
        going -= 1
        return i

    calls = [call(str(i), "step", i=i) for i in range(4)]
    for choice, expected in (({"mode": "auto", "parallel": "single"}, 1), (None, 4)):
        most = 0
        result = await Agent(scripted(calls, "ok"), [step], tool_choice=choice).arun("x")
        assert [t.result.text for t in result.tool_runs] == ["0", "1", "2", "3"]
        assert most == expected

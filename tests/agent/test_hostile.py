"""What no one should do to an agent, done: every fault is data, every stop leaves a whole transcript, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest

from rein_nb.agent import Agent, Context
from rein_nb.agent.events import AgentEvent, ApprovalRequested
from rein_nb.ir import ErrorInfo, InvalidRequest, Message, StreamDone, StreamEvent, ToolCall, Usage
from rein_nb.llm import LLM
from rein_nb.store.recording import record, replay
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Outcome, Tool, ToolContext
from tests.agent.support import assert_accepted, assert_event_grammar, assert_valid, call

scripted = ScriptedProvider.llm


def look(i: int) -> str:
    return f"saw {i}"


async def heard(agent: Agent, prompt: str = "go", **overrides: Any) -> list[AgentEvent]:
    """The events of a run, which have to be whole, and the transcript valid, whatever was done to it."""
    events = [event async for event in agent.events(prompt, **overrides)]
    assert_event_grammar(events)
    assert_valid(agent.messages)
    assert_accepted(agent.messages)
    return events


# -- whatever is raised, it is data --------------------------------------------------------------------

ODD: tuple[Callable[[], BaseException], ...] = (
    GeneratorExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
    lambda: SystemExit(2),
    StopIteration,
    lambda: BaseExceptionGroup("several", [KeyboardInterrupt()]),
)
WHERE = (
    "before_tool_call", "after_tool_call", "before_request", "approval", "compaction", "tool", "validator", "on_event", "provider",
    "provider, half-way",
)  # fmt: skip


def agent_in_which(where: str, make: Callable[[], BaseException], is_async: bool) -> Agent:
    def plain(*_: Any) -> Any:
        raise make()

    async def on_the_loop(*_: Any) -> Any:
        raise make()

    def broken(i: int) -> str:
        raise make()

    async def broken_on_the_loop(i: int) -> str:
        raise make()

    class Checked(pydantic.BaseModel):
        x: int

        @pydantic.field_validator("x")
        @classmethod
        def never(cls, x: int) -> int:
            raise make()

    fails = on_the_loop if is_async else plain
    calls = [call("a", "look", i=1), call("b", "look", i=2)]
    script: list[Any] = [["hm", *calls], "done"]
    tools = [Tool(look)]
    settings: dict[str, Any] = {}
    if where == "compaction":
        settings["context"] = Context(strategy=fails, max_tokens=1, fill=0.9)
        settings["messages"] = [
            Message(role="user", content="x"),
            Message(role="assistant", content="y"),
        ]
    elif where == "tool":
        tools = [Tool(broken_on_the_loop if is_async else broken, name="look")]
    elif where == "validator":
        settings["output_type"] = Checked
        script = [[calls[0], call("z", "answer", x=1)], '{"x": 1}', "no", "no", "no"]
    elif where == "provider":
        script = [make()]
    elif where == "provider, half-way":
        script = [["he", "llo", make(), "x"]]
    else:
        settings[where] = fails
    return Agent(scripted(*script), tools, **settings)


@pytest.mark.parametrize(
    ("where", "is_async"), [(where, False) for where in WHERE] + [(where, True) for where in WHERE[:6]]
)
@pytest.mark.parametrize("make", ODD)
async def test_whatever_anybody_raises_the_events_end_as_they_should(
    where: str, make: Callable[[], BaseException], is_async: bool
) -> None:
    agent = agent_in_which(where, make, is_async)
    told: list[AgentEvent] = []
    agent.add_listener(told.append)
    await heard(agent)
    assert_event_grammar(told)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_keyboard_interrupt_in_a_validator_is_raised_by_the_run_and_keeps_the_other_results() -> None:
    agent = agent_in_which("validator", KeyboardInterrupt, False)
    with pytest.raises(KeyboardInterrupt):
        await agent.arun("go")
    assert_valid(agent.messages)
    assert next(r.text for m in agent.messages for r in m.tool_results) == "saw 1"
    assert agent.results[-1].stop_reason == "cancelled"


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


class SpeechlessOrder(BaseException):
    __str__ = Speechless.__str__


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("make", [Speechless, SpeechlessOrder])
async def test_an_exception_need_not_be_able_to_say_what_it_is(where: str, make: Callable[[], BaseException]) -> None:
    agent = agent_in_which(where, make, False)
    await heard(agent)
    assert "nothing to say" not in str(agent.results[-1].error)


class Faulty:
    """A model of the user's own that hands on what a scripted one says, changed."""

    provider, model, backend = "faulty", "m", None

    def __init__(self, change: Callable[[StreamEvent], list[Any]]) -> None:
        self._change = change

    def target(self) -> None:
        return None

    async def astream_events(self, messages: Any, **_: Any) -> AsyncIterator[Any]:
        async for event in scripted("hello").astream_events(messages):
            for changed in self._change(event):
                yield changed


@pytest.mark.parametrize(
    "change",
    [
        lambda event: [] if isinstance(event, StreamDone) else [event],
        lambda event: [event, None],
        lambda event: [3],
        lambda event: [],
    ],
)
async def test_a_model_that_never_says_it_is_done_or_says_nonsense_ends_in_an_error(
    change: Callable[[StreamEvent], list[Any]],
) -> None:
    agent = Agent(Faulty(change))  # type: ignore[arg-type]
    await heard(agent)
    assert agent.results[-1].stop_reason == "error"


async def test_a_tool_of_a_class_of_its_own_that_fails_is_closed_all_the_same() -> None:
    class NoThread(Tool):
        async def execute(self, call: ToolCall, ctx: ToolContext[Any] | None = None) -> Outcome:
            raise RuntimeError("can't start new thread")

    agent = Agent(scripted([call("a", "look", i=1), call("b", "look", i=2)]), [NoThread(look)])
    await heard(agent)
    assert agent.results[-1].error is not None
    assert "can't start new thread" in agent.results[-1].error.message


async def test_a_subscriber_may_raise_anything_and_keeps_nobody_else_from_hearing() -> None:
    for make in ODD:
        run = Agent(scripted(["a", "b"], delay_s=0.005)).start("go")
        told: list[AgentEvent] = []

        def fails(event: AgentEvent, make: Callable[[], BaseException] = make) -> None:
            raise make()

        run.subscribe(fails)
        run.subscribe(told.append)
        assert_event_grammar([event async for event in run.events()])
        assert_event_grammar(told)


def test_a_listener_is_no_async_function() -> None:
    async def listener(event: AgentEvent) -> None: ...

    with pytest.raises(InvalidRequest, match="nobody would await it"):
        Agent(scripted("x"), on_event=listener)
    with pytest.raises(InvalidRequest, match="nobody would await it"):
        Agent(scripted("x")).add_listener(listener)  # type: ignore[arg-type]


async def test_nothing_is_told_after_the_end() -> None:
    told: list[AgentEvent] = []
    # Nobody knows the price of its model, which is said when what it spent is asked for: here by the outer run, when it is over.
    inner = Agent(scripted("inner"), limits={"usd": 1.0}, label="inner", on_event=told.append)
    await heard(Agent(scripted([call("a", "inner", prompt="x")], "done"), [inner]))
    assert_event_grammar(told)


# -- stopped in any way --------------------------------------------------------------------------------


def test_a_loop_that_goes_down_leaves_whole_turns_and_what_the_tools_said() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
        return "x"

    def plain(ctx: ToolContext[Any]) -> str:
        ctx.token.wait(10)
        return "noticed"

    async def hangs(*_: Any) -> None:
        await asyncio.sleep(10)

    calls = [call("a", "stubborn"), call("b", "plain"), call("c", "stubborn")]
    history = [Message(role="user", content="x"), Message(role="assistant", content="y")]
    agents = {
        "tools": Agent(scripted(["let me", *calls]), [stubborn, plain]),
        "one tool": Agent(scripted(["let me", call("b", "plain")]), [plain]),
        "model": Agent(scripted(["a"] * 500, delay_s=0.005)),
        "question": Agent(scripted(calls), [stubborn, plain], approval="always"),
        "hook": Agent(scripted(calls), [stubborn, plain], before_tool_call=hangs),
        "request": Agent(scripted("x"), before_request=hangs),
        "compaction": Agent(scripted("x"), context=Context(strategy=hangs, max_tokens=1, fill=0.9), messages=history),
    }
    told: dict[str, list[AgentEvent]] = {name: [] for name in agents}

    async def begin_and_leave() -> None:
        for name, agent in agents.items():
            agent.add_listener(told[name].append)
            begun = agent.events("go")
            await begun.__anext__()
            kept.append(begun)
        for name, kind in (("tools", "tool_execution_start"), ("model", "message_update")):
            while not any(event.type == kind for event in told[name]):
                await asyncio.sleep(0.01)

    kept: list[Any] = []
    asyncio.run(begin_and_leave())
    for name, agent in agents.items():
        assert_event_grammar(told[name])
        assert_valid(agent.messages)
        assert_accepted(agent.messages)
        assert told[name][-1].result.stop_reason == "cancelled", name  # type: ignore[union-attr]
        assert [result.stop_reason for result in agent.results] == ["cancelled"]
        assert not agent._live
    assert agents["model"].messages[-1].text.startswith("a")


async def test_a_task_that_is_cancelled_again_and_again_still_waits_for_its_run() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
        return "x"

    agent = Agent(scripted([call("a", "stubborn"), call("b", "stubborn")]), [stubborn])
    told: list[AgentEvent] = []
    agent.add_listener(told.append)
    task = asyncio.ensure_future(agent.arun("go"))
    while not any(event.type == "tool_execution_start" for event in told):
        await asyncio.sleep(0)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [message.role for message in agent.messages] == ["user", "assistant", "tool", "tool"]
    assert_event_grammar(told)


def test_a_run_whose_loop_is_gone_may_be_cancelled_and_is_dropped_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    # Another context than the run's: it is closed in whichever finds it.
    agent = Agent(scripted([call("a", "look", i=1)]), [look], approval="always")
    kinds: list[str] = []  # not the events: a question that is kept holds its run
    agent.add_listener(lambda event: kinds.append(event.type))
    stream = agent.events("go")
    loop = asyncio.new_event_loop()

    async def begin(stream: Any = stream) -> None:
        await stream.__anext__()
        while kinds[-1] != "approval_requested":
            await asyncio.sleep(0)

    loop.run_until_complete(begin())
    loop.close()
    stream.cancel("late")
    del stream, loop, begin
    gc.collect()
    assert [str(one.exc_value) for one in complaints] == []
    assert kinds[-1] == "agent_end"
    assert not agent._live
    assert_valid(agent.messages)
    assert [r.status for m in agent.messages for r in m.tool_results] == ["interrupted"]


@pytest.mark.parametrize("how", ["run", "start"])
async def test_a_run_inside_a_plain_tool_ends_with_the_tool(how: str) -> None:
    inner = Agent(scripted(["x"] * 2000, delay_s=0.01))

    def ask() -> str:
        return (inner.run("go") if how == "run" else inner.start("go").result()).text

    stream = Agent(scripted([call("a", "ask")], "done"), [ask]).events("go")
    async for event in stream:
        if event.type == "tool_execution_start":
            while not inner._live:
                await asyncio.sleep(0.01)
            stream.cancel()
    end = time.monotonic() + 10
    while inner._live and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert not inner._live
    assert_valid(inner.messages)


@pytest.mark.parametrize("how", ["aclose", "ask again"])
async def test_a_hook_may_stop_its_own_run_and_waits_for_nothing(how: str) -> None:
    streams: list[Any] = []
    ends: list[str] = []

    async def stops(call: ToolCall, ctx: ToolContext[Any]) -> None:
        streams[0].cancel()
        try:
            if how == "aclose":
                await streams[0].aclose()
            else:
                await agent.arun("inner", before_tool_call=None)
        finally:
            # Where it waited for the run that waits for it, it would be left to itself, and the run would be over first.
            ends.append("running" if streams[0].result is None else "over")

    agent = Agent(scripted([call("a", "look", i=1)], "inner"), [look], before_tool_call=stops)
    streams.append(agent.events("go"))
    _ = [event async for event in streams[0]]
    await streams[0].aclose()
    assert ends == ["running"]
    assert_valid(agent.messages)


async def test_a_runs_events_are_for_one_consumer() -> None:
    stream = Agent(scripted(["a", "b"], delay_s=0.005)).events("go")

    async def all_of_them() -> list[AgentEvent]:
        return [event async for event in stream]

    first, second = await asyncio.gather(all_of_them(), all_of_them(), return_exceptions=True)
    assert isinstance(second, RuntimeError)
    assert not isinstance(first, BaseException)
    assert_event_grammar(first)


# -- what is handed out are copies, and data -----------------------------------------------------------


@pytest.mark.parametrize("who", ["tool", "before_tool_call", "after_tool_call", "approval"])
async def test_nobody_changes_the_transcripts_call(who: str) -> None:
    def change(*given: Any) -> None:
        for one in given:
            if isinstance(one, ToolContext):
                one.call.arguments["x"]["more"] = 1
            elif isinstance(one, ToolCall) and who == "after_tool_call":
                one.arguments["x"]["more"] = 1

    def take(x: dict[str, int], ctx: ToolContext[Any]) -> str:
        if who == "tool":
            change(ctx)
        return str(x)

    settings: dict[str, Any] = {}
    if who == "approval":
        settings[who] = lambda call, ctx: change(ctx) or True
    elif who != "tool":
        settings[who] = change
    agent = Agent(scripted([call("a", "take", x={"q": 1})], "done"), [take], **settings)
    events = await heard(agent)
    assert agent.messages[1].tool_calls[0].arguments == {"x": {"q": 1}}
    started = next(event for event in events if event.type == "tool_execution_start")
    assert started.call.arguments == {"x": {"q": 1}}


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("arguments", "status"), [({"x": {1}}, "ok"), ({1: object()}, "denied"), ({"x": Incomparable()}, "denied")]
)
async def test_what_a_hook_makes_of_a_call_is_data_too(arguments: Any, status: str, in_place: bool) -> None:
    def change(call: ToolCall, ctx: ToolContext[Any]) -> Any:
        return call.arguments.update(arguments) if in_place else arguments

    def take(x: Any) -> str:
        return str(x)

    agent = Agent(scripted([call("a", "take", x=1)], "done"), [take], before_tool_call=change)
    for event in await heard(agent):
        event.to_dict()
    agent.results[0].model_dump_json()
    assert agent.results[0].tool_runs[0].result.status == status


async def test_what_is_put_into_the_conversation_while_a_run_goes_on_stays_in_it() -> None:
    def put(how: str) -> str:
        said = Message(role="user", content="by the way")
        if how == "in place":
            agent.messages.append(said)
        else:
            agent.messages = [*agent.messages, said]
        return "put"

    for how in ("in place", "assigned"):
        agent = Agent(scripted("one", [call("a", "put", how=how)], "two"), [put])
        await heard(agent, "first")
        await heard(agent, "second")
        texts = [message.text for message in agent.messages if message.role == "user"]
        assert texts == ["first", "by the way", "second"]


# -- sub-agents, structured output ---------------------------------------------------------------------


@pytest.mark.parametrize("between", ["one by one", "at once"])
async def test_every_question_of_agents_three_deep_comes_up(between: str) -> None:
    calls = [call("i1", "look", i=1), call("i2", "look", i=2)]
    turns = [[one] for one in calls] if between == "one by one" else [calls]
    asks = [Tool(look, requires_approval=True)]
    agent = Agent(scripted(*turns, "inner"), asks, label="deep0")
    for depth in range(1, 4):
        called = call(f"m{depth}", f"deep{depth - 1}", prompt="x")
        agent = Agent(scripted([called], "done"), [agent], label=f"deep{depth}")
    asked: list[int] = []
    events: list[AgentEvent] = []
    async for event in agent.events("go"):
        events.append(event)
        if isinstance(event, ApprovalRequested):
            assert event.decide is not None
            asked.append(event.call.arguments["i"])
            # Late, from another thread, and twice: only the first counts.
            threading.Timer(0.01, event.decide, ("allow", None)).start()
            threading.Timer(0.02, event.decide, ("deny", None)).start()
    assert asked == [1, 2]
    assert_event_grammar(events)


@pytest.mark.parametrize("choice", ["look", "required"])
@pytest.mark.parametrize("native", [False, True])
async def test_a_forced_first_call_does_not_keep_a_model_from_answering(
    choice: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rein_nb.agent.agent.has_native_output", lambda llm: native)
    answer = '{"result": 3}' if native else [call("b", "answer", result=3)]
    llm = scripted([call("a", "look", i=1)], answer)
    agent = Agent(llm, [look], output_type=int, tool_choice=choice)
    await heard(agent)
    assert agent.results[-1].output == 3
    modes = [request.tool_choice.mode for request in llm.backend.requests]  # type: ignore[union-attr]
    # The answer is a call where it is not the text: "required" may stay then.
    assert modes == [
        "named" if choice == "look" else "required",
        "required" if choice == "required" and not native else "auto",
    ]


# -- the context window --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["override", "fallback"])
async def test_what_another_model_counted_says_nothing_about_this_one(how: str) -> None:
    other = scripted([Usage(input_tokens=5_000), "counted in its own way"])
    first = scripted(*([ErrorInfo.make("overloaded", "x").to_exception()] if how == "fallback" else []), "mine")
    agent = Agent(first, fallback=other if how == "fallback" else (), context=Context(max_tokens=1_000))
    await heard(agent, **({"llm": other} if how == "override" else {}))
    events = await heard(agent, "and now?")
    assert [event for event in events if event.type == "notice"] == []
    assert agent.results[-1].text == "mine"


async def test_a_summary_whose_model_has_a_bug_is_a_summary_that_failed() -> None:
    history = [Message(role="user" if n % 2 == 0 else "assistant", content="words " * 100) for n in range(10)]
    llm = scripted([ZeroDivisionError("a bug")], "the answer")
    agent = Agent(llm, context=Context("summary", max_tokens=1_000), messages=history)
    await heard(agent)
    assert agent.results[-1].text == "the answer"


# -- played back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
def test_sub_agents_asked_the_same_at_once_get_their_own_answers_whoever_is_first(depth: int, tmp_path: Path) -> None:
    said = iter(range(100))

    def outer(slow: str, script: bool) -> Agent:
        def waits(call: ToolCall, ctx: ToolContext[Any]) -> None:
            time.sleep(0.05 if call.id == slow else 0.0)

        def model(*turns: Any) -> LLM:
            return scripted(*turns if script else (), repeat=True)

        agent = Agent(model(lambda request: f"answer {next(said)}"), label="deep0")
        for level in range(1, depth + 1):
            calls = [call(f"c{n}", f"deep{level - 1}", prompt="the same") for n in range(2 if level == depth else 1)]
            hook = waits if level == depth else ()
            agent = Agent(model(calls, "done"), [agent], label=f"deep{level}", before_tool_call=hook)
        return agent

    with record(tmp_path / "asked.jsonl"):
        first = outer("c0", True).run("go")
    played = []
    for slow in ("c0", "c1"):
        with replay(tmp_path / "asked.jsonl"):
            played.append(outer(slow, False).run("go"))
    assert [tool.result.text for tool in played[0].tool_runs] == [tool.result.text for tool in first.tool_runs]
    assert played[0].model_dump_json() == played[1].model_dump_json()

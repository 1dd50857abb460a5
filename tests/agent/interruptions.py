"""Thirty scripted runs with parallel tools, and every way in which one can be interrupted, at every moment.

Each `Attempt` is one interruption: it gives the agent afterwards and the events that its listeners heard. `check` then asks the agent
again and has the six validators read what would be sent.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from rein_nb.agent import AbortRun, Agent, AgentRun
from rein_nb.agent.events import AgentEvent
from rein_nb.ir import ErrorInfo, Request, ThinkingPart
from rein_nb.ir import deltas as d
from rein_nb.llm import LLM
from rein_nb.providers import Config
from rein_nb.stream import CancellationToken
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Tool, ToolContext
from tests.agent.support import assert_accepted, assert_event_grammar, assert_valid, call, keyboard_interrupts

SCRIPTS = 30

ERROR_KINDS = (
    "overloaded", "rate_limited", "server_error", "authentication", "bad_request", "connection_failed", "timed_out", "context_overflow",
    "content_filtered", "malformed_response",
)  # fmt: skip

RAISED: tuple[Callable[[], BaseException], ...] = (
    lambda: RuntimeError("broke"),
    lambda: KeyboardInterrupt(),
    lambda: asyncio.CancelledError(),
    lambda: SystemExit(3),
    lambda: StopIteration("over"),
    lambda: AbortRun("enough"),
    lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
)
"""What a tool, a hook or a listener may raise; more than any of them should."""


async def quick(i: int) -> str:
    await asyncio.sleep(0.001)
    return f"quick {i}"


def threaded(i: int) -> str:
    time.sleep(0.001)
    return f"threaded {i}"


async def broken(i: int) -> str:
    raise RuntimeError(f"broken {i}")


async def alone(i: int) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"alone": i}


async def telling(i: int, ctx: ToolContext[Any]) -> str:
    for step in range(2):
        ctx.progress(f"step {step}", fraction=step / 2)
        await asyncio.sleep(0)
    return "told"


FUNCTIONS: dict[str, Callable[..., Any]] = {f.__name__: f for f in (quick, threaded, broken, telling, alone)}


def tools() -> list[Tool]:
    return [Tool(fn, parallel_safe=name != "alone") for name, fn in FUNCTIONS.items()]


def script(number: int) -> list[list[Any]]:
    """Turns of a run: thinking, words, parallel calls (some to nobody, some with wrong arguments, some broken off), and an answer."""
    draw = random.Random(number)
    turns: list[list[Any]] = []
    for turn in range(draw.randint(1, 3)):
        parts: list[Any] = []
        if draw.random() < 0.5:
            parts.append(ThinkingPart(text=f"thought {turn}", signature="c2ln"))
        if draw.random() < 0.6:
            parts.extend(["let me ", "look"])
        for n in range(draw.randint(2, 4)):
            name = draw.choice(["quick", "quick", "threaded", "broken", "telling", "alone", "nobody"])
            made = call(f"c{turn}_{n}", name, i=draw.choice([n, n, n, "not a number"]))
            if draw.random() < 0.08:
                made = made.model_copy(update={"arguments": {}, "raw_arguments": '{"i": ', "error": "broken off"})
            parts.append(made)
        turns.append(parts)
    turns.append(["here ", "it ", "is"])
    return turns


def agent_for(number: int, **options: Any) -> Agent:
    return Agent(ScriptedProvider.llm(*script(number)), options.pop("tools", None) or tools(), **options)


@dataclass(frozen=True)
class Attempt:
    """One interruption, not yet made."""

    name: str
    make: Callable[[asyncio.Runner], tuple[Agent, list[AgentEvent]]]


Ways = Callable[[int], Iterator[Attempt]]


def events_of(number: int, runner: asyncio.Runner) -> int:
    async def count() -> int:
        return len([event async for event in agent_for(number).events("go")])

    return runner.run(count())


# -- cancelled, left, interrupted ----------------------------------------------------------------------


def by_token(number: int, at: int, runner: asyncio.Runner) -> tuple[Agent, list[AgentEvent]]:
    token = CancellationToken()
    agent = agent_for(number)

    async def go() -> list[AgentEvent]:
        def hear(event: AgentEvent) -> None:
            if event.seq == at:
                token.cancel()

        return [event async for event in agent.events("go", signal=token, on_event=hear)]

    return agent, runner.run(go())


def by_stream(number: int, at: int, runner: asyncio.Runner) -> tuple[Agent, list[AgentEvent]]:
    agent = agent_for(number)

    async def go() -> list[AgentEvent]:
        stream = agent.events("go", on_event=lambda event: stream.cancel("stop button") if event.seq == at else None)
        return [event async for event in stream]

    return agent, runner.run(go())


def by_break(number: int, at: int, runner: asyncio.Runner) -> tuple[Agent, list[AgentEvent]]:
    agent = agent_for(number)
    heard: list[AgentEvent] = []

    async def go() -> None:
        async with agent.events("go", on_event=heard.append) as stream:
            async for event in stream:
                if event.seq >= at:
                    break

    runner.run(go())
    return agent, heard


def by_task(number: int, at: int, runner: asyncio.Runner) -> tuple[Agent, list[AgentEvent]]:
    agent = agent_for(number)
    heard: list[AgentEvent] = []

    async def go() -> None:
        def hear(event: AgentEvent) -> None:
            heard.append(event)
            if event.seq == at:
                task.cancel()

        task = asyncio.ensure_future(agent.arun("go", on_event=hear))
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

    runner.run(go())
    return agent, heard


def by_sigint(number: int, at: int, runner: asyncio.Runner) -> tuple[Agent, list[AgentEvent]]:
    """`agent.run` in the main thread, which the signal interrupts while it waits."""
    agent = agent_for(number)
    heard: list[AgentEvent] = []
    main = threading.main_thread().ident
    assert main is not None
    assert threading.get_ident() == main, "only the main thread is interrupted by a signal"

    def hear(event: AgentEvent) -> None:
        heard.append(event)
        if event.seq == at:
            signal.pthread_kill(main, signal.SIGINT)

    interrupted = False
    with keyboard_interrupts():
        try:
            agent.run("go", on_event=hear)
            time.sleep(5)  # the signal may land when the run is just over
        except KeyboardInterrupt:
            interrupted = True
    assert interrupted
    return agent, heard


def by_handle(number: int, at: int, runner: asyncio.Runner) -> tuple[Agent, list[AgentEvent]]:
    agent = agent_for(number)
    started: Future[AgentRun] = Future()

    def hear(event: AgentEvent) -> None:
        if event.seq == at:
            started.result(10).cancel()

    handle = agent.start("go", on_event=hear)
    started.set_result(handle)
    heard = list(handle)
    handle.result(10)
    return agent, heard


_STOPS = {
    "token": by_token,
    "stream.cancel": by_stream,
    "break": by_break,
    "task": by_task,
    "sigint": by_sigint,
    "handle": by_handle,
}


def stopped(number: int, runner: asyncio.Runner) -> Iterator[Attempt]:
    """Stopped from outside, at every event."""
    for at in range(events_of(number, runner)):
        for name, stop in _STOPS.items():
            yield Attempt(f"{name} at event {at}", lambda r, stop=stop, at=at: stop(number, at, r))  # type: ignore[misc]


# -- what raises ---------------------------------------------------------------------------------------


def _followed(agent: Agent, runner: asyncio.Runner) -> tuple[Agent, list[AgentEvent]]:
    """Run it as a stream, which must not raise whatever happened; what the listeners heard is what the stream gave."""
    heard: list[AgentEvent] = []

    async def go() -> list[AgentEvent]:
        return [event async for event in agent.events("go", on_event=[heard.append, *agent._setup.on_event])]

    given = runner.run(go())
    assert given == heard
    return agent, heard


def _in_sync_run(agent: Agent, error: BaseException) -> tuple[Agent, list[AgentEvent]]:
    """Run it with `agent.run`, out of which only what ends runs may come."""
    heard: list[AgentEvent] = []
    try:
        agent.run("go", on_event=[heard.append, *agent._setup.on_event])
    except KeyboardInterrupt:
        assert type(error) is KeyboardInterrupt
    except AbortRun:
        assert type(error) is AbortRun
    except Exception:
        # What a before_request hook raises is raised; so are, in words, the things that are no exceptions.
        assert agent._setup.before_request
    return agent, heard


class _Nth:
    """Raises at its n-th call, from any thread."""

    def __init__(self, nth: int, make: Callable[[], BaseException]) -> None:
        self.left = nth
        self.make = make

    def __call__(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise self.make()


def raising_tools(number: int, runner: asyncio.Runner) -> Iterator[Attempt]:
    """Every execution of a tool raises, everything there is to raise, in a coroutine or in a thread."""
    executions = sum(1 for turn in script(number) for part in turn if getattr(part, "name", "") in FUNCTIONS)
    for nth in range(executions):
        for make in RAISED:

            def attempt(r: asyncio.Runner, nth: int = nth, make: Any = make, sync: bool = False) -> Any:
                raises = _Nth(nth, make)

                def wrapped(name: str, fn: Callable[..., Any]) -> Tool:
                    async def as_coroutine(i: int) -> str:
                        await asyncio.sleep(0)
                        raises()
                        return "fine"

                    def in_thread(i: int) -> str:
                        raises()
                        return "fine"

                    chosen = in_thread if name in ("threaded", "alone") else as_coroutine
                    return Tool(chosen, name=name, parallel_safe=name != "alone")

                agent = agent_for(number, tools=[wrapped(name, fn) for name, fn in FUNCTIONS.items()])
                return _in_sync_run(agent, make()) if sync else _followed(agent, r)

            name = f"tool call {nth} raises {make()!r}"
            yield Attempt(name, attempt)
            yield Attempt(f"{name} in run()", lambda r, a=attempt: a(r, sync=True))  # type: ignore[misc]


def raising_hooks(number: int, runner: asyncio.Runner) -> Iterator[Attempt]:
    """Every hook, approval function and listener raises, at every call of it."""
    turns = script(number)
    calls = sum(1 for turn in turns for part in turn if hasattr(part, "arguments"))
    places = {
        "before_tool_call": calls,
        "after_tool_call": calls,
        "before_request": len(turns),
        "approval": calls,
        "on_event": events_of(number, runner),
    }
    for place, count in places.items():
        for nth in range(count):
            for n, make in enumerate(RAISED[:3] if place == "on_event" else RAISED, nth):
                # The forms take turns: each of these is raised in each of them by the run's end.
                for kind in ("plain" if n % 2 or place == "on_event" else "async",):

                    def attempt(
                        r: asyncio.Runner,
                        place: str = place,
                        nth: int = nth,
                        make: Any = make,
                        kind: str = kind,
                        sync: bool = False,
                    ) -> Any:
                        raises = _Nth(nth, make)

                        def plain(*_: Any) -> Any:
                            raises()
                            return True if place == "approval" else None

                        async def later(*_: Any) -> Any:
                            await asyncio.sleep(0)
                            return plain()

                        agent = agent_for(number, **{place: plain if kind == "plain" else later})
                        return _in_sync_run(agent, make()) if sync else _followed(agent, r)

                    name = f"{kind} {place} {nth} raises {make()!r}"
                    if n % 4 < 2:
                        yield Attempt(name, attempt)
                    else:
                        yield Attempt(f"{name} in run()", lambda r, a=attempt: a(r, sync=True))  # type: ignore[misc]


# -- provider faults -----------------------------------------------------------------------------------


class FaultyProvider(ScriptedProvider):
    """Follows its script until a delta is due, counted over all turns; then something happens instead of it."""

    def __init__(self, turns: list[Any], at: int, fault: str) -> None:
        super().__init__(*turns)
        self.left = at
        self.kind = fault

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """Answer with the next turn, up to the fault."""
        async for delta in super().stream(request):
            self.left -= 1
            if self.left == -1:
                if self.kind == "cut":
                    return
                if self.kind == "length":
                    yield d.Finish("length", "length")
                    yield d.End()
                    return
                if self.kind == "reported":
                    yield d.Fault(ErrorInfo.make("server_error", "made up: in the stream"))
                    return
                if self.kind == "bug":
                    raise LookupError("the provider has a bug")
                raise ErrorInfo.make(self.kind, f"made up: {self.kind}").to_exception()  # type: ignore[arg-type]
            yield delta


def provider_faults(number: int, runner: asyncio.Runner) -> Iterator[Attempt]:
    """Every delta of every turn is replaced by a fault; the kinds of errors take turns."""

    async def count() -> int:
        provider = FaultyProvider(script(number), 10_000, "cut")
        await Agent(LLM(Config(provider="scripted", model="m", max_retries=0), provider=provider), tools()).arun("go")
        return 10_000 - provider.left

    for at in range(runner.run(count())):
        for fault in ("cut", "bug", "length", "reported", ERROR_KINDS[(at + number) % len(ERROR_KINDS)]):

            def attempt(r: asyncio.Runner, at: int = at, fault: str = fault) -> Any:
                provider = FaultyProvider(script(number), at, fault)
                llm = LLM(Config(provider="scripted", model="m", max_retries=0), provider=provider)
                return _followed(Agent(llm, tools()), r)

            yield Attempt(f"{fault} at delta {at}", attempt)


KINDS = {
    "stopped": stopped,
    "raising tool": raising_tools,
    "raising hook": raising_hooks,
    "provider fault": provider_faults,
}


# -- afterwards ----------------------------------------------------------------------------------------


def check(agent: Agent, events: list[AgentEvent], runner: asyncio.Runner) -> None:
    """The events are whole, the transcript is sound, and a next request is one that all six targets take."""
    assert_event_grammar(events)
    assert_valid(agent.messages)

    async def again() -> None:
        fork = agent.fork(
            llm=ScriptedProvider.llm("next"),
            before_tool_call=None,
            after_tool_call=None,
            before_request=None,
            on_event=None,
        )
        result = await fork.arun("and now?")
        assert result.text == "next"
        assert_accepted(result.messages)
        (request,) = fork.llm.backend.requests  # type: ignore[attr-defined]
        assert request.messages[:-1] == agent._compaction.view(agent.messages)
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert left == [], left

    runner.run(again())

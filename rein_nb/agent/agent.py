"""`Agent`: a model, its tools and a conversation."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from rein_nb import aio
from rein_nb.agent.approvals import Policy
from rein_nb.agent.arguments import Prompt, as_prompt, changed, check_listener, normalised
from rein_nb.agent.asking import outlast
from rein_nb.agent.context import Compaction, Context, Meter
from rein_nb.agent.events import AgentEvent
from rein_nb.agent.handle import AgentRun
from rein_nb.agent.healing import heal
from rein_nb.agent.limits import Limits
from rein_nb.agent.loop import run_loop
from rein_nb.agent.output import OutputSpec, has_native_output
from rein_nb.agent.result import AgentResult
from rein_nb.agent.state import Listener, RunState, Setup, raise_for
from rein_nb.agent.streams import EventStream, as_chunks
from rein_nb.ir import InvalidRequest, Message, StreamChunk, clock
from rein_nb.ir.clock import RunClock
from rein_nb.ir.transcript import HasTranscript
from rein_nb.llm import LLM, as_messages, as_options
from rein_nb.stream import CancellationToken
from rein_nb.tools import Tool, Toolset

if TYPE_CHECKING:
    import pandas as pd

_OF_AN_AGENT = frozenset({"messages", "session"})
"""Arguments that are an agent's, and not one run's."""


class Agent(HasTranscript):
    """A model that can use tools, and remembers the conversation.

    Parameters
    ----------
    llm
        An `LLM`, or a name like ``"anthropic/claude-..."``.
    tools
        Functions, `Tool` objects, toolsets, other agents.
    system
        The system prompt.
    messages
        A conversation to go on from; it is healed, not changed.
    limits
        `Limits`, or a dict of its fields.
    approval
        Who decides about tool calls: ``"auto"`` (ask for tools that require it), ``"never"`` (ask for nothing), ``"always"``, a function
        ``(call)`` or ``(call, ctx)``, or a dict by tool name.
    approval_timeout_s
        Seconds that a question may stay open before it counts as denied; None for ever.
    interactive
        Whether somebody can answer questions: True waits for a decision, False denies at once. None (default) is True for `events` and
        `start`, whose events can be answered, and False for `run`, `arun` and `astream`.
    before_tool_call, after_tool_call, before_request
        Hooks, one or several; see `rein_nb.agent.hooks`.
    deps
        Handed to tools as ``ctx.deps``.
    output_type
        A type that the final answer must have; the validated value is ``result.output``.
    max_output_retries
        How often an answer that does not validate is sent back.
    tool_choice
        For the first model call of a run: ``"auto"``, ``"none"``, ``"required"``, a tool's name, or a `ToolChoice`.
    context
        When and how a long conversation is shortened; see `Context`.
    fallback
        Further models, taken in order when a call fails before it showed anything.
    label
        A name for comparisons and sub-agents.
    on_event
        Called with every event of every run, in the run's thread.
    session
        Where runs are saved as they go on: a `Session`, whose conversation the agent takes over.
    options
        Options of every model call: ``temperature=``, ``max_output_tokens=``...

    Raises
    ------
    InvalidRequest
        For an unknown option, a policy or choice that could never work.

    Examples
    --------
    >>> from rein_nb.testing import ScriptedProvider
    >>> agent = Agent(ScriptedProvider.llm("Hello!"))
    >>> agent.run("hi").text
    'Hello!'
    """

    def __init__(
        self,
        llm: LLM | str,
        tools: Iterable[Any] | Toolset = (),
        system: str | None = None,
        *,
        messages: Any = None,
        limits: Limits | Mapping[str, float] | None = None,
        approval: Policy = None,
        approval_timeout_s: float | None = 300.0,
        interactive: bool | None = None,
        before_tool_call: Any = (),
        after_tool_call: Any = (),
        before_request: Any = (),
        deps: Any = None,
        output_type: Any = None,
        max_output_retries: int = 2,
        tool_choice: Any = None,
        context: Context | str | None = None,
        fallback: Any = (),
        label: str = "",
        on_event: Any = (),
        session: Any = None,
        **options: Any,
    ) -> None:
        given = {
            "llm": llm, "tools": tools, "system": system, "limits": limits, "approval": approval, "approval_timeout_s": approval_timeout_s, "interactive": interactive,
            "before_tool_call": before_tool_call, "after_tool_call": after_tool_call, "before_request": before_request, "deps": deps,
            "output_type": output_type, "max_output_retries": max_output_retries, "tool_choice": tool_choice, "context": context,
            "fallback": fallback, "label": label, "on_event": on_event,
        }  # fmt: skip
        as_options(options)
        self._setup = Setup(**normalised(given), options=dict(options))
        self._lock = threading.Lock()
        self._messages: list[Message] = []
        self._compaction = Compaction()
        self._meter = Meter()
        self._always_allowed: set[str] = set()
        # Weakly: a run whose loop is gone ends when nobody holds it any more.
        self._live: weakref.WeakSet[RunState] = weakref.WeakSet()
        self._results: list[AgentResult] = []
        self._clock: RunClock | None = None
        # Shared with forks: what a recording of one agent goes by.
        self._identity = object()
        self.messages = messages
        self._save_into(session)

    # -- what it is -------------------------------------------------------------------------------

    @property
    def llm(self) -> LLM:
        """The model."""
        return self._setup.llm

    @property
    def tools(self) -> Toolset:
        """The tools; ``agent.tools.add(fn)`` works while a run is going."""
        return self._setup.tools

    @property
    def system(self) -> str | None:
        """The system prompt."""
        return self._setup.system

    @property
    def label(self) -> str:
        """The agent's label, or its model's name."""
        return self._setup.label or f"{self.llm.provider}/{self.llm.model}"

    @property
    def messages(self) -> list[Message]:
        """The conversation so far; assign another to go on from that one. It is healed when it is assigned."""
        return self._messages

    @messages.setter
    def messages(self, value: Any) -> None:
        found = heal(as_messages(value)).messages if value else []
        with self._lock:
            self._messages = found
            self._compaction = Compaction()
            self._meter = Meter()

    @property
    def results(self) -> list[AgentResult]:
        """The results of the runs so far, in the order in which they ended; `reset` forgets them too."""
        return list(self._results)

    def to_frame(self, kind: str = "turns") -> pd.DataFrame:
        """One of the tidy frames over all runs so far: ``runs``, ``turns``, ``messages``, ``parts``, ``tool_calls`` or ``usage``."""
        frame: pd.DataFrame = import_module("rein_nb.frames").frame(kind, self.results)
        return frame

    def __repr__(self) -> str:
        return f"Agent({self.label}, tools={self.tools.names}, messages={len(self._messages)})"

    def reset(self) -> None:
        """Forget the conversation, the results of its runs, and which tools were allowed for good."""
        self.messages = None
        self._results = []
        self._always_allowed.clear()

    def fork(self, **changes: Any) -> Agent:
        """An agent of its own with the same setup and conversation, some of it changed: ``agent.fork(llm="openai/...")``.

        It is saved where this one is; with ``session=`` there instead, and with ``session=None`` nowhere.

        Parameters
        ----------
        changes
            Any argument of `Agent`.
        """
        copy = Agent.__new__(type(self))
        setup = self._setup if "tools" in changes else replace(self._setup, tools=self.tools.copy())
        copy._setup = changed(setup, {name: value for name, value in changes.items() if name not in _OF_AN_AGENT})
        copy._lock = threading.Lock()
        copy._always_allowed = set(self._always_allowed)
        copy._live = weakref.WeakSet()
        copy._results = []
        copy._clock = self._clock
        copy._identity = self._identity
        with self._lock:
            copy._messages = list(self._messages)
            copy._compaction = self._compaction
            copy._meter = self._meter_for(copy._setup.llm).copy()
        if "messages" in changes:
            copy.messages = changes["messages"]
        if "session" in changes:
            for listener in copy.listeners:
                if hasattr(listener, "saves_into"):
                    copy.remove_listener(listener)
            copy._save_into(changes["session"])
        return copy

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            "an Agent cannot be copied or pickled: agent.fork() makes another one with the same conversation, "
            "and its messages can be stored (agent.to_jsonl(), a Session)"
        )

    def _save_into(self, session: Any) -> None:
        if session is not None:
            if isinstance(session, type) or not callable(getattr(session, "attach", None)):
                raise InvalidRequest(f"session must be a rein_nb.Session, not {_told(session)}")
            session.attach(self)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Who is told of every event of every run."""
        return self._setup.on_event

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called with every event of every later run, in the run's thread.

        Raises
        ------
        InvalidRequest
            When it cannot be called, or is an async function.
        """
        check_listener(listener)
        self._setup = replace(self._setup, on_event=(*self._setup.on_event, listener))

    def remove_listener(self, listener: Listener) -> None:
        """Take a listener off, from the next run on."""
        self._setup = replace(
            self._setup, on_event=tuple(found for found in self._setup.on_event if found is not listener)
        )

    # -- running ----------------------------------------------------------------------------------

    def run(self, prompt: Prompt | None = None, **overrides: Any) -> AgentResult:
        """Run to the end, from synchronous code: a script, a notebook cell, any thread.

        Parameters
        ----------
        prompt
            What to say; None goes on from the conversation as it is.
        overrides
            Any argument of `Agent` but ``messages`` and ``session``, or ``signal=`` (a `CancellationToken`), for this run only.

        Raises
        ------
        ProviderError
            When a provider's fault ended the run; it carries `.completion` and `.result`.
        KeyboardInterrupt
            After the run was stopped; the conversation is valid and can go on.
        InvalidRequest
            For what is wrong with the call itself.
        """
        run = self._new_run(prompt, overrides)
        return raise_for(run, aio.run_sync(self._shielded(run)))

    async def arun(self, prompt: Prompt | None = None, **overrides: Any) -> AgentResult:
        """`run` for asynchronous code, in the caller's own event loop. Cancelling the task stops the run first.

        A limit or a cancelled token ends with a result, a provider's fault raises.
        """
        run = self._new_run(prompt, overrides)
        return raise_for(run, await self._shielded(run))

    def events(self, prompt: Prompt | None = None, **overrides: Any) -> EventStream[AgentEvent]:
        """The run as events, `AgentEnd` last. Never raises for what a provider or a tool did."""
        run = self._new_run(prompt, overrides, watched=True)
        return EventStream(run, lambda: self._drive(run))

    def astream(self, prompt: Prompt | None = None, **overrides: Any) -> EventStream[StreamChunk]:
        """The run as a flat stream of `StreamChunk` over all its turns, one ``done`` at the end."""
        run = self._new_run(prompt, overrides)
        return EventStream(run, lambda: self._drive(run), as_chunks)

    def start(self, prompt: Prompt | None = None, **overrides: Any) -> AgentRun:
        """Run in the background, on rein_nb's own loop, and return at once."""
        run = self._new_run(prompt, overrides, watched=True)
        handle = AgentRun(run)
        return handle._begin(aio.submit(self._shielded(run)))

    def as_tool(self, name: str | None = None, description: str | None = None, **options: Any) -> Tool:
        """This agent as a tool of another: each call is a conversation of its own that starts from this agent's.

        Parameters
        ----------
        name, description
            What the other model sees; the label and the system prompt's first line by default.
        options
            Further options of `Tool`.
        """
        from rein_nb.agent.subagent import agent_tool

        return agent_tool(self, name, description, options)

    # -- inside -----------------------------------------------------------------------------------

    def _new_run(self, prompt: Prompt | None, overrides: dict[str, Any], *, watched: bool = False) -> RunState:
        signal = overrides.pop("signal", None)
        if signal is not None and not isinstance(signal, CancellationToken):
            raise InvalidRequest(f"signal must be a CancellationToken, not {type(signal).__name__}")
        if not _OF_AN_AGENT.isdisjoint(overrides):
            names = " and ".join(sorted(_OF_AN_AGENT.intersection(overrides)))
            raise InvalidRequest(
                f"{names} cannot be given for one run: agent.fork({names.split()[0]}=...) makes an agent that has it"
            )
        setup = changed(self._setup, overrides)
        started = as_prompt(prompt)
        with self._lock:
            history, compaction = self._messages, self._compaction
            meter = self._meter_for(setup.llm)
        if not started and not history:
            raise InvalidRequest("there is nothing to answer: give a prompt")
        run = RunState(
            setup,
            history,
            started,
            compaction=compaction,
            meter=meter,
            signal=signal,
            always_allowed=self._always_allowed,
            watched=watched,
            after=self._clock,
            owner=self._identity,
        )
        self._clock = run.clock
        if setup.output_type is not None:
            run.output_spec = OutputSpec(
                setup.output_type, native=has_native_output(setup.llm), taken=setup.tools.names
            )
        return run

    def _meter_for(self, llm: LLM) -> Meter:
        """What the agent's model counted; another one counts in its own way."""
        return self._meter if llm is self.llm else Meter()

    async def _drive(self, run: RunState) -> AgentResult:
        """The loop, and then the conversation takes over what it gave."""
        await self._let_stopped_runs_settle(run)
        run.loop, run.task = asyncio.get_running_loop(), asyncio.current_task()
        with self._lock:
            self._live.add(run)
        try:
            return await run_loop(run)
        finally:
            self._take_over(run)

    async def _let_stopped_runs_settle(self, run: RunState) -> None:
        """A consumer that left early and asks again at once shall find the interrupted turn in the conversation."""
        if not self._live:
            return
        loop = asyncio.get_running_loop()
        outer = clock.current()  # a run that waits for this one
        with self._lock:
            stopping = [
                other.task
                for other in self._live
                if other.loop is loop
                and other.token.is_cancelled
                and other.clock is not outer
                and other.task is not None
            ]
        if not stopping:
            return
        await outlast(stopping, run.task_cancelled)
        with self._lock:
            if self._messages is not run.history:
                run.go_on_from(self._messages, self._compaction, self._meter_for(run.llm))

    async def _shielded(self, run: RunState) -> AgentResult:
        task = asyncio.ensure_future(self._drive(run))
        if await outlast((task,), run.task_cancelled):
            if not task.cancelled():
                task.exception()
            raise asyncio.CancelledError
        return task.result()

    def _take_over(self, run: RunState) -> None:
        """Put a run's messages into the conversation, in one piece: runs at the same time do not mix theirs."""
        new = run.messages[run.base :]
        with self._lock:
            self._live.discard(run)
            if run.result is not None:
                self._results.append(run.result)
            if self._messages is run.history and len(self._messages) == run.base:
                self._messages = list(run.messages)
                self._compaction = run.compaction
                self._meter = run.meter if run.llm is self.llm else Meter()
            else:
                self._messages = [*self._messages, *new]
                self._meter = Meter()


def _told(value: Any) -> str:
    return (
        f"the class {value.__name__}: make one with Session.new()" if isinstance(value, type) else type(value).__name__
    )

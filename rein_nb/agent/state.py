"""The state of one run: what the loop reads and writes, and how it speaks to its listeners."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rein_nb.agent.approvals import Policy, Question
from rein_nb.agent.context import Compaction, Context, Meter
from rein_nb.agent.events import AgentEvent, ApprovalRequested, MessageEnd, MessageStart, Notice
from rein_nb.agent.healing import heal
from rein_nb.agent.hooks import AfterToolCall, BeforeRequest, BeforeToolCall, own_arguments
from rein_nb.agent.limits import Limits
from rein_nb.agent.output import OutputSpec
from rein_nb.agent.result import AgentResult, StopReason, Turn
from rein_nb.ir import Completion, ErrorInfo, InvalidRequest, Message, ToolCall, Usage, clock
from rein_nb.ir.errors import said
from rein_nb.llm import LLM
from rein_nb.stream import CancellationToken
from rein_nb.tools import Progress, ToolContext, Toolset
from rein_nb.tools.execute import EndsRun

Listener = Callable[[AgentEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What an agent is made of; a run may replace any of it. The fields are documented at `Agent`."""

    llm: LLM
    tools: Toolset
    system: str | None = None
    limits: Limits = field(default_factory=Limits)
    approval: Policy = None
    approval_timeout_s: float | None = 300.0
    interactive: bool | None = None
    before_tool_call: tuple[BeforeToolCall, ...] = ()
    after_tool_call: tuple[AfterToolCall, ...] = ()
    before_request: tuple[BeforeRequest, ...] = ()
    deps: Any = None
    output_type: Any = None
    max_output_retries: int = 2
    tool_choice: Any = None
    context: Context = field(default_factory=Context)
    fallback: tuple[LLM, ...] = ()
    label: str = ""
    on_event: tuple[Listener, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


class RunState:
    """One run. Everything but `stop`, `steer`, `follow_up` and `call_soon` belongs to the loop's thread.

    Parameters
    ----------
    setup
        What the run works with.
    history
        The transcript before the run; not changed.
    prompt
        The messages that start it.
    compaction
        What is left out of the history when it is sent.
    meter
        What the provider reported for the history.
    signal
        Cancels the run from outside.
    always_allowed
        Tools that were allowed for good.
    watched
        Whether somebody follows the events who can answer questions.
    after
        The clock of the run before it, of the same agent.
    owner
        What stands for the agent.
    """

    def __init__(
        self,
        setup: Setup,
        history: Sequence[Message],
        prompt: Sequence[Message],
        *,
        compaction: Compaction | None = None,
        meter: Meter | None = None,
        signal: CancellationToken | None = None,
        always_allowed: set[str] | None = None,
        watched: bool = False,
        after: clock.RunClock | None = None,
        owner: object = None,
    ) -> None:
        self.setup = setup
        self.tools = setup.tools
        self.llm = setup.llm
        self.signal = signal
        self.token = CancellationToken()  # follows the signal from the start of the run on
        self.loop: asyncio.AbstractEventLoop = None  # type: ignore[assignment]  # set when the run starts
        self.task: asyncio.Task[Any] | None = None  # as well
        # One object for all turns: the encoders know a history by its objects.
        self.system_message = Message(role="system", content=setup.system) if setup.system else None
        self.prompt = list(prompt)
        self.clock = clock.for_run(
            getattr(setup.llm, "backend", None), self._what_it_is(len(history)), owner=owner, after=after
        )
        self.run_id = self.clock.run_id
        self.go_on_from(history, compaction or Compaction(), meter or Meter())
        self.compacted = False
        self.turns: list[Turn] = []
        self.other_calls: list[Completion] = []
        self.turn = 0
        self.tool_calls = 0
        self.usage: Usage | None = None
        self.delegated: Usage | None = None
        self.output: Any = None
        self.output_spec: OutputSpec | None = None
        self.output_retries = 0
        self.force_answer = False
        self.answered = False
        self.malformed_turns = 0
        self.resumptions = 0
        self.fallbacks = deque(setup.fallback)
        self.interactive = setup.interactive if setup.interactive is not None else watched
        self.nested = False
        self.one_by_one = asyncio.Lock()  # the user's plain functions: see `rein_nb.agent.asking`
        self.hook_copies: dict[int, tuple[Message, Message]] = {}
        self.no_summary_of = 0
        self.questions: list[tuple[str, Question]] = []
        self.always_allowed = always_allowed if always_allowed is not None else set()
        self.steering: deque[Message] = deque()
        self.follow_ups: deque[Message] = deque()
        self.error: ErrorInfo | None = None
        self.exception: BaseException | None = None
        self.result: AgentResult | None = None
        self._stop: StopReason | None = None
        self._stop_lock = threading.Lock()
        self.grace_ends: float | None = None  # see `rein_nb.agent.asking`
        self._listeners: tuple[Listener, ...] = setup.on_event
        self._seq = 0
        self._price_warned = False
        self._over = False

    def go_on_from(self, history: Sequence[Message], compaction: Compaction, meter: Meter) -> None:
        """Take over a transcript as what was before this run; only before it starts."""
        self.history: object = history
        self.messages: list[Message] = [*history, *self.prompt]
        self.base = len(history)
        self.compaction = compaction
        self.meter = meter.copy()

    # -- speaking ---------------------------------------------------------------------------------

    @property
    def listening(self) -> bool:
        """Whether anybody hears events; without listeners none need be made."""
        return bool(self._listeners)

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called with every further event, in the loop's thread."""
        self._listeners = (*self._listeners, listener)

    def remove_listener(self, listener: Listener) -> None:
        """Take a listener off."""
        left = list(self._listeners)
        if listener in left:
            left.remove(listener)
        self._listeners = tuple(left)

    def emit(self, event: AgentEvent) -> None:
        """Stamp an event and hand it to every listener. A listener that fails is taken off: it must not end the run."""
        event.run_id = self.run_id
        event.seq = self._seq
        event.time = self.clock.now()
        event.turn = self.turn
        self._seq += 1
        for listener in self._listeners:
            try:
                listener(event)
            except KeyboardInterrupt as exc:
                # A kernel's interrupt that landed in the drawing: it was meant for the run.
                self.end_with(exc)
            except BaseException as exc:
                self.remove_listener(listener)
                self.loop.call_exception_handler(
                    {"message": "a listener of an agent run failed and was taken off", "exception": exc}
                )

    def emit_last(self, event: AgentEvent) -> None:
        """As `emit`; nobody hears of anything after it: what was left to itself may still try to say something."""
        self.emit(event)
        self._listeners = ()

    def call_soon(self, work: Callable[[], None]) -> None:
        """Have `work` done in the loop's thread; from any thread. Nothing happens when the loop is closed."""
        try:
            if asyncio.get_running_loop() is self.loop:
                work()
                return
        except RuntimeError:
            pass  # another thread, without a loop
        try:
            self.loop.call_soon_threadsafe(work)
        except RuntimeError:
            return

    def append(self, message: Message) -> None:
        """Add a whole message to the transcript and tell listeners."""
        self.messages.append(message)
        if self._listeners:
            self.emit(MessageStart(message=message))
            self.emit(MessageEnd(message=message))

    # -- stopping ---------------------------------------------------------------------------------

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the run is to end; None while it may go on."""
        return self._stop if self._stop is not None or not self.token.is_cancelled else "cancelled"

    def stop(self, reason: StopReason, why: str | None = None) -> None:
        """End the run now: the model call and the tools are stopped. From any thread; the first reason counts."""
        with self._stop_lock:
            if self._stop is None:
                self._stop = reason
        self.token.cancel(why or reason)

    def limit_hit(self, reason: StopReason) -> None:
        """End the run after this turn."""
        with self._stop_lock:
            if self._stop is None:
                self._stop = reason

    def end_with(self, exception: BaseException) -> None:
        """End the run because of an exception, whatever it is, that `arun` shall raise. Called by the task in which it was raised.

        Where that task is cancelled, the exception is no fault but an order, and `run_loop` raises it again at the run's end.
        """
        if isinstance(exception, EndsRun):
            exception = exception.cause
        if isinstance(exception, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                self.task_cancelled()
                return
        if isinstance(exception, asyncio.CancelledError | GeneratorExit):
            # Raised in the caller's own code, it would be taken for an order there.
            exception = RuntimeError(f"a function raised {type(exception).__name__}: {said(exception)}")
        if self.exception is None:
            self.exception = exception
        if not isinstance(exception, KeyboardInterrupt):
            self.error = self.error or ErrorInfo.of(exception)
            self.stop("error", said(exception) or type(exception).__name__)
        else:
            self.stop("cancelled", type(exception).__name__)

    def task_cancelled(self) -> None:
        """End the run because a task of it is cancelled."""
        self.stop("cancelled", "the task was cancelled")

    def tool_calls_left(self) -> int | None:
        """Tool calls that the limit still allows; None without a limit."""
        limit = self.setup.limits.tool_calls
        return None if limit is None else limit - self.tool_calls

    # -- helping the loop -------------------------------------------------------------------------

    def context_for(
        self,
        call: ToolCall,
        token: CancellationToken | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> ToolContext[Any]:
        """What a tool or hook is given."""
        return ToolContext(
            on_usage=self.add_delegated,
            on_question=lambda question: self.call_soon(lambda: self.ask(replace(question, asked_by=call.id))),
            interactive=self.interactive,
            call=own_arguments(call),
            deps=self.setup.deps,
            token=token or self.token,
            run_id=self.run_id,
            turn=self.turn,
            on_progress=on_progress,
        )

    def ask(self, question: ApprovalRequested) -> None:
        """Put a question. Its time runs from now on, unless this run is itself a sub-agent's: then from when it is put further up."""
        self.emit(question)
        if not self.nested and question.begin is not None:
            question.begin()

    def add_usage(self, usage: Usage) -> None:
        """Count a model call's usage towards the run's."""
        self.usage = usage if self.usage is None else self.usage + usage

    def add_delegated(self, usage: Usage) -> None:
        """Count what a tool (a sub-agent) spent; it counts for the limits, and is no part of the turns' usage."""
        self.call_soon(lambda: setattr(self, "delegated", usage if self.delegated is None else self.delegated + usage))

    def spent(self) -> Usage:
        """The usage so far, sub-agents' included; warns once when a money limit cannot be held because the price is unknown."""
        usage = self.usage or Usage()
        limits = self.setup.limits
        if limits.usd is not None and self.usage is not None and usage.cost_usd is None and not self._price_warned:
            self._price_warned = True
            self.emit(
                Notice(
                    kind="warning",
                    message=f"the price of {self.llm.model} is unknown: the limit of ${limits.usd:g} cannot be held",
                )
            )
        return usage if self.delegated is None else usage + self.delegated

    def say(self, queue: deque[Message], message: Message) -> None:
        """Put a message into `steering` or `follow_ups`. From any thread.

        Raises
        ------
        InvalidRequest
            When the run is over: nobody would read it.
        """
        with self._stop_lock:
            if self._over:
                raise InvalidRequest("the run is over: say it to the agent with another run")
            queue.append(message)

    def take_steering(self) -> bool:
        """Put what was said while the run was going into the transcript; whether there was anything."""
        return self._take(self.steering, "steering")

    def take_follow_up(self) -> bool:
        """Put the next follow-up message into the transcript; whether there was one."""
        return self._take(self.follow_ups, "follow_up", one=True)

    def _take(self, queue: deque[Message], kind: str, one: bool = False) -> bool:
        taken = False
        while queue and not (one and taken):
            message = queue.popleft()
            taken = True
            if self._listeners:
                self.emit(Notice(kind=kind, message=message.text))
            self.append(message)
        return taken

    def _what_it_is(self, before: int) -> Callable[[], tuple[Any, ...]]:
        return lambda: (
            self.setup.label,
            self.llm.provider,
            self.llm.model,
            before,
            [message.model_dump(mode="json", fallback=str) for message in self.prompt],
        )

    def finished(self) -> AgentResult:
        """The run's result, made once. Whatever interrupted it, every call of the transcript has a result."""
        if self.result is None:
            with self._stop_lock:
                self._over = True
            for message in (*self.steering, *self.follow_ups):
                self.emit(
                    Notice(kind="warning", message=f"the run ended before the model could be told: {message.text}")
                )
            new = heal(self.messages[self.base :])
            self.messages[self.base :] = new.messages
            usage = self.usage or Usage()
            output = self.output
            reason = self.stop_reason or "completed"
            if self.setup.output_type is None and reason == "completed":
                output = next((m.text for m in reversed(self.messages[self.base :]) if m.role == "assistant"), "")
            self.result = AgentResult.model_construct(
                run_id=self.run_id,
                model=self.llm.model,
                provider=self.llm.provider,
                label=self.setup.label,
                system=self.setup.system,
                messages=self.messages,
                new_messages_from=self.base,
                turns=self.turns,
                usage=usage,
                stop_reason=reason,
                output=output,
                error=self.error if reason == "error" else None,
                started_at=self.clock.told(self.clock.started_at or None),
                duration_s=self.clock.told(self.clock.elapsed()) if self.clock.started_at else None,
            )
        return self.result


def raise_for(run: RunState, result: AgentResult) -> AgentResult:
    """The result, unless the run was ended by a fault or an exception: then that is raised.

    Called in the caller's own code, never inside the loop's task, where a KeyboardInterrupt would tear down the event loop.
    """
    if run.exception is not None:
        raise run.exception
    if result.stop_reason == "error" and result.error is not None:
        error = result.error.to_exception(result.completion)
        error.result = result
        raise error
    return result

"""The tool calls of one turn: checked, approved, run at the same time, answered in order.

N parallel calls of time t take about t. A tool that is not parallel-safe runs alone. Every call gets exactly one result, whatever
happens: stopped while running and never started are told apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from rein_nb.agent import hooks
from rein_nb.agent.approvals import Question, judge
from rein_nb.agent.asking import Stopped, is_closed, outlast, stoppable, within_grace
from rein_nb.agent.events import (
    ApprovalRequested,
    Notice,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
)
from rein_nb.agent.result import ToolRun
from rein_nb.dialects.schema import without_filled_nulls
from rein_nb.ir import Completion, ToolCall, ToolChoice, ToolResult, clock
from rein_nb.tools import Outcome, Progress, Tool, ToolContext, outcomes
from rein_nb.tools.execute import EndsRun

if TYPE_CHECKING:
    from rein_nb.agent.state import RunState


async def execute_calls(run: RunState, completion: Completion) -> list[ToolRun]:
    """Answer every call of a turn, in call order. Never raises for what the model, a tool or a hook did."""
    calls = completion.tool_calls
    # `stop_reason` and errors decide for the whole turn: a call is run only when its turn ended in success.
    runnable = {id(call) for call in completion.runnable_tool_calls}
    answers: dict[int, ToolRun] = {}
    batch: list[tuple[int, ToolCall, Tool]] = []
    # Not every server can be told, and not every model listens.
    choice = ToolChoice.of(run.setup.tool_choice)
    one_by_one = choice is not None and choice.parallel == "single"
    for index, call in enumerate(calls):
        refusal = None
        tool = run.tools.get(call.name)
        if id(call) not in runnable:
            refusal = _not_runnable(call, completion)
        elif tool is None:
            refusal = outcomes.unknown_tool(call, run.tools.names)
        if refusal is not None:
            answers[index] = await _answered(run, call, refusal)
            continue
        assert tool is not None
        if one_by_one or not tool.parallel_safe:
            await _run_batch(run, batch, answers)
            await _run_batch(run, [(index, call, tool)], answers)
            batch = []
        else:
            batch.append((index, call, tool))
    await _run_batch(run, batch, answers)
    return [answers[index] for index in range(len(calls))]


def _not_runnable(call: ToolCall, completion: Completion) -> ToolResult:
    """The answer to a call that its own turn forbids to run."""
    if completion.finish_reason == "cancelled":
        return outcomes.not_started(call, "the answer was still being written")
    if call.error or not call.name:
        return outcomes.malformed_call(call)
    if completion.finish_reason == "length":
        return outcomes.unfinished_turn(
            call, "the answer was cut off by its token limit, so the call may be incomplete"
        )
    if completion.error is not None:
        return outcomes.unfinished_turn(call, f"the answer ended in an error ({completion.error.kind})")
    return outcomes.unfinished_turn(call, f"the answer ended with {completion.finish_reason!r}")


async def _run_batch(run: RunState, batch: list[tuple[int, ToolCall, Tool]], answers: dict[int, ToolRun]) -> None:
    if not batch:
        return
    if len(batch) == 1:
        index, call, tool = batch[0]
        answers[index] = await _contained(run, call, tool, _Together(1))
        return
    together = _Together(len(batch))
    tasks: list[asyncio.Task[ToolRun]] = []
    for place, (_, call, tool) in enumerate(batch):
        # Played back, calls end in their order: which is done first is the machine's doing.
        before = tasks[-1] if tasks and run.clock.replayed else None
        tasks.append(asyncio.ensure_future(_contained(run, call, tool, together, place, before)))
    # When the task is cancelled, each call looks at the token and answers by itself; nobody is left behind.
    await outlast(tasks, run.task_cancelled)
    for (index, call, _), task in zip(batch, tasks, strict=True):
        answers[index] = task.result() if not task.cancelled() else _lost(run, call, False)


class _Together:
    """The calls of one batch: who of them may still run when a limit does not let all, and who has to run alone after all.

    The limit's last calls go to those that come first in the model's order, however long their approvals take.
    """

    def __init__(self, size: int) -> None:
        self._decided: list[bool] = [False] * size
        self._running = 0
        self._alone = False
        self._waiting: list[asyncio.Future[None]] = []
        self.started: set[int] = set()

    async def may_start(self, run: RunState, place: int) -> bool:
        """Whether the limit of tool calls lets the call in this place run, which it counts then. It waits for earlier ones that may take the last."""
        while (left := run.tool_calls_left()) is not None and 0 < left <= self._decided[:place].count(False):
            await self._change()
        if left is not None and left <= 0:
            return False
        run.tool_calls += 1
        return True

    def decided(self, place: int) -> None:
        """Say that the call in this place was started or refused."""
        self._decided[place] = True
        self._tell()

    @asynccontextmanager
    async def room_for(self, tool: Tool) -> AsyncIterator[None]:
        """Wait until the tool may run: one that is not parallel-safe while no other does."""
        while self._alone or (self._running and not tool.parallel_safe):
            await self._change()
        self._running += 1
        self._alone = not tool.parallel_safe
        try:
            yield
        finally:
            self._running -= 1
            self._alone = False
            self._tell()

    async def _change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def _tell(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


async def _contained(
    run: RunState,
    call: ToolCall,
    tool: Tool,
    together: _Together,
    place: int = 0,
    before: asyncio.Task[ToolRun] | None = None,
) -> ToolRun:
    """`_run_call`, whose own failure ends the run and not the answers of the other calls."""
    task = asyncio.current_task()
    entered = clock.enter_call(call.id)
    try:
        return await _run_call(run, call, tool, together, place, before)
    except BaseException as exc:
        if is_closed(exc, task):
            raise
        run.end_with(exc)
        return _lost(run, call, place in together.started)
    finally:
        clock.leave_call(entered)


def _lost(run: RunState, call: ToolCall, started: bool) -> ToolRun:
    """What is told of a call that has no end of its own."""
    why = run.token.reason
    result = outcomes.interrupted_while_running(call, why) if started else outcomes.not_started(call, why)
    run.emit(ToolExecutionEnd(call=call, result=result))
    return ToolRun.model_construct(call=call, result=result, started_at=None, duration_s=None)


async def _answered(run: RunState, call: ToolCall, result: ToolResult) -> ToolRun:
    """Report a call that was answered without running; hooks see it as the error it is."""
    result = await _after_hooks(run, call, result, run.context_for(call))
    run.emit(ToolExecutionEnd(call=call, result=result))
    return ToolRun.model_construct(call=call, result=result, started_at=None, duration_s=None)


async def _run_call(
    run: RunState, call: ToolCall, tool: Tool, together: _Together, place: int, before: asyncio.Task[ToolRun] | None
) -> ToolRun:
    """One call, answered; not before the task `before` is done, where one is given."""
    live = True

    def on_progress(progress: Progress) -> None:
        def report() -> None:
            if live:
                run.emit(
                    ToolExecutionUpdate(
                        call_id=call.id, message=progress.message, fraction=progress.fraction, data=progress.data
                    )
                )

        run.call_soon(report)

    # A token of its own: a tool's timeout must not stop the run.
    token = run.token.child()
    ctx = run.context_for(call, token, on_progress)
    try:
        try:
            checked, tool, refusal = await _checked(run, call, tool, ctx)
            if refusal is None and not await together.may_start(run, place):
                refusal = _limit_reached(run, checked)
        finally:
            together.decided(place)
        if refusal is not None:
            await _wait_for(before)
            return await _answered(run, checked, refusal)
        checked = _without_filled_nulls(run, checked, tool)
        if checked is not call or run.setup.before_tool_call:
            ctx.call = hooks.own_arguments(checked)
        # Which tool runs alone is known beforehand, but for what a hook renamed.
        async with together.room_for(tool) if run.setup.before_tool_call else _ROOM:
            together.started.add(place)
            run.emit(ToolExecutionStart(call=checked))
            outcome = await tool.execute(checked, ctx)
        await _wait_for(before)
        live = False
        result = await _after_hooks(run, checked, outcome.result, ctx)
    finally:
        live = False
        token.close()
    if outcome.ends_run is not None:
        run.end_with(outcome.ends_run)
    return _ended(run, checked, result, outcome)


_ROOM = nullcontext()


def _limit_reached(run: RunState, call: ToolCall) -> ToolResult:
    run.limit_hit("max_tool_calls")
    return outcomes.not_started(call, "the limit of tool calls is reached")


async def _wait_for(task: asyncio.Task[ToolRun] | None) -> None:
    if task is not None:
        await asyncio.wait((task,))


def _ended(run: RunState, call: ToolCall, result: ToolResult, outcome: Outcome) -> ToolRun:
    run.emit(ToolExecutionEnd(call=call, result=result, duration_s=outcome.duration_s, value=outcome.value))
    return ToolRun.model_construct(
        call=call, result=result, started_at=outcome.started_at, duration_s=outcome.duration_s
    )


def _without_filled_nulls(run: RunState, call: ToolCall, tool: Tool) -> ToolCall:
    """The call without the nulls that strict mode makes a model write for optional parameters that it leaves out."""
    if not _has_null(call.arguments) or tool.strict is False:
        return call
    find = getattr(run.llm, "target", None)
    target = find() if find is not None else None
    if target is None or not target.quirks.strict_tools:
        return call
    arguments = without_filled_nulls(call.arguments, tool.spec().parameters)
    return call if arguments == call.arguments else call.model_copy(update={"arguments": arguments})


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(item is None or _has_null(item) for item in value.values())
    return isinstance(value, list) and any(item is None or _has_null(item) for item in value)


async def _checked(
    run: RunState, call: ToolCall, tool: Tool, ctx: ToolContext[Any]
) -> tuple[ToolCall, Tool, ToolResult | None]:
    """Hooks, then approval: (the call as it shall run, its tool, why it shall not)."""
    if run.token.is_cancelled:
        return call, tool, outcomes.not_started(call, run.token.reason)
    left = run.tool_calls_left()
    if left is not None and left <= 0:
        return call, tool, _limit_reached(run, call)  # nobody need be asked
    try:
        if run.setup.before_tool_call:
            call, refusal = await stoppable(run, lambda: hooks.before_tool_call(run.setup.before_tool_call, call, ctx))
            named = run.tools.get(call.name)
            if refusal is None and named is None:
                refusal = outcomes.unknown_tool(call, run.tools.names)
            if refusal is not None or named is None:
                return call, tool, refusal
            tool = named  # what will run is what has to be allowed
        return call, tool, await _approval(run, call, tool, ctx)
    except Stopped:
        return call, tool, outcomes.not_started(call, run.token.reason)
    except (hooks.AbortRun, EndsRun) as abort:
        run.end_with(abort)
        return call, tool, outcomes.not_started(call, str(abort) or "the run was aborted")


async def _approval(run: RunState, call: ToolCall, tool: Tool, ctx: ToolContext[Any]) -> ToolResult | None:
    policy = run.setup.approval
    if not callable(policy) and not tool.requires_approval and (policy is None or policy in ("auto", "never", "allow")):
        return None
    verdict, reason = await stoppable(run, lambda: judge(policy, tool, call, ctx))
    if verdict == "ask" and call.name in run.always_allowed:
        return None  # an answer to this question, and to no other policy
    if verdict == "ask":
        question = Question(run.loop, run.setup.approval_timeout_s)
        run.questions.append((call.name, question))
        try:
            run.ask(ApprovalRequested(call=call, reason=reason, decide=question.decide, begin=question.begin))
            if run.interactive:
                decision = await question.wait(run.token)
            else:
                # A listener may still decide while it hears the question.
                decision = await question.at_once() or ("deny", "it needs an approval, and nobody is there to give it")
        finally:
            run.questions.remove((call.name, question))
        if decision is None:
            return outcomes.not_started(call, run.token.reason)
        verdict, reason = decision
    if verdict == "always":
        run.always_allowed.add(call.name)
        for name, other in run.questions:
            if name == call.name:
                other.decide("allow")  # it is answered with this one
    return outcomes.denied(call, reason) if verdict == "deny" else None


async def _after_hooks(run: RunState, call: ToolCall, result: ToolResult, ctx: ToolContext[Any]) -> ToolResult:
    if not run.setup.after_tool_call:
        return result
    try:
        changed, problems = await within_grace(
            run, lambda: hooks.after_tool_call(run.setup.after_tool_call, call, result, ctx)
        )
    except Stopped:
        run.emit(
            Notice(
                kind="warning",
                message="the run was stopped before an after_tool_call hook ended; the result is left as it was",
            )
        )
        return result
    except (hooks.AbortRun, EndsRun) as abort:
        run.end_with(abort)
        return result
    for problem in problems:
        run.emit(Notice(kind="warning", message=problem))
    return changed

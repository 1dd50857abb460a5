"""The loop: ask the model, answer its tool calls, ask again, until it is done or something ends the run.

::

    prompt -> [ steering -> model call -> tool calls -> results ]* -> answer

Every step is a collaborator of its own (`turns`, `execution`, `output`); this file says only what follows what. It never raises for what
a provider, a tool or a limit did.
"""

from __future__ import annotations

import asyncio
import threading

from rein_nb.agent.asking import Stopped, is_closed
from rein_nb.agent.events import AgentEnd, AgentStart, TurnEnd, TurnStart
from rein_nb.agent.execution import execute_calls
from rein_nb.agent.healing import tool_message
from rein_nb.agent.output import OutputInvalid
from rein_nb.agent.result import AgentResult, StopReason, ToolRun, Turn
from rein_nb.agent.state import RunState
from rein_nb.agent.turns import ask_model
from rein_nb.ir import Completion, ErrorInfo, Message, ToolCall
from rein_nb.tools import outcomes
from rein_nb.tools.execute import EndsRun

MALFORMED_TURNS = 3
"""Turns in a row of which no call could be run before the run is given up."""

RESUMPTIONS = 10
"""How often in a row a provider may pause its own tools and be asked to go on."""

PAUSED = "pause_turn"
"""The native finish reason of a turn that is to be sent back unchanged and continued."""

_BEAT_S = 0.1
"""Seconds between two wake-ups; a kernel interrupt lands within this time."""

_ENDS: dict[str, StopReason] = {
    "stop": "completed", "tool_calls": "completed", "other": "completed", "length": "length",
    "content_filter": "content_filter", "refusal": "refusal", "cancelled": "cancelled", "error": "error",
}  # fmt: skip


async def run_loop(run: RunState) -> AgentResult:
    """Run to the end and return the result; `AgentEnd` is always the last event.

    Raises
    ------
    asyncio.CancelledError
        When the task was cancelled. The run was stopped by that, and is over as any other.
    """
    task = run.task
    outer = run.clock.begin()
    if run.signal is not None:
        run.token.follow(run.signal)
    deadline = _start_deadline(run)
    heartbeat = Heartbeat(run.loop)
    try:
        run.emit(
            AgentStart(
                model=run.llm.model,
                provider=run.llm.provider,
                system=run.setup.system,
                messages=run.prompt,
                tools=run.tools.names,
                history=run.messages[: run.base],
            )
        )
        while run.stop_reason is None:
            run.take_steering()
            limit = run.setup.limits.reached(turns=run.turn, usage=run.spent())
            if limit is not None:
                run.limit_hit(limit)
                break
            await _turn(run)
    except BaseException as exc:
        if is_closed(exc, task):
            run.task_cancelled()
            raise
        run.end_with(exc)
    finally:
        if deadline is not None:
            deadline.cancel()
        heartbeat.stop()
        run.turn = 0
        result = run.finished()
        run.emit_last(AgentEnd(result=result))
        run.token.close()
        run.clock.end(outer)
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    return result


async def _turn(run: RunState) -> None:
    """One model call with its tool calls, and the decision what comes next."""
    run.turn += 1
    run.other_calls = []
    started_at, begun = run.clock.now(), run.clock.elapsed()
    if run.listening:
        run.emit(TurnStart(model=run.llm.model))
    completion: Completion | None = None
    tools: list[ToolRun] = []
    try:
        completion = await ask_model(run)
        if completion.tool_calls:
            tools = await _answer_calls(run, completion)
    except Stopped:
        pass
    except BaseException as exc:
        if is_closed(exc, run.task):
            raise
        # The programmer's own fault, or a hook's: the turn that was announced is closed all the same.
        run.end_with(exc)
    completion = completion or _not_asked(run)
    turn = Turn.model_construct(
        number=run.turn,
        completion=completion,
        tools=tools,
        other_calls=run.other_calls,
        started_at=run.clock.told(started_at),
        duration_s=run.clock.told(run.clock.elapsed() - begun),
    )
    run.turns.append(turn)
    if run.listening:
        results = [tool.result for tool in tools]
        run.emit(TurnEnd(completion=completion, results=results, other_calls=run.other_calls))
    _decide(run, completion, tools)


def _not_asked(run: RunState) -> Completion:
    """What stands for the answer of a turn whose model call was not made."""
    return Completion(
        message=Message(role="assistant", parts=[]),
        finish_reason="error" if run.error is not None else "cancelled",
        error=run.error,
        model=run.llm.model,
        provider=run.llm.provider,
    )


async def _answer_calls(run: RunState, completion: Completion) -> list[ToolRun]:
    """Execute the calls and put their results into the transcript, in call order."""
    spec = run.output_spec
    answer = None
    if spec is not None and not spec.native:
        runnable = completion.runnable_tool_calls
        answer = next((call for call in runnable if call.name == spec.tool_name), None)
    if answer is None or spec is None:
        tools = await execute_calls(run, completion)
    else:
        others = [call for call in completion.tool_calls if call.name != spec.tool_name]
        message = completion.message.model_copy(update={"parts": list(others)})
        by_id = {
            tool.call.id: tool for tool in await execute_calls(run, completion.model_copy(update={"message": message}))
        }
        for call in completion.tool_calls:
            if call.name == spec.tool_name:
                by_id[call.id] = _take_answer(run, call, first=call is answer)
        tools = [by_id[call.id] for call in completion.tool_calls]
    for tool in tools:
        run.append(tool_message(tool.result))
    return tools


def _take_answer(run: RunState, call: ToolCall, *, first: bool) -> ToolRun:
    assert run.output_spec is not None
    if not first:
        return ToolRun.model_construct(
            call=call, result=outcomes.outcome(call, "error", "The answer was given already.")
        )
    try:
        run.output = run.output_spec.from_call(call)
        run.answered = True
        result = outcomes.outcome(call, "ok", "Taken as the final answer.")
    except OutputInvalid as exc:
        run.output_retries += 1
        result = outcomes.outcome(call, "error", str(exc), {"output_invalid": True})
    except EndsRun as exc:
        run.end_with(exc)
        result = outcomes.interrupted_while_running(call, "the answer was being checked")
    return ToolRun.model_construct(call=call, result=result)


def _decide(run: RunState, completion: Completion, tools: list[ToolRun]) -> None:
    """What follows from a turn: nothing set means that the loop goes on."""
    reason = completion.finish_reason
    if completion.error is not None or reason in ("error", "cancelled"):
        if run.stop_reason is None:
            run.error = completion.error or ErrorInfo.make(
                "other", f"the answer ended with {completion.native_finish_reason!r}"
            )
            run.limit_hit("cancelled" if run.error.kind == "cancelled" else "error")
        return
    if completion.native_finish_reason == PAUSED and not tools:
        run.resumptions += 1
        if run.resumptions > RESUMPTIONS:
            run.error = ErrorInfo.make(
                "malformed_response", f"the provider paused its turn more than {RESUMPTIONS} times in a row"
            )
            run.limit_hit("error")
        return
    run.resumptions = 0
    if run.answered:
        _done(run, "completed")
        return
    if tools and reason not in ("content_filter", "refusal"):
        _watch_malformed(run, tools)
        _watch_output_retries(run)
        return
    if run.setup.output_type is not None and reason in ("stop", "tool_calls", "other"):
        _read_output(run, completion)
        return
    _done(run, _ENDS[reason])


def _done(run: RunState, reason: StopReason) -> None:
    """The model is done: go on with what was said meanwhile, or end."""
    if run.take_steering() or (reason == "completed" and run.take_follow_up()):
        run.answered, run.output = False, None
        return
    run.limit_hit(reason)


def _watch_malformed(run: RunState, tools: list[ToolRun]) -> None:
    if any(not isinstance(tool.result.details, dict) or not tool.result.details.get("malformed") for tool in tools):
        run.malformed_turns = 0
        return
    run.malformed_turns += 1
    if run.malformed_turns >= MALFORMED_TURNS:
        why = tools[-1].call.error or "they name no tool"
        run.error = ErrorInfo.make(
            "malformed_response", f"{MALFORMED_TURNS} turns in a row held only tool calls that cannot be read: {why}"
        )
        run.limit_hit("error")


def _watch_output_retries(run: RunState) -> None:
    if run.output_retries > run.setup.max_output_retries:
        run.limit_hit("output_invalid")


def _read_output(run: RunState, completion: Completion) -> None:
    spec = run.output_spec
    assert spec is not None
    try:
        run.output = spec.from_text(completion.text)
        _done(run, "completed")
    except OutputInvalid as exc:
        run.output_retries += 1
        run.force_answer = True
        _watch_output_retries(run)
        if run.stop_reason is None:
            run.append(Message(role="user", content=str(exc)))
    except EndsRun as exc:
        run.end_with(exc)


class Heartbeat:
    """Wakes a main thread's event loop ten times a second while a run is going.

    A signal may be delivered to another thread of the process; the main thread then sees it only when it next runs Python code.
    A loop that sleeps in a long ``select`` never would, and a kernel interrupt would have no effect until the run is over.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        if threading.current_thread() is threading.main_thread():
            self._beat()

    def _beat(self) -> None:
        self._handle = self._loop.call_later(_BEAT_S, self._beat)

    def stop(self) -> None:
        """End it."""
        if self._handle is not None:
            self._handle.cancel()


def _start_deadline(run: RunState) -> asyncio.TimerHandle | None:
    seconds = run.setup.limits.seconds
    if seconds is None:
        return None
    return run.loop.call_later(seconds, run.stop, "max_time", f"the limit of {seconds:g} s is over")

"""One cell's request, and its answer in the shape of a run. Runs where the cell runs: here, or on a worker of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rein_nb.agent import Agent
from rein_nb.agent.events import AgentEnd
from rein_nb.agent.result import AgentResult, StopReason, Turn
from rein_nb.compare.sweep.plan import Work
from rein_nb.ir import Completion, ErrorInfo, Message, ProviderError, StreamDone, StreamError, clock
from rein_nb.llm import LLM

_STOP: Mapping[str, StopReason] = {
    "length": "length", "content_filter": "content_filter", "refusal": "refusal", "cancelled": "cancelled", "error": "error",
}  # fmt: skip


async def perform(work: Work, messages: list[Message]) -> AgentResult:
    """Ask, and give what came of it. What fails, a provider or a tool or the request itself, is a result with an error."""
    started_at = clock.now()
    try:
        if work.options is not None and work.llm is not None:
            return await _call(work, work.llm, work.options, messages)
        return await _run(work.make(), messages)
    except Exception as exc:
        return failed(work, messages, exc, started_at)


async def _run(agent: Agent, messages: list[Message]) -> AgentResult:
    result: AgentResult | None = None
    async for event in agent.events(messages, interactive=False):
        if isinstance(event, AgentEnd):
            result = event.result
    if result is None:
        raise RuntimeError("the run ended without saying how")
    return result


async def _call(work: Work, llm: LLM, options: Mapping[str, Any], messages: list[Message]) -> AgentResult:
    """A bare model call: what an agent without tools would do, at less expense."""
    timer = clock.for_run(llm.backend, lambda: ("call", work.model, [message.text for message in messages]))
    outer = timer.begin()
    try:
        return await _answered(timer, work, llm, options, messages)
    finally:
        timer.end(outer)


async def _answered(
    timer: clock.RunClock, work: Work, llm: LLM, options: Mapping[str, Any], messages: list[Message]
) -> AgentResult:
    asked = [Message(role="system", content=work.system), *messages] if work.system else messages
    completion: Completion | None
    error: ErrorInfo | None = None
    try:
        completion = await (_streamed(llm, asked, options) if work.stream else llm.achat(asked, **options))
    except ProviderError as exc:
        completion, error = exc.completion, exc.info
    if completion is None:
        completion = Completion(message=Message(role="assistant", content=""), error=error, finish_reason="error")
    error = error or completion.error
    timer.settle(completion.timing.total_s)
    started_at, duration = timer.told(timer.started_at), timer.told(timer.elapsed())
    turn = Turn(number=1, completion=completion, started_at=started_at, duration_s=duration)
    return AgentResult(
        run_id=timer.run_id,
        model=completion.model or llm.model,
        provider=llm.provider,
        label=work.model,
        system=work.system,
        messages=[*messages, completion.message],
        new_messages_from=0,
        turns=[turn],
        usage=completion.usage,
        stop_reason="error" if error is not None else _STOP.get(completion.finish_reason, "completed"),
        output=completion.text,
        error=error,
        started_at=started_at,
        duration_s=duration,
    )


async def _streamed(llm: LLM, messages: list[Message], options: Mapping[str, Any]) -> Completion:
    completion: Completion | None = None
    async for event in llm.astream_events(messages, **options):
        if isinstance(event, StreamDone | StreamError):
            completion = event.completion
    if completion is None:
        raise RuntimeError("the call ended without a terminal event")
    return completion


def failed(work: Work, messages: list[Message], exc: BaseException, started_at: float) -> AgentResult:
    """The row of a cell that could not be asked at all."""
    return AgentResult(
        run_id=clock.new_id("failed", work.model, [message.text for message in messages]),
        provider=work.provider,
        label=work.model,
        system=work.system,
        messages=messages,
        stop_reason="error",
        error=ErrorInfo.of(exc),
        started_at=clock.measured(started_at),
        duration_s=clock.measured(clock.now() - started_at),
    )

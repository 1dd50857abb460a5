"""Small runs, made by hand, for the tests of frames and of what is built on them."""

from __future__ import annotations

from typing import Any

from rein_nb.agent.events import (
    AgentEnd,
    AgentStart,
    Event,
    MessageUpdate,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
)
from rein_nb.agent.result import AgentResult, ToolRun, Turn
from rein_nb.ir import (
    Completion,
    ErrorInfo,
    Message,
    Origin,
    TextPart,
    ThinkingPart,
    Timing,
    ToolCall,
    ToolResult,
    Usage,
    deltas,
)
from rein_nb.stream import Accumulator

ORIGIN = Origin(provider="openai", dialect="openai-chat", model="m-1", response_id="resp-1")


def completion(*parts: Any, error: ErrorInfo | None = None, **fields: Any) -> Completion:
    """A completion by model m-1."""
    reason = "error" if error else "tool_calls" if any(isinstance(p, ToolCall) for p in parts) else "stop"
    defaults: dict[str, Any] = {
        "usage": Usage(input_tokens=10, output_tokens=4, cost_usd=0.001, raw={"prompt_tokens": 10, "completion_tokens": 4}),
        "finish_reason": reason,
        "timing": Timing(started_at=1774748700.25, first_byte_s=0.1, first_token_s=0.2, first_text_s=0.3, total_s=1.2,
                         inter_token_p50_s=0.01, inter_token_p95_s=0.05),
        "model": "m-1",
        "provider": "openai",
    }  # fmt: skip
    return Completion(
        message=Message(role="assistant", parts=list(parts), origin=ORIGIN), error=error, **(defaults | fields)
    )


def tool_run(run_id: str = "r1", label: str = "") -> AgentResult:
    """Two turns, with one call that worked and one that was denied."""
    calls = [
        ToolCall(id="c1", name="f", arguments={"a": 1}),
        ToolCall(id="c2", name="f", arguments={"a": "s", "b": [{}]}),
    ]
    results = [
        ToolResult(tool_call_id="c1", name="f", content='[1, "x"]', details=[1, "x"]),
        ToolResult(tool_call_id="c2", name="f", content="the user said no", status="denied"),
    ]
    first = completion(ThinkingPart(text="hm"), *calls)
    second = completion(TextPart(text="done"))
    messages = [
        Message(role="user", content="go"),
        first.message,
        *(Message(role="tool", parts=[result]) for result in results),
        second.message,
    ]
    turns = [
        Turn(number=1, completion=first, started_at=1774748700.25, duration_s=1.5, tools=[
            ToolRun(call=calls[0], result=results[0], started_at=1774748701.5, duration_s=0.2),
            ToolRun(call=calls[1], result=results[1]),
        ]),
        Turn(number=2, completion=second, started_at=1774748702.0, duration_s=1.2),
    ]  # fmt: skip
    return AgentResult(
        run_id=run_id, model="m-1", provider="openai", label=label, messages=messages, turns=turns,
        usage=first.usage + second.usage, output="done", started_at=1774748700.25, duration_s=3.0,
    )  # fmt: skip


def failed_run(run_id: str = "r2") -> AgentResult:
    """One turn that the provider refused; nothing was reported."""
    error = ErrorInfo.make("rate_limited", "slow down", status=429, provider="openai")
    failed = completion(error=error, usage=Usage(), timing=Timing(retries=2))
    return AgentResult(
        run_id=run_id, model="m-1", provider="openai", messages=[Message(role="user", content="go")],
        turns=[Turn(number=1, completion=failed)], usage=Usage(), stop_reason="error", error=error,
    )  # fmt: skip


def event_log(run_id: str = "r1", pieces: int = 3) -> list[Event]:
    """The events of `tool_run`, with `pieces` text deltas."""
    result = tool_run(run_id)
    accumulator = Accumulator(ORIGIN)
    log: list[Event] = [AgentStart(run_id=run_id, model="m-1", provider="openai", messages=result.messages[:1])]
    for n in range(pieces):
        for event in accumulator.feed(deltas.Text(f"piece {n} ")):
            log.append(MessageUpdate(run_id=run_id, seq=len(log), time=1774748700.25 + n * 1e-3, turn=1, event=event))
    for run in result.tool_runs:
        log.append(ToolExecutionStart(run_id=run_id, seq=len(log), turn=1, call=run.call))
        log.append(
            ToolExecutionEnd(
                run_id=run_id, seq=len(log), turn=1, call=run.call, result=run.result, duration_s=run.duration_s
            )
        )
    log.append(TurnEnd(run_id=run_id, seq=len(log), turn=1, completion=result.turns[0].completion))
    log.append(AgentEnd(run_id=run_id, seq=len(log), result=result))
    return log

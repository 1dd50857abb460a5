"""Runs made by hand: the events of an agent run from deltas, through the real accumulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rein_nb.agent import events as ev
from rein_nb.agent.result import AgentResult, StopReason, ToolRun, Turn
from rein_nb.ir import Completion, ErrorInfo, Message, Origin, ToolCall, ToolResult, Usage, deltas
from rein_nb.stream import Accumulator


class Clock:
    """Seconds that pass only when told; so that timing is the same in every run of a test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.01
        return self.now


def pieces(text: str, size: int = 4) -> Iterator[str]:
    """`text` in pieces of `size` characters."""
    return (text[i : i + size] for i in range(0, len(text), size))


class Script:
    """Builds a run event by event; `events` is the whole of it."""

    def __init__(
        self, prompt: str = "", *, model: str = "scripted", provider: str = "test", system: str | None = None
    ) -> None:
        self.model, self.provider, self.system = model, provider, system
        self.messages = [Message(role="user", content=prompt)] if prompt else []
        self.turns: list[Turn] = []
        self.events: list[Any] = []
        self.usage: Usage | None = None
        self.emit(ev.AgentStart(model=model, provider=provider, system=system, messages=list(self.messages)))

    def emit(self, event: Any) -> None:
        event.seq, event.turn = len(self.events), len(self.turns)
        self.events.append(event)

    def turn(
        self, *changes: deltas.Delta, usage: Usage | None = None, finish: str = "stop", error: ErrorInfo | None = None
    ) -> Completion:
        """One model call from deltas."""
        number = len(self.turns) + 1
        acc = Accumulator(Origin(provider=self.provider, model=self.model), clock=Clock())
        self.emit(ev.TurnStart(model=self.model))
        self.events[-1].turn = number
        self.emit(ev.MessageStart(message=Message(role="assistant")))
        usage = usage or Usage(input_tokens=10, output_tokens=5)
        ending: list[deltas.Delta] = [deltas.UsageReport(usage)]
        ending += [deltas.Fault(error)] if error is not None else [deltas.Finish(finish), deltas.End()]  # type: ignore[arg-type]
        for delta in [*changes, *ending]:
            for event in acc.feed(delta):
                self.emit(ev.MessageUpdate(event=event))
                self.events[-1].turn = number
        completion = acc.completion
        self.emit(ev.MessageEnd(message=completion.message, completion=completion))
        self.turns.append(Turn(number=number, completion=completion))
        self.messages.append(completion.message)
        self.usage = completion.usage if self.usage is None else self.usage + completion.usage
        return completion

    def result(self, call: ToolCall, content: Any, *, status: str = "ok", duration_s: float | None = 0.25) -> None:
        """A tool call is run and answered."""
        self.emit(ev.ToolExecutionStart(call=call))
        result = ToolResult(tool_call_id=call.id, name=call.name, content=content, status=status)  # type: ignore[arg-type]
        self.emit(ev.ToolExecutionEnd(call=call, result=result, duration_s=duration_s))
        turn = self.turns[-1]
        self.turns[-1] = turn.model_copy(
            update={"tools": [*turn.tools, ToolRun(call=call, result=result, duration_s=duration_s)]}
        )
        self.messages.append(Message(role="tool", parts=[result]))

    def end_turn(self) -> None:
        self.emit(ev.TurnEnd(completion=self.turns[-1].completion))

    def end(self, stop_reason: StopReason = "completed", error: ErrorInfo | None = None) -> AgentResult:
        result = AgentResult(
            run_id="run",
            model=self.model,
            provider=self.provider,
            system=self.system,
            messages=self.messages,
            turns=self.turns,
            usage=self.usage or Usage(),
            stop_reason=stop_reason,
            error=error,
            duration_s=1.5,
        )
        self.emit(ev.AgentEnd(result=result))
        return result


def text_deltas(text: str, size: int = 4, make: Callable[[str], deltas.Delta] = deltas.Text) -> list[deltas.Delta]:
    """Text (or thinking, with ``make=deltas.Thinking``) as it streams."""
    return [make(piece) for piece in pieces(text, size)]


def call_deltas(name: str, arguments: str, *, id: str = "c1", size: int = 6) -> list[deltas.Delta]:
    """A tool call as it streams."""
    return [deltas.ToolOpen(part=id, id=id, name=name), *(deltas.ToolArgs(p, part=id) for p in pieces(arguments, size))]


ANSWER = """## Weather in Paris

It is **18 °C** and cloudy, with a light wind from the *west*. See the [forecast](https://weather.example/paris?day=1).

| hour | temperature | rain |
|-----:|------------:|------|
| 9    | 16 °C       | no   |
| 12   | 18 °C       | no   |
| 18   | 15 °C       | yes  |

The felt temperature follows from $T_f = T - 0.4 (T - 10)(1 - h)$, which gives

$$
T_f = 18 - 0.4 \\cdot 8 \\cdot \\left(1 - \\frac{62}{100}\\right) \\approx 16.8
$$

```python
def felt(t: float, humidity: float) -> float:
    \"\"\"Felt temperature in degrees.\"\"\"
    return t - 0.4 * (t - 10) * (1 - humidity)  # Missenard
```

- Take an umbrella for the evening.
- The market is open until `14:00`.
"""


def weather(then: Callable[[Script], None] | None = None) -> Script:
    """A full run: thinking, a tool call, an answer with everything that Markdown has."""
    script = Script("What is the weather in Paris, and how warm does it feel?", system="Be brief.")
    done = script.turn(
        *text_deltas(
            "The user wants the weather. I should call the tool for Paris first, then compute.", make=deltas.Thinking
        ),
        *call_deltas("get_weather", '{"city": "Paris", "unit": "celsius"}'),
        finish="tool_calls",
        usage=Usage(input_tokens=312, output_tokens=48, reasoning_tokens=18),
    )
    script.result(done.tool_calls[0], '{"temperature": 18, "sky": "cloudy", "humidity": 0.62}')
    script.end_turn()
    script.turn(
        *text_deltas(ANSWER), usage=Usage(input_tokens=398, output_tokens=231, cache_read_tokens=256, cost_usd=0.0042)
    )
    script.end_turn()
    if then is not None:
        then(script)
    script.end()
    return script


def played(script: Script | Sequence[Any]) -> list[Any]:
    """The events of a script."""
    return script.events if isinstance(script, Script) else list(script)

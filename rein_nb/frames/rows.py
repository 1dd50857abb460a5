"""The rows of each frame: one small object a thing, holding references to what its columns read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rein_nb.agent.events import Event
from rein_nb.agent.result import AgentResult, ToolRun, Turn
from rein_nb.frames.sources import RunSource, Sources, label_of
from rein_nb.ir import Completion, Message, ToolCall, ToolResult


@dataclass(slots=True)
class RunRow:
    """One run."""

    label: str
    source: RunSource
    result: AgentResult


@dataclass(slots=True)
class TurnRow:
    """One model call; `message_index` is None when its message is not in the transcript."""

    label: str
    run_id: str
    turn: Turn
    message_index: int | None


@dataclass(slots=True)
class UsageRow:
    """One model call of a turn; `answer` is False for those that gave no turn of their own."""

    label: str
    run_id: str
    turn: int
    completion: Completion
    answer: bool


@dataclass(slots=True)
class MessageRow:
    """One message of a run's transcript."""

    label: str
    run_id: str
    index: int
    turn: int | None
    is_new: bool
    message: Message


@dataclass(slots=True)
class PartRow:
    """One part of a message."""

    message: MessageRow
    index: int
    part: Any


@dataclass(slots=True)
class CallRow:
    """One tool call, with its result when there is one."""

    label: str
    run_id: str
    turn: int | None
    message_index: int | None
    part_index: int | None
    call: ToolCall
    result: ToolResult | None
    run: ToolRun | None


@dataclass(slots=True)
class EventRow:
    """One agent event; `stream` is the stream event inside a message update."""

    label: str
    event: Event
    stream: Any


def run_rows(sources: Sources) -> Iterator[RunRow]:
    """One row a run."""
    for source in sources.runs_with_events():
        if source.is_run:
            yield RunRow(label_of(source), source, source.result)


def turn_rows(sources: Sources) -> Iterator[TurnRow]:
    """One row a model call."""
    for source in sources.runs_with_events():
        result = source.result
        where = {
            turn: index
            for index, turn in _turn_of_message(result).items()
            if result.messages[index].role == "assistant"
        }
        for turn in result.turns:
            yield TurnRow(label_of(source), result.run_id, turn, where.get(turn.number))


def usage_rows(sources: Sources) -> Iterator[UsageRow]:
    """One row a model call: a turn's attempts that were asked again, and its summaries, before its answer."""
    for source in sources.runs_with_events():
        result, label = source.result, label_of(source)
        for turn in result.turns:
            for other in turn.other_calls:
                yield UsageRow(label, result.run_id, turn.number, other, answer=False)
            yield UsageRow(label, result.run_id, turn.number, turn.completion, answer=True)


def message_rows(sources: Sources) -> Iterator[MessageRow]:
    """One row a message."""
    for source in sources.runs_with_events():
        result = source.result
        turns = _turn_of_message(result)
        label = label_of(source)
        for index in range(source.first_message, len(result.messages)):
            new = index >= result.new_messages_from
            yield MessageRow(label, result.run_id, index, turns.get(index), new, result.messages[index])


def part_rows(sources: Sources) -> Iterator[PartRow]:
    """One row a part."""
    for row in message_rows(sources):
        for index, part in enumerate(row.message.parts):
            yield PartRow(row, index, part)


def call_rows(sources: Sources) -> Iterator[CallRow]:
    """One row a tool call: those of the transcript in order, then those of turns whose message is not in it."""
    for source in sources.runs_with_events():
        yield from _calls_of_run(source)


def event_rows(sources: Sources) -> Iterator[EventRow]:
    """One row an event."""
    labels = sources.labels()
    for event in sources.events:
        yield EventRow(labels.get(event.run_id, ""), event, getattr(event, "event", None))


def _turn_of_message(result: AgentResult) -> dict[int, int]:
    """Turn number by message index, for the run's own assistant messages and the tool messages that answer them."""
    found: dict[int, int] = {}
    turns = result.turns
    upcoming = 0
    current: int | None = None
    for index in range(result.new_messages_from, len(result.messages)):
        message = result.messages[index]
        if message.role == "assistant":
            match = next(
                (n for n in range(upcoming, len(turns)) if _same(turns[n].completion.message, message)), upcoming
            )
            current = turns[match].number if match < len(turns) else None
            upcoming = match + 1
        elif message.role != "tool":
            current = None
        if current is not None:
            found[index] = current
    return found


def _same(a: Message, b: Message) -> bool:
    return a is b or a.parts == b.parts


def _calls_of_run(source: RunSource) -> Iterator[CallRow]:
    result = source.result
    label = label_of(source)
    turns = _turn_of_message(result)
    runs = _ToolRuns(result)
    results = _Results(result.messages)
    shown: set[int] = set()
    for index in range(source.first_message, len(result.messages)):
        message = result.messages[index]
        turn = turns.get(index)
        if message.role == "assistant" and turn is not None:
            shown.add(turn)
        for part_index, part in enumerate(message.parts):
            if isinstance(part, ToolCall):
                run = runs.take(turn, part.id)
                outcome = run.result if run is not None else results.take(part.id, index)
                yield CallRow(label, result.run_id, turn, index, part_index, part, outcome, run)
    for model_call in result.turns:
        if model_call.number not in shown:
            for call in model_call.completion.tool_calls:
                run = runs.take(model_call.number, call.id)
                outcome = run.result if run is not None else None
                yield CallRow(label, result.run_id, model_call.number, None, None, call, outcome, run)


class _ToolRuns:
    """A run's executed calls, each given out once: ids may repeat between turns."""

    def __init__(self, result: AgentResult) -> None:
        self._by_key: dict[tuple[int, str], list[ToolRun]] = {}
        for turn in result.turns:
            for run in turn.tools:
                self._by_key.setdefault((turn.number, run.call.id), []).append(run)

    def take(self, turn: int | None, call_id: str) -> ToolRun | None:
        """The first execution of this call that was not given out yet."""
        waiting = self._by_key.get((turn, call_id)) if turn is not None else None
        return waiting.pop(0) if waiting else None


class _Results:
    """Results in a transcript by call id, each given out once, and only to a call before it."""

    def __init__(self, messages: list[Message]) -> None:
        self._by_id: dict[str, list[tuple[int, ToolResult]]] = {}
        for index, message in enumerate(messages):
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self._by_id.setdefault(part.tool_call_id, []).append((index, part))

    def take(self, call_id: str, after: int) -> ToolResult | None:
        """The first result for `call_id` in a message after index `after`."""
        waiting = self._by_id.get(call_id, [])
        for n, (index, result) in enumerate(waiting):
            if index > after:
                del waiting[n]
                return result
        return None

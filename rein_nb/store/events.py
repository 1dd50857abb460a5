"""Events that were kept in a session, read back as what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NoReturn, get_args

from pydantic import TypeAdapter

from rein_nb.agent import events as ev
from rein_nb.agent.result import AgentResult
from rein_nb.ir import Completion, ErrorInfo, Message, ToolCall, ToolResult
from rein_nb.ir import events as stream_events
from rein_nb.ir.parts import Part
from rein_nb.store.records import Entry

_EVENTS: dict[str, type[Any]] = {kind.type: kind for kind in get_args(ev.AgentEvent)}
_STREAM: dict[str, type[Any]] = {kind.type: kind for kind in get_args(stream_events.StreamEvent)}

_READ: dict[str, Callable[[Any], Any]] = {
    "message": Message.model_validate,
    "messages": TypeAdapter(list[Message]).validate_python,
    "call": ToolCall.model_validate,
    "tool_call": ToolCall.model_validate,
    "completion": Completion.model_validate,
    "other_calls": TypeAdapter(list[Completion]).validate_python,
    "results": TypeAdapter(list[ToolResult]).validate_python,
    "error": ErrorInfo.model_validate,
    "part": TypeAdapter(Part).validate_python,
}
"""How a field that is more than a plain value is read, by its name. In two events the same name is something else; see below."""

_PLAIN = {("tool_execution_update", "message"), ("notice", "message")}


class _Gone:
    """In place of the accumulator: a kept event has no message so far."""

    recorded = True

    def message_at(self, segment: int, count: int) -> NoReturn:
        """Say so."""
        raise LookupError("an event that was read from a store has no partial message; the session has the whole ones")

    def elapsed(self) -> float:
        """Not known."""
        return 0.0


_GONE = _Gone()


def event_of(data: dict[str, Any]) -> ev.Event | None:
    """An event from its JSON (`Event.to_dict`); None for a type that this version does not know.

    Raises
    ------
    ValueError
        When a field is not what it should be.
    """
    kind = _EVENTS.get(str(data.get("type")))
    if kind is None:
        return None
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name not in data or field.metadata.get("private"):
            continue
        value = data[field.name]
        if field.name == "event":
            value = _stream_event(value)
            if value is None:
                return None
        elif field.name == "result":
            value = (AgentResult if kind is ev.AgentEnd else ToolResult).model_validate(value)
        elif value is not None and (kind.type, field.name) not in _PLAIN and field.name in _READ:
            value = _READ[field.name](value)
        values[field.name] = value
    try:
        event: ev.Event = kind(**values)
    except TypeError as exc:
        raise ValueError(f"not a {kind.type}: {exc}") from exc
    return event


def _stream_event(data: dict[str, Any]) -> Any:
    kind = _STREAM.get(str(data.get("type")))
    if kind is None:
        return None
    values = {name: value for name, value in data.items() if name != "type"}
    for name, value in values.items():
        if name in _READ and value is not None:
            values[name] = _READ[name](value)
    try:
        return kind(_GONE, 0, 0, **values)
    except TypeError as exc:
        raise ValueError(f"not a {kind.type}: {exc}") from exc


def events_of(entries: Iterable[Entry], results: Sequence[AgentResult]) -> Iterator[ev.Event]:
    """The events that entries (oldest first) keep. A run's last one is made from its result, which is stored as a run."""
    by_id = {result.run_id: result for result in results}
    ends: dict[str, ev.AgentEnd] = {}
    for entry in entries:
        event = event_of(entry.data)
        if event is None:
            continue
        yield event
        result = by_id.get(event.run_id)
        if result is not None:
            ends[event.run_id] = ev.AgentEnd(
                run_id=event.run_id,
                seq=event.seq + 1,
                time=max(event.time, (result.started_at or 0.0) + (result.duration_s or 0.0)),
                result=result,
            )
    yield from ends.values()

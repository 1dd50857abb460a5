"""What frames are read from: every accepted object as a list of runs and a list of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rein_nb.agent.events import AgentEnd, AgentStart, Event
from rein_nb.agent.result import AgentResult, StopReason, Turn
from rein_nb.ir import Completion, Message


@dataclass(slots=True)
class RunSource:
    """One run to tabulate.

    Attributes
    ----------
    result
        The run.
    label
        Column name in a comparison; the run's own label when empty.
    prompt_index, repeat
        Place in a comparison, from 0; None outside one.
    first_message
        Index of the first message to tabulate: those before it are rows of another run.
    is_run
        False for bare messages, which are no run and give no row in ``runs``, ``turns`` and ``usage``.
    """

    result: AgentResult
    label: str = ""
    prompt_index: int | None = None
    repeat: int | None = None
    first_message: int = 0
    is_run: bool = True


@dataclass(slots=True)
class Sources:
    """Runs and events, flattened from whatever was given."""

    runs: list[RunSource] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    _bare: int = 0

    def add(self, obj: Any) -> None:
        """Take in one object, or everything in an iterable of them."""
        if obj is None:
            return
        if isinstance(obj, RunSource):
            self.runs.append(obj)
        elif isinstance(obj, AgentResult):
            self.runs.append(RunSource(obj))
        elif isinstance(obj, Event):
            self.events.append(obj)
        elif isinstance(obj, Completion):
            self.runs.append(RunSource(_from_completion(obj, self._next_name())))
        elif isinstance(obj, Message):
            self._add_messages([obj])
        elif hasattr(obj, "frame_sources"):
            self.add(obj.frame_sources())
        elif isinstance(getattr(obj, "messages", None), list):
            self._add_agent(obj)
        elif isinstance(obj, Iterable) and not isinstance(obj, str | bytes | dict):
            self._add_many(obj)
        else:
            raise TypeError(
                f"cannot make a frame of {type(obj).__name__}: expected an AgentResult, an Agent, a Completion, messages, agent "
                "events, a Comparison, a Session, or a list of these"
            )

    def _add_many(self, items: Iterable[Any]) -> None:
        messages: list[Message] = []
        for item in items:
            if isinstance(item, Event):
                self.events.append(item)
                continue
            if isinstance(item, Message):
                messages.append(item)
                continue
            self._add_messages(messages)
            messages = []
            self.add(item)
        self._add_messages(messages)

    def _add_messages(self, messages: list[Message]) -> None:
        if messages:
            self.runs.append(RunSource(bare_messages(self._next_name(), messages), is_run=False))

    def _add_agent(self, agent: Any) -> None:
        results = list(getattr(agent, "results", ()))
        for n, result in enumerate(results):
            # A later run's history is the earlier runs' rows.
            self.runs.append(RunSource(result, first_message=result.new_messages_from if n else 0))
        if not results:
            self._add_messages(list(agent.messages))

    def _next_name(self) -> str:
        self._bare += 1
        return f"messages-{self._bare}"

    def runs_with_events(self) -> Iterator[RunSource]:
        """The runs; those known by their events only are read from the event that ended them."""
        known = {source.result.run_id for source in self.runs}
        yield from self.runs
        for event in self.events:
            if isinstance(event, AgentEnd) and event.result.run_id not in known:
                known.add(event.result.run_id)
                yield RunSource(event.result)

    def labels(self) -> dict[str, str]:
        """Label by run id, also for runs of which only events are known."""
        labels: dict[str, str] = {e.run_id: e.model for e in self.events if isinstance(e, AgentStart)}
        labels.update({source.result.run_id: label_of(source) for source in self.runs_with_events()})
        return labels


def label_of(source: RunSource) -> str:
    """The label that a run's rows carry: the comparison's, the agent's, or the model's name."""
    return source.label or source.result.label or source.result.model


def collect(sources: Any) -> Sources:
    """All runs and events in `sources`."""
    found = Sources()
    found.add(sources)
    return found


def bare_messages(run_id: str, messages: list[Message]) -> AgentResult:
    """Messages alone in the shape of a run, so that one reader serves both."""
    return AgentResult.model_construct(run_id=run_id, messages=list(messages))


def _from_completion(completion: Completion, name: str) -> AgentResult:
    return AgentResult.model_construct(
        run_id=completion.response_id or name,
        model=completion.model or "",
        provider=completion.provider or "",
        messages=[completion.message],
        turns=[
            Turn(
                number=1,
                completion=completion,
                started_at=completion.timing.started_at,
                duration_s=completion.timing.total_s,
            )
        ],
        usage=completion.usage,
        stop_reason=_STOP.get(completion.finish_reason, "completed"),
        error=completion.error,
        started_at=completion.timing.started_at,
        duration_s=completion.timing.total_s,
    )


_STOP: dict[str, StopReason] = {
    "length": "length",
    "content_filter": "content_filter",
    "refusal": "refusal",
    "cancelled": "cancelled",
    "error": "error",
}

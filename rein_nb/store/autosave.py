"""Saving a run while it goes on: a listener to an agent's events."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from rein_nb.agent.events import (
    AgentEnd,
    AgentStart,
    Event,
    MessageEnd,
    MessageStart,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from rein_nb.agent.result import AgentResult, Turn
from rein_nb.ir import Completion, Message
from rein_nb.store.database import StoreError
from rein_nb.store.records import EVENT, HEAD, MESSAGE, RUN, TOOL_RESULT, TOOL_START, TURN, Record, plain, same_message
from rein_nb.store.session import Session


class Autosave:
    """Writes each message, tool result, turn and run of an agent into a session, the moment it is whole.

    A tool's start and its result are stored at once, not when all tools of the turn are done: should the process die between them, the
    session still knows which calls ended, which had begun, and which had not.

    When the store cannot be written (a full disk, a lock that is held too long), the run goes on: what could not be stored waits and is
    written with the next record, and one warning tells.

    Runs at the same time are stored on branches of their own, each from where the session stood when it began.
    """

    def __init__(self, session: Session, *, keep_events: bool = False) -> None:
        self.session = session
        self.keep_events = keep_events
        self.pending: list[Record] = []
        self._told = False
        self._tree = _Tree(session)
        self._runs: dict[str, _Progress] = {}
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Take in one event; from any thread."""
        with self._lock:
            run = self._runs.get(event.run_id)
            if run is None:
                # Runs that go on at the same time began with the same past.
                root = next(iter(self._runs.values())).root if self._runs else self._tree.newest(self.pending)
                run = self._runs[event.run_id] = _Progress(event.run_id, root, self._tree)
            records = run.records(event)
            if isinstance(event, AgentEnd):
                del self._runs[event.run_id]
            elif self.keep_events:
                records.append(run.record(event, EVENT, event.to_dict()))
            if records or self.pending:
                self._write(records)

    def _write(self, records: list[Record]) -> None:
        waiting, self.pending = [*self.pending, *records], []
        try:
            self.session.write(waiting)
            self._told = False
        except StoreError as exc:
            self.pending = waiting
            if not self._told:
                self._told = True
                warnings.warn(
                    f"the run is not being saved for now; it will be tried again: {exc}", RuntimeWarning, stacklevel=2
                )


class _Tree:
    """The session's messages as far as they are known here, and what each follows. Holds no copies: the messages are the agent's own."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._children: dict[str | None, list[tuple[str, Message]]] = {}
        parent: str | None = None
        for entry in session.path():
            self.add(parent, entry.id, Message.model_validate(entry.data["message"]))
            parent = entry.id

    def add(self, parent: str | None, entry_id: str, message: Message) -> None:
        """Note a message that follows `parent`."""
        self._children.setdefault(parent, []).append((entry_id, message))

    def newest(self, pending: list[Record]) -> str | None:
        """Where the session will stand when everything that waits is written."""
        waiting = next((record.id for record in reversed(pending) if record.kind == MESSAGE), None)
        return self._session.head if waiting is None else waiting

    def follow(self, transcript: list[Message], own: set[str]) -> tuple[str | None, int]:
        """(the entry up to which a branch equals `transcript`, how many messages that is). Entries in `own` are preferred."""
        at: str | None = None
        for n, message in enumerate(transcript):
            equal = [id for id, known in self._children.get(at, ()) if same_message(message, known)]
            if not equal:
                return at, n
            at = next((id for id in equal if id in own), equal[0])
        return at, len(transcript)


class _Progress:
    """What was stored of one run so far."""

    def __init__(self, run_id: str, root: str | None, tree: _Tree) -> None:
        self.run_id = run_id
        self.root = root
        self.head = root
        self.tree = tree
        self.stored: list[tuple[Message, str]] = []
        self.announced: list[Message] = []
        self.turns: set[int] = set()
        self.turn_started_at: float | None = None
        self.tool_started_at: dict[str, float] = {}

    def records(self, event: Event) -> list[Record]:
        """What an event adds to the session."""
        if isinstance(event, AgentStart):
            facts = {"model": event.model, "provider": event.provider, "system": event.system, "started_at": event.time}
            self.announced = list(event.messages)
            return [
                self.record(event, RUN, {"state": "started", **facts}),
                *(self._message(event, m) for m in event.messages),
            ]
        if isinstance(event, TurnStart):
            self.turn_started_at = event.time
        elif isinstance(event, MessageEnd):
            return self._whole_message(event)
        elif isinstance(event, ToolExecutionStart):
            self.tool_started_at[event.call.id] = event.time
            return [self.record(event, TOOL_START, {"call": plain(event.call), "turn": event.turn})]
        elif isinstance(event, ToolExecutionEnd):
            return [self._tool_result(event)]
        elif isinstance(event, TurnEnd):
            started = self.turn_started_at
            timing = {"started_at": started, "duration_s": None if started is None else event.time - started}
            return [self._turn(event, event.turn, event.completion, event.other_calls, timing)]
        elif isinstance(event, AgentEnd):
            return self._end(event)
        elif isinstance(event, MessageStart):
            pass  # the message may still grow; its end is what is stored
        return []

    def record(self, event: Event, kind: str, data: dict[str, Any]) -> Record:
        """A record of this run, behind the last message of this run."""
        record = Record(kind, {**data, "run_id": self.run_id}, self.head)
        if event.time:
            record.time = event.time
        return record

    def _message(self, event: Event, message: Message) -> Record:
        # `watched` says that every start of a tool would have been recorded: a call without such a record never began.
        record = self.record(
            event, MESSAGE, {"message": plain(message), **({"watched": True} if message.tool_calls else {})}
        )
        self.tree.add(self.head, record.id, message)
        self.stored.append((message, record.id))
        self.head = record.id
        return record

    def _whole_message(self, event: MessageEnd) -> list[Record]:
        for n, message in enumerate(self.announced):
            if message is event.message:
                del self.announced[n]
                return []
        # A call that failed before it said anything leaves a message without parts, which is in no transcript.
        return [self._message(event, event.message)] if event.message.parts else []

    def _tool_result(self, event: ToolExecutionEnd) -> Record:
        data = {
            "turn": event.turn,
            "call": plain(event.call),
            "result": plain(event.result),
            "started_at": self.tool_started_at.get(event.call.id),
            "duration_s": event.duration_s,
        }
        return self.record(event, TOOL_RESULT, data)

    def _turn(
        self, event: Event, number: int, completion: Completion, others: list[Completion], timing: dict[str, Any]
    ) -> Record:
        self.turns.add(number)
        data = plain(completion)
        last = next((message for message, _ in reversed(self.stored) if message.role == "assistant"), None)
        if last is not None and same_message(completion.message, last):
            del data["message"]
        if others:
            timing = {**timing, "other_calls": [plain(other) for other in others]}
        return self.record(event, TURN, {"number": number, "completion": data, **timing})

    def _end(self, event: AgentEnd) -> list[Record]:
        result = event.result
        records = self._reconcile(event, result)
        for turn in result.turns:
            if turn.number not in self.turns:
                records.append(self._turn(event, turn.number, turn.completion, turn.other_calls, _timing(turn)))
        records.append(self.record(event, RUN, {"state": "ended", **_facts(result)}))
        return records

    def _reconcile(self, event: Event, result: AgentResult) -> list[Record]:
        """What makes the branch equal to the run's final transcript, where it is not yet: healing changed messages, or the run had another past."""
        last = self.head
        self.head, same = self.tree.follow(result.messages, {id for _, id in self.stored})
        rest = result.messages[same:]
        if not rest:
            return [] if self.head == last else [self.record(event, HEAD, {"to": self.head})]
        records = []
        for n, message in enumerate(rest, same):
            records.append(self._message(event, message))
            if n < result.new_messages_from:
                records[-1].data["run_id"] = None  # its past, not its own
        return records


def _timing(turn: Turn) -> dict[str, Any]:
    return {
        "number": turn.number,
        "started_at": turn.started_at,
        "duration_s": turn.duration_s,
        "tools": [{"call_id": t.call.id, "started_at": t.started_at, "duration_s": t.duration_s} for t in turn.tools],
    }


def _facts(result: AgentResult) -> dict[str, Any]:
    data = result.model_dump(mode="json", fallback=str, exclude={"messages", "turns", "new_messages_from", "run_id"})
    return data | {"turns": [_timing(turn) for turn in result.turns]}

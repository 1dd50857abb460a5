"""Saving a run while it goes on: a listener to an agent's events."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
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
from rein_nb.ir.base import warn
from rein_nb.store.database import RecordRefused, SessionDeleted, StoreBusy
from rein_nb.store.forking import forks
from rein_nb.store.records import (
    EVENT,
    HEAD,
    MESSAGE,
    RUN,
    TOOL_RESULT,
    TOOL_START,
    TURN,
    Record,
    as_json,
    plain,
    same_message,
    scrub,
    shortened,
)
from rein_nb.store.session import Session

_WAIT_S = 0.05
"""How long another writer is waited for while the event loop stands still, seconds."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
"""How long the store is left alone after another writer was waited for in vain, seconds; twice as long each time."""


class Autosave:
    """Writes each message, tool result, turn and run of an agent into a session, the moment it is whole.

    A tool's start and its result are stored at once, not when all tools of the turn are done: should the process die between them, the
    session still knows which calls ended, which had begun, and which had not.

    When the store cannot be written (a full disk, a lock that is held too long), the run goes on: what could not be stored waits and is
    written with the next record, and one warning tells. Another process that is writing is waited for only a moment, since everything
    that goes on in the event loop waits too; it is asked again later, and after the run's end by a thread, up to the store's own time limit.

    A record that cannot be made is left out with a warning, and one that the store refuses (it is too long) is shortened; what comes after it is
    saved all the same.

    Runs at the same time are stored on branches of their own, each behind the transcript that it began with.
    """

    fork_order = 0

    def __init__(self, session: Session, *, keep_events: bool = False) -> None:
        self.session = session
        self.keep_events = keep_events
        self.pending: list[Record] = []
        self._told = False
        self._gone = False
        self._tree = _Tree(session)
        self._runs: dict[str, _Progress] = {}
        self._lock = threading.RLock()
        self._busy = False
        self._again_at = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._writer: threading.Thread | None = None
        forks(self)

    def before_fork(self) -> None:
        """What waits is the parent's to write."""

    def after_fork_in_child(self) -> None:
        """A child that wrote it too would write it twice."""
        self.pending, self._busy = [], False
        self._writer = None

    def saves_into(self, session: Session) -> bool:
        """Whether what is heard here goes into this session."""
        return session.id == self.session.id and session.store.path == self.session.store.path

    def __call__(self, event: Event) -> None:
        """Take in one event; from any thread."""
        with self._lock:
            if self._gone:
                return
            run = self._runs.get(event.run_id)
            if run is None:
                run = self._runs[event.run_id] = _Progress(event.run_id, self.session.head, self._tree)
            records = self._made(run, event)
            ended = isinstance(event, AgentEnd)
            if ended:
                del self._runs[event.run_id]
            if records or self.pending:
                self._write(records, last=ended)

    def _made(self, run: _Progress, event: Event) -> list[Record]:
        try:
            records = run.records(event)
        except Exception as exc:  # whatever a tool put into its result: it must not end the saving of everything else
            warn(
                f"a record of the run could not be made and is not saved ({event.type}): {type(exc).__name__}: {exc}",
                RuntimeWarning,
                5,
            )
            records = []
        if self.keep_events and not isinstance(event, AgentEnd):
            records.append(run.record(event, EVENT, _event_data(event)))
        return records

    def _write(self, records: list[Record], *, last: bool) -> None:
        self.pending += records
        if time.monotonic() >= self._again_at or last:
            self._try()
        if last and self._busy and self._writer is None:
            self._writer = threading.Thread(target=self._go_on, name="rein_nb-autosave")
            self._writer.start()

    def _try(self) -> None:
        try:
            try:
                self.session.write(self.pending, wait_s=_WAIT_S)
                self.pending = []
            except Exception as exc:
                if not _is_the_records_fault(exc):
                    raise
                while self.pending:
                    self._write_one(self.pending[0])
                    del self.pending[0]
        except SessionDeleted as exc:
            self.pending, self._busy, self._gone = [], False, True
            warn(f"the run is not being saved any more: {exc}", RuntimeWarning, 5)
        except Exception as exc:  # the store's fault, or the machine's: nothing is given up
            self._busy = isinstance(exc, StoreBusy)
            if self._busy:
                self._again_at = time.monotonic() + self._pause_s
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            if not self._told:
                self._told = True
                warn(f"the run is not being saved for now; it will be tried again: {exc}", RuntimeWarning, 5)
        else:
            self._told = self._busy = False
            self._again_at, self._pause_s = 0.0, _FIRST_PAUSE_S

    def _write_one(self, record: Record) -> None:
        """Write a record as it is, else shortened; one that is refused even so is left out."""
        why: Exception | None = None
        for data in (record.data, shortened(scrub(record.data))):
            try:
                self.session.write([replace(record, data=data)], wait_s=_WAIT_S)
                break
            except Exception as exc:
                if not _is_the_records_fault(exc):
                    raise
                why = exc
        else:
            warn(f"a record of the run could not be stored and is not saved ({record.kind}): {why}", RuntimeWarning, 5)
            return
        if why is not None:
            warn(
                f"a record of the run could not be stored as it is, and was shortened ({record.kind}): {why}",
                RuntimeWarning,
                5,
            )

    def _go_on(self) -> None:
        """After a run's end, write what waits as soon as that is possible. The process does not end before it."""
        until = time.monotonic() + self.session.store.database.timeout_s
        while True:
            time.sleep(_FIRST_PAUSE_S)
            with self._lock:
                if self._busy:
                    self._try()
                if not self._busy or time.monotonic() > until:
                    self._writer = None
                    return


def _is_the_records_fault(exc: Exception) -> bool:
    return isinstance(exc, RecordRefused | TypeError | ValueError | RecursionError | OverflowError)


def _event_data(event: Event) -> dict[str, Any]:
    """As `Event.to_dict`, whatever a tool put into it."""
    try:
        data = event.to_dict()
    except Exception:
        public = [f.name for f in fields(event) if not f.metadata.get("private")]
        data = {"type": event.type, **{name: getattr(event, name) for name in public}}
    made: dict[str, Any] = as_json(data)
    return made


class _Tree:
    """The session's messages as far as they are known here, and what each follows. Holds no copies: the messages are the agent's own."""

    def __init__(self, session: Session) -> None:
        self._children: dict[str | None, list[tuple[str, Message]]] = {}
        parent: str | None = None
        for entry in session.path():
            self.add(parent, entry.id, Message.model_validate(entry.data["message"]))
            parent = entry.id

    def add(self, parent: str | None, entry_id: str, message: Message) -> None:
        """Note a message that follows `parent`."""
        self._children.setdefault(parent, []).append((entry_id, message))

    def follow(self, transcript: Sequence[Message], own: Collection[str] = ()) -> tuple[str | None, int]:
        """(the entry up to which a branch equals `transcript`, how many messages that is). Of equal branches one that ends in `own` is preferred,
        else the newest."""
        front: list[str | None] = [None]
        for n, message in enumerate(transcript):
            equal: list[str | None] = [
                id for at in front for id, known in self._children.get(at, ()) if same_message(message, known)
            ]
            if not equal:
                return _preferred(front, own), n
            front = equal
        return _preferred(front, own), len(transcript)


def _preferred(front: Sequence[str | None], own: Collection[str]) -> str | None:
    return next((id for id in front if id in own), front[-1])


class _Progress:
    """What was stored of one run so far."""

    def __init__(self, run_id: str, head: str | None, tree: _Tree) -> None:
        self.run_id = run_id
        self.head = head
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
            past = self._past(event)
            return [
                *past,
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

    def _past(self, event: AgentStart) -> list[Record]:
        """What the session has not of the transcript that the run goes on from. The run's own messages follow that."""
        self.head, same = self.tree.follow(event.history)
        return self._of_the_past(event, event.history[same:])

    def _of_the_past(self, event: Event, messages: Sequence[Message]) -> list[Record]:
        records = [self._message(event, message) for message in messages]
        for record in records:
            record.data["run_id"] = None
        return records

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
        past = max(0, result.new_messages_from - same)
        return [
            *self._of_the_past(event, rest[:past]),
            *(self._message(event, message) for message in rest[past:]),
        ]


def _timing(turn: Turn) -> dict[str, Any]:
    return {
        "number": turn.number,
        "started_at": turn.started_at,
        "duration_s": turn.duration_s,
        "tools": [{"call_id": t.call.id, "started_at": t.started_at, "duration_s": t.duration_s} for t in turn.tools],
    }


def _facts(result: AgentResult) -> dict[str, Any]:
    data: dict[str, Any] = plain(result, exclude={"messages", "turns", "new_messages_from", "run_id"})
    return data | {"turns": [_timing(turn) for turn in result.turns]}

"""From stored entries to messages and results. Pure: nothing here touches the disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rein_nb.agent.healing import heal, tool_message
from rein_nb.agent.result import AgentResult, ToolRun, Turn
from rein_nb.ir import Completion, ErrorInfo, Message, ToolCall, ToolResult, Usage
from rein_nb.store.records import MESSAGE, RUN, TOOL_RESULT, TOOL_START, TURN, Entry
from rein_nb.tools import outcomes


def healed(path: Sequence[Entry], tool_records: Iterable[Entry]) -> list[Message]:
    """The messages of a branch, valid for a next request.

    A call whose result message is missing takes its result from `tool_records`, where the tool had ended before the process did. Where the
    tool is only known to have begun, the result says that it may have run; where records of this run show that it had not begun, it says so.
    """
    messages = [Message.model_validate(entry.data["message"]) for entry in path]
    last = next((n for n in reversed(range(len(messages))) if messages[n].role == "assistant"), None)
    if last is None or not messages[last].tool_calls:
        return heal(messages).messages
    given = {result.tool_call_id for message in messages[last + 1 :] for result in message.tool_results}
    records = list(tool_records)
    results = {e.data["result"]["tool_call_id"]: e.data["result"] for e in records if e.kind == TOOL_RESULT}
    begun = {e.data["call"]["id"] for e in records if e.kind == TOOL_START}
    watched = bool(records) or path[last].data.get("watched", False)
    known = [
        tool_message(_known_result(call, results.get(call.id), call.id in begun))
        for call in messages[last].tool_calls
        if call.id not in given and (watched or call.id in results)
    ]
    return heal([*messages[: last + 1], *known, *messages[last + 1 :]]).messages


def _known_result(call: ToolCall, stored: Any, begun: bool) -> ToolResult:
    if stored is not None:
        return ToolResult.model_validate(stored)
    reason = "the process ended"
    return outcomes.interrupted_while_running(call, reason) if begun else outcomes.not_started(call, reason)


def runs_of(entries: Sequence[Entry]) -> list[AgentResult]:
    """The runs that entries (oldest first) tell of, in the order in which they began."""
    tree = _Tree(entries)
    order: dict[str, _Run] = {}
    for entry in entries:
        run_id = entry.data.get("run_id")
        if run_id is None:
            continue
        run = order.setdefault(run_id, _Run(run_id))
        if entry.kind == TURN:
            run.turns[entry.data["number"]] = entry
        elif entry.kind == TOOL_RESULT:
            run.tools.setdefault(entry.data["turn"], []).append(entry)
        elif entry.kind == RUN:
            run.facts.update(entry.data)
            run.ended = run.ended or entry.data.get("state") == "ended"
        run.last = entry.id if entry.kind == MESSAGE else entry.parent or run.last
    return [run.result(tree) for run in order.values()]


class _Tree:
    """The messages of a session and what each follows; every message is decoded once."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = {entry.id: entry for entry in entries if entry.kind == MESSAGE}
        self._decoded: dict[str, Message] = {}

    def message(self, entry_id: str) -> Message:
        """A message by its entry's id."""
        if entry_id not in self._decoded:
            self._decoded[entry_id] = Message.model_validate(self._entries[entry_id].data["message"])
        return self._decoded[entry_id]

    def path(self, entry_id: str | None) -> list[str]:
        """Ids from the root to an entry."""
        ids: list[str] = []
        while entry_id is not None and entry_id in self._entries:
            ids.append(entry_id)
            entry_id = self._entries[entry_id].parent
        return ids[::-1]

    def new_from(self, path: Sequence[str], run_id: str) -> int:
        """Index in `path` of a run's first message."""
        return next((n for n, id in enumerate(path) if self._entries[id].data.get("run_id") == run_id), len(path))

    def assistant_before(self, entry_id: str | None) -> Message | None:
        """The nearest assistant message at or before an entry."""
        for id in reversed(self.path(entry_id)):
            if self._entries[id].data["message"]["role"] == "assistant":
                return self.message(id)
        return None


class _Run:
    """What entries tell about one run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.turns: dict[int, Entry] = {}
        self.tools: dict[int, list[Entry]] = {}
        self.facts: dict[str, Any] = {}
        self.ended = False
        self.last: str | None = None

    def result(self, tree: _Tree) -> AgentResult:
        """The run as a result."""
        path = tree.path(self.last)
        turns = [self._turn(tree, number) for number in sorted(self.turns)]
        fields = {
            name: value for name, value in self.facts.items() if name in AgentResult.model_fields and name != "turns"
        }
        if not self.ended:
            # Killed, or cut off where the session was forked.
            forked = self.facts.get("state") == "forked"
            usages = [call.usage for turn in turns for call in (*turn.other_calls, turn.completion)]
            usage = sum(usages[1:], usages[0]) if usages else Usage()
            killed = ErrorInfo.make("other", "the process ended before the run did")
            fields |= {
                "usage": usage.model_copy(update={"complete": False}),
                "stop_reason": "cancelled" if forked else "error",
                "error": None if forked else killed,
            }
        return AgentResult(
            **{
                **fields,
                "run_id": self.run_id,
                "messages": [tree.message(id) for id in path],
                "new_messages_from": tree.new_from(path, self.run_id),
                "turns": turns,
            }
        )

    def _turn(self, tree: _Tree, number: int) -> Turn:
        entry = self.turns[number]
        completion = dict(entry.data["completion"])
        if "message" not in completion:
            completion["message"] = tree.assistant_before(entry.parent) or Message(role="assistant")
        timing = next((t for t in self.facts.get("turns", []) if t["number"] == number), entry.data)
        made = Completion.model_validate(completion)
        return Turn(
            number=number,
            completion=made,
            tools=self._tool_runs(number, made, timing.get("tools", [])),
            other_calls=[Completion.model_validate(other) for other in entry.data.get("other_calls", [])],
            started_at=timing.get("started_at"),
            duration_s=timing.get("duration_s"),
        )

    def _tool_runs(self, number: int, completion: Completion, timings: Sequence[dict[str, Any]]) -> list[ToolRun]:
        """The turn's executed calls, in the order of the calls. A stored result says what was called, and when."""
        order = {call.id: n for n, call in enumerate(completion.tool_calls)}
        exact = {timing["call_id"]: timing for timing in timings}
        runs = []
        for entry in self.tools.get(number, []):
            call = ToolCall.model_validate(entry.data["call"])
            timing = exact.get(call.id, entry.data)
            runs.append(
                ToolRun(
                    call=call,
                    result=ToolResult.model_validate(entry.data["result"]),
                    started_at=timing.get("started_at"),
                    duration_s=timing.get("duration_s"),
                )
            )
        return sorted(runs, key=lambda run: order.get(run.call.id, len(order)))

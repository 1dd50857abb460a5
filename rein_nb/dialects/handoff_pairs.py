"""Which result answers which call, in any history: the pairing that the hand-off builds on.

A result answers the latest call before it with its id. Where several calls of one message share an id (or have none), names decide,
then order. A call takes one result: of several the last real one, and an ``interrupted`` one only where there is no other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import is_

from rein_nb.dialects.handoff_settled import Unsettled
from rein_nb.ir import Message, ToolCall, ToolResult
from rein_nb.ir.base import Extra, merge_extra


@dataclass(slots=True)
class Answers:
    """What answers the calls of one assistant message.

    Attributes
    ----------
    results
        For each call, in order: its result, or None.
    standing
        The next message, where it holds exactly these results already, in order.
    surplus
        Results that came for these calls and were not taken.
    moved
        Results that did not already stand right after their calls, in order.
    extra
        The `extra` of the messages that held nothing but these results.
    """

    results: list[ToolResult | None]
    standing: Message | None = None
    surplus: int = 0
    moved: int = 0
    extra: Extra = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Group:
    """The calls of one message that share an id, and all results that came for them."""

    at: int
    calls: list[ToolCall]
    results: list[ToolResult] = field(default_factory=list)

    def chosen(self) -> list[ToolResult | None]:
        """One result, or None, for each call in order."""
        left = self.results
        if len(left) > len(self.calls):
            real = [result for result in left if result.status != "interrupted"]
            left = (real or left)[-len(self.calls) :]
        if len(self.calls) == 1:
            return [left[0] if left else None]
        left = list(left)
        out: list[ToolResult | None] = []
        for call in self.calls:
            found = next((n for n, r in enumerate(left) if r.name == call.name), None)
            if found is None:
                found = next((n for n, r in enumerate(left) if r.name is None), None)
            out.append(None if found is None else left.pop(found))
        return [left.pop(0) if result is None and left else result for result in out]


def pair(
    messages: Sequence[Message], start: int = 0, settled: Collection[str] = ()
) -> tuple[dict[int, Answers], set[tuple[int, int]]]:
    """`Answers` by the index of the assistant message with the calls, and (message, part) of each result that answers no call.

    From the message at `start` on; `settled` are the ids of the calls before it, which have their results.

    Raises
    ------
    Unsettled
        When a result answers a call before `start` all the same.
    """
    latest: dict[str, _Group] = {}
    groups: dict[int, list[_Group]] = {}
    orphans: set[tuple[int, int]] = set()
    for at in range(start, len(messages)):
        for n, part in enumerate(messages[at].parts):
            kind = type(part)
            if kind is ToolCall:
                group = latest.get(part.id)  # type: ignore[union-attr]
                if group is None or group.at != at:
                    group = latest[part.id] = _Group(at, [])  # type: ignore[union-attr]
                    groups.setdefault(at, []).append(group)
                group.calls.append(part)  # type: ignore[arg-type]
            elif kind is ToolResult:
                group = latest.get(part.tool_call_id)  # type: ignore[union-attr]
                if group is None:
                    if part.tool_call_id in settled:  # type: ignore[union-attr]
                        raise Unsettled
                    orphans.add((at, n))
                else:
                    group.results.append(part)  # type: ignore[arg-type]
    return {at: _answers(messages, at, found) for at, found in groups.items()}, orphans


def _answers(messages: Sequence[Message], at: int, groups: list[_Group]) -> Answers:
    if len(groups) == 1:
        results = groups[0].chosen()
    else:
        chosen = {group.calls[0].id: iter(group.chosen()) for group in groups}
        results = [next(chosen[part.id]) for part in messages[at].parts if type(part) is ToolCall]
    following = messages[at + 1] if at + 1 < len(messages) else None
    taken = [result for result in results if result is not None]
    surplus = sum(len(group.results) for group in groups) - len(taken)
    if following is not None and following.role == "tool" and _same(following.parts, results):
        return Answers(results, following, surplus)
    return Answers(results, None, surplus, _moved(messages, at, taken), _extra_of(messages, at, taken))


def _moved(messages: Sequence[Message], at: int, taken: list[ToolResult]) -> int:
    standing: list[object] = []
    for n in range(at + 1, len(messages)):
        parts = messages[n].parts
        head = next((k for k, part in enumerate(parts) if type(part) is not ToolResult), len(parts))
        standing.extend(parts[:head])
        if not head or head < len(parts) or len(standing) >= len(taken):
            break
    return sum(n >= len(standing) or standing[n] is not result for n, result in enumerate(taken))


def _extra_of(messages: Sequence[Message], at: int, taken: list[ToolResult]) -> Extra:
    wanted = {id(result) for result in taken}
    extra: Extra = {}
    for n in range(at + 1, len(messages)):
        message = messages[n]
        if message.role == "assistant":
            break
        if message.extra and message.parts and all(id(part) in wanted for part in message.parts):
            extra = merge_extra(extra, message.extra)
    return extra


def _same(a: Sequence[object], b: Sequence[object]) -> bool:
    return len(a) == len(b) and all(map(is_, a, b))

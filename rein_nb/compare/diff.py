"""What differs between two answers: word by word, and call by call."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rein_nb.agent.result import AgentResult
from rein_nb.compare.safe import escape
from rein_nb.ir import ToolCall

Op: TypeAlias = Literal["equal", "delete", "insert", "replace"]

_TOKEN = re.compile(r"\s+|\w+|[^\w\s]")

_WORD_BUDGET = 4_000_000
"""Pairs of words compared at most in one go; longer texts are aligned by lines first, since the matcher is quadratic."""


@dataclass(frozen=True, slots=True)
class TextChange:
    """A span that is equal, only in `a` (delete), only in `b` (insert), or different (replace)."""

    op: Op
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class CallChange:
    """A tool call that both made (equal), only one made, or both made with other arguments (replace)."""

    op: Op
    a: ToolCall | None
    b: ToolCall | None


@dataclass(frozen=True)
class Diff:
    """The difference of two runs' final texts and of their tool calls, in order.

    Attributes
    ----------
    a, b
        Labels.
    text
        Spans that make up both texts: the `a` sides joined are the first text, the `b` sides the second.
    calls
        Tool calls, aligned.
    """

    a: str
    b: str
    text: list[TextChange]
    calls: list[CallChange]

    @classmethod
    def of(cls, a: AgentResult, b: AgentResult, label_a: str = "a", label_b: str = "b") -> Diff:
        """The difference of two results."""
        calls_a = [call for turn in a.turns for call in turn.completion.tool_calls]
        calls_b = [call for turn in b.turns for call in turn.completion.tool_calls]
        return cls(label_a, label_b, diff_text(a.text, b.text), diff_calls(calls_a, calls_b))

    @property
    def same(self) -> bool:
        """Whether there is no difference at all."""
        ops = [change.op for change in self.text] + [change.op for change in self.calls]
        return all(op == "equal" for op in ops)

    @property
    def similarity(self) -> float:
        """Share of the two texts' characters that are equal, 0 to 1; 1 for two empty texts."""
        equal = sum(len(change.a) for change in self.text if change.op == "equal")
        total = sum(len(change.a) + len(change.b) for change in self.text)
        return 2 * equal / total if total else 1.0

    def __repr__(self) -> str:
        head = [f"--- {self.a}", f"+++ {self.b}"]
        body = "".join(_plain(change) for change in self.text)
        calls = [line for change in self.calls for line in _call_lines(change)]
        return "\n".join([*head, body, *(["", "tool calls:", *calls] if calls else [])])

    def _repr_html_(self) -> str:
        body = "".join(_html(change) for change in self.text)
        calls = "".join(
            f'<li style="{_STYLE[change.op]}">{escape(line)}</li>'
            for change in self.calls
            for line in _call_lines(change)
        )
        listed = f"<p>Tool calls</p><ul>{calls}</ul>" if calls else ""
        return (
            f'<div><p><del style="{_STYLE["delete"]}">{escape(self.a)}</del> <ins style="{_STYLE["insert"]}">{escape(self.b)}</ins></p>'
            f'<div style="white-space:pre-wrap;overflow-wrap:anywhere">{body}</div>{listed}</div>'
        )


_STYLE: dict[str, str] = {
    "equal": "",
    "delete": "background:#f8514933;text-decoration:line-through",
    "insert": "background:#2ea04333;text-decoration:none",
    "replace": "background:#d2992233",
}


def _plain(change: TextChange) -> str:
    if change.op == "equal":
        return change.a
    return (f"[-{change.a}-]" if change.a else "") + (f"{{+{change.b}+}}" if change.b else "")


def _html(change: TextChange) -> str:
    if change.op == "equal":
        return escape(change.a)
    old = f'<del style="{_STYLE["delete"]}">{escape(change.a)}</del>' if change.a else ""
    new = f'<ins style="{_STYLE["insert"]}">{escape(change.b)}</ins>' if change.b else ""
    return old + new


def _call_lines(change: CallChange) -> list[str]:
    if change.op == "equal" and change.a is not None:
        return [f"  {_shown(change.a)}"]
    lines = [f"- {_shown(change.a)}"] if change.a is not None else []
    return lines + ([f"+ {_shown(change.b)}"] if change.b is not None else [])


def _shown(call: ToolCall) -> str:
    return f"{call.name}({call.arguments_text})"


def diff_text(a: str, b: str) -> list[TextChange]:
    """Word-level changes from `a` to `b`. White space counts, so both texts can be put together again."""
    words_a, words_b = _TOKEN.findall(a), _TOKEN.findall(b)
    if len(words_a) * len(words_b) <= _WORD_BUDGET:
        return _merge(_changes(words_a, words_b))
    changes: list[TextChange] = []
    for change in _changes(a.splitlines(keepends=True), b.splitlines(keepends=True)):
        small = len(_TOKEN.findall(change.a)) * len(_TOKEN.findall(change.b)) <= _WORD_BUDGET
        changes.extend(diff_text(change.a, change.b) if change.op == "replace" and small else [change])
    return _merge(changes)


def _changes(a: Sequence[str], b: Sequence[str]) -> list[TextChange]:
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    return [TextChange(op, "".join(a[i:j]), "".join(b[k:m])) for op, i, j, k, m in matcher.get_opcodes()]


def _merge(changes: list[TextChange]) -> list[TextChange]:
    """Neighbouring changes as one where only white space stands between them: words read better than confetti."""
    merged: list[TextChange] = []
    for change in changes:
        if (
            len(merged) >= 2
            and change.op != "equal"
            and merged[-1].op == "equal"
            and merged[-1].a.isspace()
            and merged[-2].op != "equal"
        ):
            between, before = merged.pop(), merged.pop()
            change = _joined(_joined(before, between), change)
        elif merged and change.op == merged[-1].op:
            change = _joined(merged.pop(), change)
        merged.append(change)
    return merged


def _joined(first: TextChange, second: TextChange) -> TextChange:
    a, b = first.a + second.a, first.b + second.b
    both_equal = first.op == second.op == "equal"
    return TextChange("equal" if both_equal else "replace" if a and b else "delete" if a else "insert", a, b)


def diff_calls(a: Sequence[ToolCall], b: Sequence[ToolCall]) -> list[CallChange]:
    """Tool calls aligned by name and arguments; calls of one name at the same place are a change of arguments."""
    matcher = difflib.SequenceMatcher(None, [_key(call) for call in a], [_key(call) for call in b], autojunk=False)
    changes: list[CallChange] = []
    for op, i, j, k, m in matcher.get_opcodes():
        if op == "equal":
            changes += [CallChange("equal", x, y) for x, y in zip(a[i:j], b[k:m], strict=True)]
        else:
            changes += _unequal(list(a[i:j]), list(b[k:m]))
    return changes


def _unequal(a: list[ToolCall], b: list[ToolCall]) -> list[CallChange]:
    changes: list[CallChange] = []
    waiting = list(b)
    for call in a:
        twin = next((other for other in waiting if other.name == call.name), None)
        if twin is None:
            changes.append(CallChange("delete", call, None))
        else:
            waiting.remove(twin)
            changes.append(CallChange("replace", call, twin))
    return changes + [CallChange("insert", None, call) for call in waiting]


def _key(call: ToolCall) -> tuple[str, str]:
    return call.name, call.raw_arguments or json.dumps(call.arguments, sort_keys=True, default=str)

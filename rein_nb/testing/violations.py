"""What a validator finds, and checks that several dialects share."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from rein_nb.ir.base import loads

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that the API would refuse.

    Attributes
    ----------
    rule
        A short name of the rule, the same in all dialects where the rule is: ``unanswered-call``, ``empty-text``...
    where
        The place in the body, as ``messages[3].content[0]``.
    message
        What is wrong, in words.
    """

    rule: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} [{self.rule}]"


@dataclass(slots=True)
class Report:
    """Violations found so far."""

    violations: list[Violation] = field(default_factory=list)

    def add(self, rule: str, where: str, message: str) -> None:
        """Note one."""
        self.violations.append(Violation(rule, where, message))

    def objects(self, value: Any, where: str) -> list[dict[str, Any]]:
        """The objects of a list; what is none is noted and left out."""
        if not isinstance(value, list):
            if value is not None:
                self.add("not-a-list", where, f"a list is needed here, not {type(value).__name__}")
            return []
        for n, item in enumerate(value):
            if not isinstance(item, dict):
                self.add("not-an-object", f"{where}[{n}]", f"an object is needed here, not {type(item).__name__}")
        return [item for item in value if isinstance(item, dict)]

    def text(self, value: Any, where: str = "body") -> None:
        """No string anywhere may hold an unpaired surrogate: JSON over HTTP is UTF-8."""
        waiting = [(where, value)]
        while waiting:
            place, item = waiting.pop()
            if isinstance(item, str):
                if _SURROGATE.search(item):
                    self.add("surrogate", place, "a string holds an unpaired surrogate")
            elif isinstance(item, dict):
                waiting += [(f"{place}.{key}", inner) for key, inner in item.items()]
            elif isinstance(item, list):
                waiting += [(f"{place}[{n}]", inner) for n, inner in enumerate(item)]

    def name(self, name: Any, pattern: re.Pattern[str], where: str) -> None:
        """A tool's name."""
        if not isinstance(name, str) or not pattern.fullmatch(name):
            self.add("bad-name", where, f"{name!r} is not an accepted tool name ({pattern.pattern})")

    def id(self, id: Any, pattern: re.Pattern[str], where: str, seen: set[str] | None = None) -> None:
        """A call's id; in `seen` it must be new."""
        if not isinstance(id, str) or not pattern.fullmatch(id):
            self.add("bad-id", where, f"{id!r} is not an accepted id ({pattern.pattern})")
        elif seen is not None:
            if id in seen:
                self.add("repeated-id", where, f"the id {id!r} was used before")
            seen.add(id)

    def arguments(self, text: Any, where: str) -> None:
        """Arguments as JSON text of an object."""
        if not isinstance(text, str):
            self.add("bad-arguments", where, f"arguments must be JSON text, not {type(text).__name__}")
            return
        try:
            value = loads(text)
        except (ValueError, RecursionError) as exc:
            self.add("bad-arguments", where, f"arguments are not JSON: {exc}")
            return
        if not isinstance(value, dict):
            self.add("bad-arguments", where, f"arguments are not a JSON object but {type(value).__name__}")

    def answers(self, calls: list[str], results: list[str], where: str) -> None:
        """Results that stand where they must, against the calls they answer: each call once, nothing else, in call order."""
        for id in calls:
            if results.count(id) != 1:
                rule = "unanswered-call" if id not in results else "repeated-result"
                self.add(rule, where, f"the call {id!r} has {results.count(id)} results here, and needs one")
        for id in results:
            if id not in calls:
                self.add("orphan-result", where, f"the result for {id!r} answers no call before it")
        if sorted(calls) == sorted(results) and calls != results:
            self.add("result-order", where, f"results come as {results}, and their calls as {calls}")

    def tools(self, names: list[Any], pattern: re.Pattern[str], where: str) -> None:
        """Names of the tools that are offered."""
        for n, name in enumerate(names):
            self.name(name, pattern, f"{where}[{n}]")
            if name in names[:n]:
                self.add("repeated-tool", f"{where}[{n}]", f"the tool {name!r} is offered twice")

    def one_of(self, value: Any, allowed: Collection[str], rule: str, where: str) -> bool:
        """Whether a word is one of the accepted ones; noted where it is not."""
        if isinstance(value, str) and value in allowed:
            return True
        self.add(rule, where, f"{value!r} is not accepted here; one of {', '.join(sorted(allowed))} is")
        return False

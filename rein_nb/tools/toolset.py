"""`Toolset`: tools by name, which can grow while an agent runs."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rein_nb.ir import ToolSpec
from rein_nb.ir.base import warn
from rein_nb.tools.decorator import as_tool
from rein_nb.tools.names import ToolDefinitionError
from rein_nb.tools.tool import Tool

_joining = threading.RLock()
"""Held while one toolset is put into another, so that two threads cannot put two into each other. A toolset's own lock is taken before
those of the toolsets in it, never after."""


@dataclass(slots=True, eq=False)
class _Member:
    """A toolset within another: which of its tools are seen there, and under which names."""

    toolset: Toolset
    keep: Callable[[Tool], bool] | None = None
    rename: Callable[[str], str] | None = None
    renamed: dict[int, tuple[Tool, Tool]] = field(default_factory=dict, repr=False)

    def tools(self, problem: Callable[[str], None]) -> Iterator[Tool]:
        """The tools as they are seen; those that cannot have their new name are told to `problem`."""
        known: dict[int, tuple[Tool, Tool]] = {}
        for made in self.toolset:
            if self.keep is not None and not self.keep(made):
                continue
            name = made.name if self.rename is None else self.rename(made.name)
            if name == made.name:
                yield made
                continue
            pair = self.renamed.get(id(made))
            try:
                if pair is None or pair[0] is not made:
                    pair = (made, made.with_options(name=name))
            except (TypeError, ValueError) as exc:
                problem(f"the tool {made.name!r} cannot be renamed: {exc}")
                continue
            known[id(made)] = pair
            yield pair[1]
        self.renamed = known  # what was taken out of the toolset is let go


class Toolset:
    """An ordered collection of tools with unique names.

    Parameters
    ----------
    tools
        Tools, functions, agents or other toolsets. A toolset given here stays *live*: what is added to it later is seen here. When that
        later takes a name which is in use here, the tool that was first in order keeps it, and a warning tells of the other.

    Raises
    ------
    ToolDefinitionError
        When a name is given twice; `prefixed` or `renamed` keep two apart.

    Examples
    --------
    >>> def ls() -> str: return "a b"
    >>> files = Toolset([ls]).prefixed("fs_")
    >>> files.names
    ['fs_ls']
    """

    def __init__(self, tools: Iterable[Any] | Toolset = ()) -> None:
        self._lock = threading.RLock()
        self._items: list[Tool | _Member] = []
        self._hidden: tuple[Tool, ...] = ()
        self._holds_others = False
        self._version = 0
        self._seen: tuple[int, ...] = ()
        self._cache: dict[str, Tool] = {}
        self._specs: list[ToolSpec] = []
        for thing in _several(tools):
            self.add(thing)

    def copy(self) -> Toolset:
        """A toolset of its own with the same tools: what is added to or removed from either is not seen in the other. Toolsets in it stay live."""
        return copy.copy(self)

    def __copy__(self) -> Toolset:
        made = object.__new__(type(self))
        with self._lock:
            made.__dict__.update(self.__dict__)
            made._items = list(self._items)
        made._lock = threading.RLock()
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Toolset:
        """A toolset that grows by itself, also in the toolsets that it holds. The functions are the same."""
        made = memo[id(self)] = copy.copy(self)
        made._items = [
            copy.deepcopy(item, memo)
            if isinstance(item, Tool)
            else _Member(copy.deepcopy(item.toolset, memo), item.keep, item.rename)
            for item in made._items
        ]
        made._seen = ()
        return made

    def add(self, thing: Any) -> Tool | Toolset:
        """Add a tool, function, agent or toolset; also while an agent runs, which sees it at its next turn.

        Raises
        ------
        ToolDefinitionError
            When the name is taken, or a toolset would contain itself.
        """
        if isinstance(thing, Toolset):
            with _joining, self._lock:
                if any(one is self for one in thing._reached()):
                    raise ToolDefinitionError("a toolset cannot contain itself, nor one that contains it")
                if any(isinstance(item, _Member) and item.toolset is thing for item in self._items):
                    raise ToolDefinitionError("this toolset was added already, and is seen as it grows")
                self._check_free(thing.names)
                self._items.append(_Member(thing))
                self._holds_others = True
                self._version += 1
            return thing
        made = as_tool(thing)
        with self._lock:
            self._check_free([made.name])
            self._items.append(made)
            self._version += 1
            return made

    def remove(self, name: str) -> None:
        """Take a tool out. One that comes from another toolset stays in that one.

        Raises
        ------
        KeyError
            When there is no tool of that name.
        """
        with self._lock:
            self._check_here([name])
            own = {item.name: item for item in self._items if isinstance(item, Tool)}
            if name in own:
                self._items.remove(own[name])
            else:
                self._hidden = (*self._hidden, self[name])  # another of that name may come
            self._version += 1

    def _check_free(self, names: Iterable[str]) -> None:
        taken = sorted(set(names) & set(self._all()))
        if taken:
            raise ToolDefinitionError(
                f"there is already a tool named {', '.join(map(repr, taken))}; rename one, or prefix a toolset (toolset.prefixed('x_'))"
            )

    def _reached(self) -> list[Toolset]:
        """This toolset and all in it, each once however many ways lead to it."""
        found: dict[int, Toolset] = {}
        waiting = [self]
        while waiting:
            one = waiting.pop()
            if id(one) not in found:
                found[id(one)] = one
                waiting.extend(item.toolset for item in one._items if isinstance(item, _Member))
        return list(found.values())

    def _stamp(self) -> tuple[int, ...]:
        return tuple(one._version for one in self._reached()) if self._holds_others else (self._version,)

    def _all(self) -> dict[str, Tool]:
        with self._lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return self._cache
            # An agent may be running by now: what cannot be had is left out, and told.
            problems: list[str] = []
            tools = self._gathered(problems.append)
            self._cache, self._seen = tools, stamp
            self._specs = [made.spec() for made in tools.values()]
            for problem in problems:
                warn(f"a tool is left out: {problem}", UserWarning, 4)
            return tools

    def _gathered(self, problem: Callable[[str], None]) -> dict[str, Tool]:
        tools: dict[str, Tool] = {}
        for item in self._items:
            for made in [item] if isinstance(item, Tool) else item.tools(problem):
                if made is not item and any(made is one for one in self._hidden):
                    continue
                if made.name in tools:
                    problem(f"there is already a tool named {made.name!r}")
                else:
                    tools[made.name] = made
        return tools

    def specs(self) -> list[ToolSpec]:
        """The tools as a model sees them, in order."""
        self._all()
        return self._specs

    def get(self, name: str) -> Tool | None:
        """The tool of that name; None when there is none."""
        return self._all().get(name)

    @property
    def names(self) -> list[str]:
        """The names, in order."""
        return list(self._all())

    def __iter__(self) -> Iterator[Tool]:
        return iter(list(self._all().values()))

    def __len__(self) -> int:
        return len(self._all())

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def __getitem__(self, name: str) -> Tool:
        found = self.get(name)
        if found is None:
            raise KeyError(f"no tool {name!r}; there are: {', '.join(self.names) or 'none'}")
        return found

    def __add__(self, other: Toolset | Iterable[Any]) -> Toolset:
        return Toolset([self, *_several(other)])

    def __repr__(self) -> str:
        return f"Toolset({self.names})"

    # -- views: live, like the toolset they come from ----------------------------------------------

    def _view(self, keep: Callable[[Tool], bool] | None = None, rename: Callable[[str], str] | None = None) -> Toolset:
        view = Toolset()
        view._items.append(_Member(self, keep, rename))
        view._holds_others = True
        view._version += 1
        if rename is not None:
            view._gathered(_refuse)
        return view

    def _check_here(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self]
        if missing:
            raise KeyError(f"no tool {', '.join(map(repr, missing))}; there are: {', '.join(self.names) or 'none'}")

    def filtered(self, keep: Callable[[Tool], bool] | Iterable[str]) -> Toolset:
        """Only the tools that `keep` accepts: a predicate, or names.

        Raises
        ------
        KeyError
            When a name is not here.
        """
        if callable(keep):
            return self._view(keep)
        names = [keep] if isinstance(keep, str) else list(keep)
        self._check_here(names)
        return self._view(lambda made: made.name in names)

    def renamed(self, names: Mapping[str, str]) -> Toolset:
        """The same tools, some under new names: ``{"old": "new"}``.

        Raises
        ------
        KeyError
            When an old name is not here.
        ToolDefinitionError
            When two tools would have the same name, or a new name is not valid.
        """
        new = dict(names)
        self._check_here(new)
        return self._view(rename=lambda name: new.get(name, name))

    def prefixed(self, prefix: str) -> Toolset:
        """The same tools with `prefix` before every name.

        Raises
        ------
        ToolDefinitionError
            When a name would not be valid: too long, or with letters that providers do not take.
        """
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be a string, got {type(prefix).__name__}")
        return self._view(rename=lambda name: prefix + name)


def _several(tools: Iterable[Any] | Toolset) -> Iterable[Any]:
    if isinstance(tools, Toolset):
        return [tools]
    if not isinstance(tools, Iterable):
        raise ToolDefinitionError(f"a toolset is made from a list of tools, not from one {type(tools).__name__}")
    return tools


def _refuse(problem: str) -> None:
    raise ToolDefinitionError(problem)

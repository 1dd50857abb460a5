"""`Toolset`: tools by name, which can grow while an agent runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rein_nb.ir import ToolSpec
from rein_nb.tools.decorator import as_tool
from rein_nb.tools.names import ToolDefinitionError
from rein_nb.tools.tool import Tool


class Toolset:
    """An ordered collection of tools with unique names.

    Parameters
    ----------
    tools
        Tools, functions, agents or other toolsets. A toolset given here stays *live*: what is added to it later is seen here.

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
        self._own: dict[str, Tool] = {}
        self._members: list[tuple[Toolset, Callable[[Tool], Tool | None] | None]] = []
        self._order: list[str | Toolset] = []
        self._version = 0
        self._seen: tuple[int, ...] = ()
        self._cache: dict[str, Tool] = {}
        self._specs: list[ToolSpec] = []
        for thing in [tools] if isinstance(tools, Toolset) else tools:
            self.add(thing)

    def add(self, thing: Any) -> Tool | Toolset:
        """Add a tool, function, agent or toolset; also while an agent runs, which sees it at its next turn.

        Raises
        ------
        ToolDefinitionError
            When the name is taken.
        """
        with self._lock:
            if isinstance(thing, Toolset):
                self._check_free(thing.names)
                self._members.append((thing, None))
                self._order.append(thing)
                self._version += 1
                return thing
            made = as_tool(thing)
            self._check_free([made.name])
            self._own[made.name] = made
            self._order.append(made.name)
            self._version += 1
            return made

    def remove(self, name: str) -> None:
        """Take a tool out.

        Raises
        ------
        KeyError
            When no tool of that name was added here.
        """
        with self._lock:
            if name not in self._own:
                raise KeyError(f"no tool {name!r} was added here; there are: {', '.join(self._own) or 'none'}")
            del self._own[name]
            self._order.remove(name)
            self._version += 1

    def _check_free(self, names: Iterable[str]) -> None:
        taken = sorted(set(names) & set(self._all()))
        if taken:
            raise ToolDefinitionError(
                f"there is already a tool named {', '.join(map(repr, taken))}; rename one, or prefix a toolset (toolset.prefixed('x_'))"
            )

    def _stamp(self) -> tuple[int, ...]:
        return (self._version, *(n for member, _ in self._members for n in member._stamp()))

    def _all(self) -> dict[str, Tool]:
        with self._lock:
            stamp = self._stamp()
            if stamp == self._seen:
                return self._cache
            changes = dict(self._members)
            tools: dict[str, Tool] = {}
            for item in self._order:
                if isinstance(item, str):
                    tools.setdefault(item, self._own[item])
                    continue
                change = changes[item]
                for made in item:
                    changed = made if change is None else change(made)
                    if changed is not None:
                        tools.setdefault(changed.name, changed)
            self._cache, self._seen = tools, stamp
            self._specs = [made.spec() for made in tools.values()]
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
        return Toolset([self, other] if isinstance(other, Toolset) else [self, *other])

    def __repr__(self) -> str:
        return f"Toolset({self.names})"

    # -- views: live, like the toolset they come from ----------------------------------------------

    def _view(self, change: Callable[[Tool], Tool | None]) -> Toolset:
        view = Toolset()
        view._members.append((self, change))
        view._order.append(self)
        view._version += 1
        return view

    def filtered(self, keep: Callable[[Tool], bool] | Iterable[str]) -> Toolset:
        """Only the tools that `keep` accepts: a predicate, or names.

        Raises
        ------
        KeyError
            When a name is not here.
        """
        if callable(keep):
            return self._view(lambda made: made if keep(made) else None)
        names = list(keep)
        missing = [name for name in names if name not in self]
        if missing:
            raise KeyError(f"no tool {', '.join(map(repr, missing))}; there are: {', '.join(self.names) or 'none'}")
        return self._view(lambda made: made if made.name in names else None)

    def renamed(self, names: Mapping[str, str]) -> Toolset:
        """The same tools, some under new names: ``{"old": "new"}``.

        Raises
        ------
        KeyError
            When an old name is not here.
        """
        missing = [name for name in names if name not in self]
        if missing:
            raise KeyError(f"no tool {', '.join(map(repr, missing))}; there are: {', '.join(self.names) or 'none'}")
        return self._view(_memo(lambda made: made.with_options(name=names[made.name]) if made.name in names else made))

    def prefixed(self, prefix: str) -> Toolset:
        """The same tools with `prefix` before every name."""
        return self._view(_memo(lambda made: made.with_options(name=prefix + made.name)))


def _memo(change: Callable[[Tool], Tool]) -> Callable[[Tool], Tool]:
    made: dict[int, tuple[Tool, Tool]] = {}

    def remembered(original: Tool) -> Tool:
        found = made.get(id(original))
        if found is None or found[0] is not original:
            found = made[id(original)] = (original, change(original))
        return found[1]

    return remembered

"""Tools for work in a notebook: `python`, files, `bash`. Off unless asked for, and each call needs an approval unless that is turned off.

Lives here: the tools themselves; the folder that paths cannot leave (`rooted`), the sandbox of `bash`, the capture of output and figures.

May import: `ir`, `stream`, the rest of `tools`. May not know: agents, IPython and matplotlib (used when the user has loaded them, never imported).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal

from rein_nb.tools.builtin.bash import Bash, NotConfinedWarning
from rein_nb.tools.builtin.files import Files
from rein_nb.tools.builtin.python import Python
from rein_nb.tools.builtin.rooted import NotAFile, PathRefused, Root
from rein_nb.tools.names import ToolDefinitionError
from rein_nb.tools.tool import NeedsApproval, Tool
from rein_nb.tools.toolset import Toolset

ALL = ("python", "read", "write", "edit", "ls", "glob", "grep", "bash")
"""The names of the built-in tools."""

READING = ("read", "ls", "glob", "grep")
"""Those that change nothing."""

__all__ = ["ALL", "READING", "NotAFile", "NotConfinedWarning", "PathRefused", "Root", "toolset"]


def toolset(
    root: str | os.PathLike[str] = ".",
    include: Iterable[str] = ALL,
    approve: bool | Collection[str] | Callable[[dict[str, Any]], bool] = True,
    *,
    namespace: dict[str, Any] | None = None,
    timeout_s: float = 120.0,
    hard_links: bool = False,
    confine: Literal["auto", "require", "off"] = "auto",
) -> Toolset:
    """The built-in tools, for one folder.

    The file tools and (under bubblewrap) `bash` are confined to the folder. `python` is not: it is the user's own session.

    Parameters
    ----------
    root
        The folder that the file tools cannot leave, and in which `bash` starts.
    include
        Which tools; `ALL` names them, `READING` those that change nothing.
    approve
        Which need an approval for every call: True for all, False for none, names, or a function of the arguments.
    namespace
        Variables of the `python` tool; IPython's by default, where it is running, else a dict of its own.
    timeout_s
        Seconds that `python` and (unless the model asks for another time) `bash` may take.
    hard_links
        Whether files with several names may be read; see `Root`.
    confine
        Whether `bash` runs under bubblewrap: ``"auto"`` where that works, ``"require"`` or raise, ``"off"``.

    Returns
    -------
    Toolset
        To combine with others: ``Agent(..., tools=[toolset("work"), my_tool])``.

    Raises
    ------
    ToolDefinitionError
        For a name that is no built-in tool, or when confinement is required and not to be had.
    OSError, ValueError, NotImplementedError
        From `Root`, when the folder cannot be used.

    Examples
    --------
    >>> toolset(".", include=READING, approve=False).names
    ['read', 'ls', 'glob', 'grep']
    """
    names = [include] if isinstance(include, str) else list(include)
    for given in (names, [] if isinstance(approve, bool) or callable(approve) else approve):
        unknown = [name for name in given if name not in ALL]
        if unknown:
            raise ToolDefinitionError(f"no built-in tool {', '.join(map(repr, unknown))}; there are: {', '.join(ALL)}")
    confined = Root(root, hard_links=hard_links) if set(names) & {*READING, "write", "edit", "bash"} else None
    made: list[Tool] = []
    for name in names:
        needs = _needs(name, approve)
        if name == "python":
            made.append(
                Tool(Python(namespace).python, timeout_s=timeout_s, requires_approval=needs, parallel_safe=False)
            )
            continue
        assert confined is not None
        if name == "bash":
            bash = Bash(confined, timeout_s, confine)
            made.append(Tool(bash.bash, description=bash.description, requires_approval=needs, parallel_safe=False))
            continue
        changes = name in ("write", "edit")
        made.append(Tool(Files(confined).tools()[name], requires_approval=needs, parallel_safe=not changes))
    return Toolset(made)


def _needs(name: str, approve: bool | Collection[str] | Callable[[dict[str, Any]], bool]) -> NeedsApproval:
    if isinstance(approve, bool) or callable(approve):
        return approve
    return name in approve

"""``agent.run(...)`` as the last line of a cell is seen while it runs: the cell's value would show itself as a transcript at the end anyway.

A cell whose last statement is a call ``x.run(...)`` or ``await x.arun(...)`` is rewritten so that the method passes through `watched`, which
leaves it alone unless it is an agent's. Runs elsewhere in a cell, in loops, in functions, or whose value is assigned, stay silent.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rein_nb.agent import Agent, AgentResult
from rein_nb.notebook.frontend import place, shell
from rein_nb.notebook.running import DisplayedRun, open_live

_METHODS = {"run": False, "arun": True}
_HOME = f"__import__('importlib').import_module({__name__!r}).watched"


class Watch(ast.NodeTransformer):
    """The rewriting of cells; IPython calls `visit` with each cell's syntax tree."""

    def visit(self, node: ast.AST) -> Any:
        """The tree, with the last call of ``run`` or ``arun`` passed through `watched`."""
        if not isinstance(node, ast.Module) or not node.body or not isinstance(node.body[-1], ast.Expr):
            return node
        value = node.body[-1].value
        awaited = isinstance(value, ast.Await)
        call = value.value if isinstance(value, ast.Await) else value
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and _METHODS.get(call.func.attr) is awaited
        ):
            home = ast.parse(_HOME, mode="eval").body
            for part in ast.walk(home):
                ast.copy_location(part, call.func)
            call.func = ast.copy_location(ast.Call(func=home, args=[call.func], keywords=[]), call.func)
        return node


def watched(method: Any) -> Any:
    """An agent's ``run`` or ``arun``, with its display; anything else as it is.

    Where nobody watches (no notebook, no reader, a cell that ends in a semicolon) the method is left alone too.
    """
    agent = getattr(method, "__self__", None)
    if not isinstance(agent, Agent) or place() != "notebook" or _quiet():
        return method
    if method.__func__ is Agent.run:
        return _run(agent)
    if method.__func__ is Agent.arun:
        return _arun(agent)
    return method


def _quiet() -> bool:
    hook = getattr(shell(), "displayhook", None)
    return bool(hook is not None and hook.quiet())


def _start(agent: Agent, prompt: Any, overrides: dict[str, Any]) -> DisplayedRun:
    handle = agent.start(prompt, **overrides)
    return DisplayedRun(open_live(show_prompt=True, stream=True), handle)


def _run(agent: Agent) -> Callable[..., AgentResult]:
    def run(prompt: Any = None, **overrides: Any) -> AgentResult:
        return _was_shown(_start(agent, prompt, overrides).block())

    return run


def _arun(agent: Agent) -> Callable[..., Any]:
    async def arun(prompt: Any = None, **overrides: Any) -> AgentResult:
        return _was_shown(await _start(agent, prompt, overrides).wait())

    return arun


def _was_shown(result: AgentResult) -> AgentResult:
    """Have the cell's value not be drawn a second time below its own transcript. It is kept in ``Out`` as ever."""
    ip = shell()
    formatter = ip.display_formatter.ipython_display_formatter

    def swallow(value: Any) -> None:
        forget()
        if value is not result:
            put: Any = import_module("IPython.display").display
            put(value)

    def forget(*_: Any) -> None:
        formatter.type_printers.pop(AgentResult, None)
        if forget in ip.events.callbacks["post_run_cell"]:
            ip.events.unregister("post_run_cell", forget)

    formatter.for_type(AgentResult, swallow)
    ip.events.register("post_run_cell", forget)
    return result

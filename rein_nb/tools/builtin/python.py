"""The `python` tool: code that runs in the user's own namespace, as a cell would.

It is not confined: it can do what the user can. It runs in the tool's thread, with a loop of its own for ``await``. When it is stopped a
KeyboardInterrupt is raised inside it at its next Python instruction; code that sits in one long C call goes on until that returns.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import ctypes
import inspect
import itertools
import linecache
import threading
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from rein_nb.ir import MediaPart, TextPart, ToolResult
from rein_nb.ir.base import clean_text
from rein_nb.stream import CancellationToken
from rein_nb.tools.builtin.capture import Captured, captured_output, shell_of_user
from rein_nb.tools.builtin.editing import encoded
from rein_nb.tools.context import ToolContext
from rein_nb.tools.errors import describe_error
from rein_nb.tools.jsonable import is_frame
from rein_nb.tools.render import render
from rein_nb.tools.threads import ToolStopped

MAX_REPR = 20_000
"""Characters of the last expression's repr."""

_numbers = itertools.count(1)


class Python:
    """Runs code in one namespace.

    Parameters
    ----------
    namespace
        The variables that the code sees and sets; IPython's by default, where it is running, else a dict of its own.
    """

    def __init__(self, namespace: dict[str, Any] | None = None) -> None:
        self._given = namespace
        self._own: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}

    @property
    def namespace(self) -> dict[str, Any]:
        """Where the code's variables live."""
        if self._given is not None:
            return self._given
        shell = shell_of_user()
        found: dict[str, Any] | None = getattr(shell, "user_ns", None)
        return self._own if found is None else found

    def python(
        self, code: Annotated[str, "Python code; the value of a last expression is shown."], ctx: ToolContext[Any]
    ) -> ToolResult:
        """Run Python code in the user's notebook session. Variables stay. Output, figures and the last expression's value come back."""
        namespace = self.namespace
        failure: BaseException | None = None
        stopped = False
        value: list[Any] = []
        shown: list[TextPart | MediaPart] = []
        filename = f"<python tool {next(_numbers)}>"
        with captured_output() as captured:
            try:
                with _interruptible(ctx.token):
                    tree = _parsed(code, filename)
                    value = _run(tree, filename, namespace, ctx.token)
                    shown = _shown(value[0]) if value else []
            except ToolStopped:
                raise
            except KeyboardInterrupt as exc:
                stopped = ctx.cancelled
                failure = exc
            except BaseException as exc:
                failure = exc
        return _result(ctx, captured, shown, failure, filename, stopped)


def _parsed(code: str, filename: str) -> ast.Module:
    code = encoded(code, "code").decode()
    shell = shell_of_user()
    if shell is not None and hasattr(shell, "transform_cell"):
        code = shell.transform_cell(code)  # %magics and !commands
    lines = code.splitlines(keepends=True)
    linecache.cache[filename] = (len(code), None, lines, filename)
    return ast.parse(code, filename)


def _run(tree: ast.Module, filename: str, namespace: dict[str, Any], token: CancellationToken) -> list[Any]:
    """The value of the last expression, in a list; an empty one when the last statement is none, or its value None."""
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    if tree.body:
        _execute(compile(tree, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True), namespace, token)
    if not isinstance(last, ast.Expr):
        return []
    expression = ast.Expression(last.value)
    value = _execute(
        compile(expression, filename, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True), namespace, token
    )
    return [] if value is None else [value]


def _execute(compiled: types.CodeType, namespace: dict[str, Any], token: CancellationToken) -> Any:
    value = eval(compiled, namespace)  # noqa: S307 - running code is what the tool is for
    if compiled.co_flags & inspect.CO_COROUTINE:
        return asyncio.run(_awaited(value, token))
    return value


async def _awaited(value: Any, token: CancellationToken) -> Any:
    # A sleeping loop runs no Python instruction at which the interrupt could be raised: it is woken.
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(int)

    detach = token.on_cancel(wake)
    try:
        return await value
    finally:
        detach()


def _shown(value: Any) -> list[TextPart | MediaPart]:
    """The value as a notebook shows it: pictures and frames as such, anything else by its repr."""
    if isinstance(value, type) or not (is_frame(value) or hasattr(value, "savefig") or hasattr(value, "_repr_png_")):
        text = clean_text(repr(value))
        if len(text) > MAX_REPR:
            text = f"{text[:MAX_REPR]}\n[... {len(text) - MAX_REPR:,} further characters of the repr ...]"
        return [TextPart(text=text)]
    return list(render(value).content)


@contextmanager
def _interruptible(token: CancellationToken) -> Iterator[None]:
    """Raise KeyboardInterrupt in this thread when the token is cancelled inside the block, and never after it."""
    ident = ctypes.c_ulong(threading.get_ident())
    lock = threading.Lock()
    inside = True

    def interrupt() -> None:
        with lock:
            if inside:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(KeyboardInterrupt))

    detach = token.on_cancel(interrupt)
    try:
        yield
    finally:
        with lock:
            inside = False
        detach()
        if token.is_cancelled:
            # One that was set at the last moment and not raised yet must not come up in code that is not the user's.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, None)


def _result(
    ctx: ToolContext[Any],
    captured: Captured,
    shown: list[TextPart | MediaPart],
    failure: BaseException | None,
    filename: str,
    stopped: bool,
) -> ToolResult:
    content: list[TextPart | MediaPart] = []
    printed = captured.text
    if printed:
        content.append(TextPart(text=printed if printed.endswith("\n") or not (shown or failure) else printed + "\n"))
    # A figure that is also the last value is shown once, among the figures.
    content.extend(part for part in shown if part not in captured.media)
    content.extend(captured.media)
    content.extend(TextPart(text=f"\n{fault}") for fault in captured.faults)
    details: dict[str, Any] = {
        "output": printed,
        "value": "".join(p.text for p in shown if isinstance(p, TextPart)) or None,
    }
    if stopped:
        content.append(TextPart(text="[stopped while it was running; what it did before stays done]"))
    elif failure is not None:
        content.append(TextPart(text=_trace(failure, filename)))
        details["error"] = type(failure).__name__
    if not content:
        content.append(TextPart(text="(no output)"))
    return ToolResult(
        tool_call_id=ctx.call.id, content=content, details=details, is_error=failure is not None,
        status="interrupted" if stopped else "error" if failure is not None else "ok",
    )  # fmt: skip


def _trace(failure: BaseException, filename: str) -> str:
    """The traceback from the code's first line on, without the tool's own frames."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != filename:
        trace = trace.tb_next
    try:
        return clean_text("".join(traceback.format_exception(type(failure), failure, trace)))
    except Exception:
        return describe_error(failure)

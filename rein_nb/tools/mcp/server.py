"""`MCPServer`: a server's tools as a toolset that lives as long as the connection, and follows the server's changes."""

from __future__ import annotations

import asyncio
import atexit
import os
import shlex
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from rein_nb import aio
from rein_nb.ir import InvalidRequest, ReinError, ToolResult, redact
from rein_nb.ir.base import clean_json
from rein_nb.ir.redaction import REDACTOR
from rein_nb.tools.context import ToolContext
from rein_nb.tools.mcp.connection import Address, Connection, Unreachable, describe, list_tools, means_lost
from rein_nb.tools.mcp.credentials import secrets_in
from rein_nb.tools.mcp.results import to_tool_result
from rein_nb.tools.mcp.view import View
from rein_nb.tools.mcp.wire import SENT
from rein_nb.tools.tool import NeedsApproval
from rein_nb.tools.toolset import Toolset

T = TypeVar("T")

_NAME_CHARS = 100
"""Characters of a server's own name that are used: it is in every result."""

_PROGRESS_CHARS = 1_000
"""Characters of a progress message that are passed on: each is an event of the run."""

_EXIT_S = 6.0
"""Seconds that the end of the process waits for servers that were never closed."""

_entered: weakref.WeakSet[MCPServer] = weakref.WeakSet()
_exit_of: int | None = None
"""The process whose end closes them."""


class MCPError(ReinError):
    """A server cannot be used: not reachable, not entered, or the ``mcp`` package is missing."""


class MCPServer:
    """A connection to an MCP server, over stdio or streamable HTTP.

    Parameters
    ----------
    command
        Program and arguments of a server that is started and spoken to over stdio; a string is split as a shell would.
    url
        Address of a server that runs already (streamable HTTP). Exactly one of `command` and `url` is given.
    env, cwd
        For `command`: further environment variables, and the folder. The server does not inherit this process's environment, only what
        programs need to run (``PATH``, ``HOME``...).
    headers
        For `url`: further HTTP headers, for example ``{"Authorization": "Bearer ..."}``. They are kept out of every message.
    name
        For messages and results; the server's own name by default.
    timeout_s
        Seconds that one call may take; None for no limit.
    connect_timeout_s
        Seconds until the server must have answered, also when it is connected anew.

    Raises
    ------
    InvalidRequest
        When not exactly one of `command` and `url` is given, or an option belongs to the other.

    Examples
    --------
    ::

        async with MCPServer(["uvx", "mcp-server-git"]) as server:
            agent = Agent("anthropic/claude-...", tools=server.toolset(prefix="git_"))
            await agent.arun("What changed last?")

    ``with`` does the same for synchronous code. A connection that was lost is made anew at the next call; what cannot be done is a
    result with an error, for the model to read.
    """

    def __init__(
        self,
        command: str | Sequence[str] | None = None,
        *,
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        timeout_s: float | None = 120.0,
        connect_timeout_s: float = 30.0,
    ) -> None:
        if (command is None) == (url is None):
            raise InvalidRequest("an MCP server is given by exactly one of command= and url=")
        if url is not None and (env is not None or cwd is not None):
            raise InvalidRequest("env= and cwd= are for a server that is started by command=")
        if command is not None and headers is not None:
            raise InvalidRequest("headers= are for a server that is reached by url=")
        words = shlex.split(command) if isinstance(command, str) else command
        if words is not None and not words:
            raise InvalidRequest("command= is empty; give the program and its arguments")
        for what, seconds in (("timeout_s", timeout_s), ("connect_timeout_s", connect_timeout_s)):
            if seconds is not None and not seconds > 0:
                raise InvalidRequest(f"{what} must be more than 0 seconds, got {seconds}")
        for secret in secrets_in(words, env, headers):
            REDACTOR.register(secret)
        self._address = Address(command=words, url=url, env=env, cwd=cwd, headers=dict(headers or {}))
        self._name = name
        self.timeout_s = timeout_s
        self.connect_timeout_s = connect_timeout_s
        self._connection: Connection | None = None
        self._entered = False
        self._lock: asyncio.Lock | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._attempts = 0
        self._refused: Unreachable | None = None
        self._listed: list[Any] = []
        self._views: weakref.WeakSet[View] = weakref.WeakSet()
        self._views_lock = threading.Lock()
        self.server_name: str | None = None
        self.instructions: str | None = None

    def __repr__(self) -> str:
        state = "connected" if self._connection is not None and self._connection.usable else "not connected"
        return f"MCPServer({self._address.shown!r}, {state}, {len(self._listed)} tools)"

    @property
    def name(self) -> str:
        """The name it goes by in messages."""
        return self._name or self.server_name or self._address.shown

    # -- connecting -------------------------------------------------------------------------------

    async def __aenter__(self) -> MCPServer:
        await _at_home(self._enter())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _at_home(self._leave())

    def __enter__(self) -> MCPServer:
        aio.run_sync(self._enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        aio.run_sync(self._leave())

    async def _enter(self) -> None:
        try:
            import mcp  # noqa: F401
        except ImportError as missing:
            raise MCPError("MCP servers need the mcp package: pip install 'rein-nb[mcp]'") from missing
        if self._entered:
            raise MCPError(f"the MCP server {self.name} is entered already")
        self._entered = True
        try:
            await self._connected()
            _close_at_exit(self)
        except BaseException as exc:
            self._entered = False
            if isinstance(exc, Unreachable):
                raise MCPError(f"the MCP server {self.name} cannot be reached: {exc}") from exc
            raise

    async def _leave(self) -> None:
        self._entered = False
        _entered.discard(self)
        connection, self._connection = self._connection, None
        if connection is not None and self._home is asyncio.get_running_loop():
            await connection.close()

    async def _connected(self) -> Connection:
        """A connection that can be used; a lost one is made anew. On the home loop only."""
        if self._lock is None or self._home is not asyncio.get_running_loop():
            # After a fork, or when the loop's thread has died: what belongs to that loop is of no use here.
            self._lock, self._home, self._connection = asyncio.Lock(), asyncio.get_running_loop(), None
        attempts = self._attempts
        async with self._lock:
            if not self._entered:
                raise Unreachable("it was closed; use it inside its with block")
            if self._connection is not None and self._connection.usable:
                return self._connection
            if attempts != self._attempts and self._refused is not None:
                raise self._refused  # as those who waited with this call were told; each on its own would wait in vain
            if self._connection is not None:
                await self._connection.close()
            connection = self._connection = Connection(self._address, self._take, self.connect_timeout_s)
            self._refused = None
            try:
                await connection.open()
            except Unreachable as exc:
                self._attempts, self._refused = self._attempts + 1, exc
                raise
            info = connection.client.server_info
            self.server_name = info.name[:_NAME_CHARS] if info is not None else None
            self.instructions = connection.client.instructions
            return connection

    # -- tools ------------------------------------------------------------------------------------

    @property
    def tools(self) -> list[str]:
        """The tools' own names, as the server lists them."""
        return [found.name for found in self._listed]

    @property
    def left_out(self) -> dict[str, str]:
        """By the name of a listed tool that no model can be given, why."""
        return dict(self._connection.exchange.left_out) if self._connection is not None else {}

    def toolset(self, prefix: str = "", *, approve: NeedsApproval = False) -> Toolset:
        """The server's tools, live: what the server adds or takes away later is seen at the next turn.

        Parameters
        ----------
        prefix
            Before every name, to keep servers apart.
        approve
            Whether calls need an approval: True, False, or a function of the arguments.

        Raises
        ------
        MCPError
            When the server was not entered.
        """
        if not self._entered:
            raise MCPError("use the server inside its block: async with MCPServer(...) as server: server.toolset()")
        view = View(self, prefix, approve)
        with self._views_lock:
            self._views.add(view)
            view.update(self._listed)
        return view

    async def _take(self, listed: list[Any]) -> None:
        with self._views_lock:
            self._listed = listed
            for view in list(self._views):
                view.update(listed)

    async def refresh(self) -> None:
        """Read the list of tools again; for servers that do not tell of changes.

        Raises
        ------
        MCPError
            When the server cannot be reached.
        """

        async def again() -> None:
            connection = await self._connected()
            try:
                await self._take(await asyncio.wait_for(list_tools(connection.client), self.connect_timeout_s))
            except TimeoutError:
                raise Unreachable(f"it did not list its tools within {self.connect_timeout_s:g} s") from None
            except Exception as exc:
                if means_lost(exc):
                    connection.lost = connection.lost or describe(exc)
                raise Unreachable(str(redact(describe(exc)))) from exc

        try:
            await _at_home(again())
        except Unreachable as exc:
            raise MCPError(f"the MCP server {self.name} cannot be reached: {exc}") from exc

    async def call(self, tool: str, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolResult:
        """Call one tool by the server's own name for it; from any loop. What goes wrong is a result with an error."""
        return await _at_home(self._call(tool, arguments, ctx))

    async def _call(self, tool: str, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolResult:
        async def progress(done: float, total: float | None, message: str | None) -> None:
            words = message or (f"{done:g} of {total:g}" if total else f"{done:g}")
            ctx.progress(words[:_PROGRESS_CHARS], min(1.0, max(0.0, done / total)) if total else None)

        try:
            connection = await self._connected()
        except Unreachable as exc:
            return self._failed(
                ctx, tool, f"The MCP server {self.name} cannot be reached: {exc}. The tool was not called.", None
            )
        try:
            # Half a surrogate pair cannot be sent, and would end the connection.
            cleaned: Any = clean_json(arguments)
            answer = await connection.client.call_tool(tool, cleaned, progress_callback=progress)
        except Exception as exc:
            if connection.usable and not means_lost(exc):
                text = f"The call failed at the MCP server {self.name}: {redact(describe(exc))}"
                return self._failed(ctx, tool, text, exc)
            connection.lost = connection.lost or describe(exc)
            text = (
                f"The connection to the MCP server {self.name} was lost during the call ({redact(describe(exc))}). "
                "The tool may have taken effect; the next call connects anew."
            )
            return self._failed(ctx, tool, text, exc)
        sent = (answer.meta or {}).get(SENT)
        if sent is None:  # none that `carried` takes: it asks for input, or is of a kind of its own
            sent = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        return to_tool_result(ctx.call, sent, self.name, tool)

    def _failed(self, ctx: ToolContext[Any], tool: str, text: str, exc: Exception | None) -> ToolResult:
        """The result of a call that got no answer; `exc` is None when it was not made."""
        details = {"server": self.name, "tool": tool, "started": exc is not None}
        error = getattr(exc, "error", None)
        if error is not None:  # what the server said is wrong, with its data
            details["error"] = redact(clean_json({"code": error.code, "message": error.message, "data": error.data}))
        return ToolResult(tool_call_id=ctx.call.id, content=text, details=details, is_error=True)


def _close_at_exit(server: MCPServer) -> None:
    global _exit_of
    if _exit_of != os.getpid():
        _exit_of = os.getpid()
        _entered.clear()  # those of the process that this one was forked from
        atexit.register(_close_all, _exit_of)
    _entered.add(server)


def _close_all(process: int) -> None:
    """Close the servers that were never closed, so that their processes do not outlive this one."""
    servers = list(_entered)
    if not servers or os.getpid() != process:
        return

    async def close() -> None:
        await asyncio.wait([asyncio.create_task(server._leave()) for server in servers], timeout=_EXIT_S)

    try:
        aio.submit(close()).result(_EXIT_S + 1.0)
    except Exception:
        return  # the process ends in any case


def _at_home(coro: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """Run a coroutine on rein_nb's own loop, whatever loop the caller is on."""
    return coro if aio.in_background_loop() else aio.wait_in_slices(aio.submit(coro))

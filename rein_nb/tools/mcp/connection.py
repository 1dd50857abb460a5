"""One connection to an MCP server, owned by one task on rein_nb's own loop.

The session opens and closes its scopes in the task that runs it, and everything else asks that task's loop. So a server entered in one
loop, or by synchronous code, serves agents on any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, cast

from rein_nb.ir import redact
from rein_nb.tools.mcp.errlog import ErrorLog
from rein_nb.tools.mcp.wire import Exchange, lenient

log = logging.getLogger("rein_nb.tools.mcp")

_PAGES = 100
"""Pages of a tool list that are read at most: a server whose list never ends must not hold up the connection."""

_RELISTEN = 5
"""How often a stream of changes that broke off is opened again."""

_RELIST_S = 0.1
"""Seconds between two readings of the list of tools, at least; longer for a server that says at each that it has changed."""

_RELIST_AT_MOST_S = 10.0

_TRIM_S = 2.0
"""Seconds between two looks at how much the server's process has written to its standard error."""

_UNSEEN = logging.NullHandler()

CLOSE_S = 10.0
"""Seconds that closing may take; a server process that does not end by itself is ended within that time."""


class Unreachable(Exception):
    """The server cannot be reached; the message says why, without secrets."""


@dataclass(slots=True, kw_only=True)
class Address:
    """How a server is reached: a command that is started, or a URL."""

    command: Sequence[str] | None = field(default=None, repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None
    url: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def shown(self) -> str:
        """For messages."""
        return str(redact(self.url if self.url is not None else " ".join(self.command or ())))


class Connection:
    """Connects, lists tools, tells of changes, calls. Belongs to one event loop.

    Parameters
    ----------
    address
        Where the server is.
    on_change
        Awaited with every list of tools, the first one included.
    connect_timeout_s
        Seconds until the server must have answered.
    """

    def __init__(
        self, address: Address, on_change: Callable[[list[Any]], Awaitable[None]], connect_timeout_s: float
    ) -> None:
        self.address = address
        self._on_change = on_change
        self._connect_timeout_s = connect_timeout_s
        self._closing = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.exchange = Exchange()
        self.client: Any = None
        self.lost: str | None = None

    async def open(self) -> None:
        """Connect and read the list of tools.

        Raises
        ------
        Unreachable
            When that fails or takes too long.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._own(ready), name="rein_nb-mcp")
        try:
            await asyncio.wait_for(asyncio.shield(ready), self._connect_timeout_s)
        except TimeoutError:
            await self.close()
            raise Unreachable(f"it did not answer within {self._connect_timeout_s:g} s") from None
        except BaseException:
            await self.close()
            raise

    @property
    def usable(self) -> bool:
        """Whether calls may be made."""
        return self.client is not None and self.lost is None

    async def close(self) -> None:
        """End the session, and the server's process where it was started here."""
        self._closing.set()
        task = self._task
        if task is None or task.done():
            return
        await asyncio.wait((task,), timeout=CLOSE_S if self.client is not None else 0.2)
        if not task.done():
            task.cancel()
            await asyncio.wait((task,), timeout=CLOSE_S)

    async def _own(self, ready: asyncio.Future[None]) -> None:
        with ErrorLog() as errors:
            try:
                async with self._client(errors) as client:
                    await self._on_change(await list_tools(client))
                    self.client = client
                    if not ready.done():
                        ready.set_result(None)
                    await self._attend(client, errors)
            except asyncio.CancelledError:
                self.lost = self.lost or "the connection was closed"
                if not ready.done():
                    ready.set_exception(Unreachable("the connection was closed while it was made"))
                raise
            except BaseException as exc:
                self.lost = self._why(exc, errors)
                if not ready.done():
                    ready.set_exception(Unreachable(self.lost))
                elif not isinstance(exc, Exception):
                    raise
            finally:
                self.lost = self.lost or "the connection was closed"
                self.client = None
                if ready.done() and not ready.cancelled():
                    ready.exception()

    @contextlib.asynccontextmanager
    async def _client(self, errors: ErrorLog) -> AsyncIterator[Any]:
        from mcp import Client, StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        # The package reports every line that is no message, traceback and all: for a log that somebody keeps, not for a cell's output.
        logging.getLogger("mcp").addHandler(_UNSEEN)
        address = self.address
        async with contextlib.AsyncExitStack() as stack:
            transport: Any
            if address.url is not None:
                import httpx2

                # A server may hold a response open while it works: reading waits as long as the call does.
                timeout = httpx2.Timeout(self._connect_timeout_s, read=None)
                http = await stack.enter_async_context(
                    httpx2.AsyncClient(
                        headers=dict(address.headers),
                        timeout=timeout,
                        event_hooks={"response": [self.exchange.responded]},
                    )
                )
                transport = streamable_http_client(address.url, http_client=http)
            else:
                program, *arguments = address.command or ("",)
                parameters = StdioServerParameters(
                    command=program, args=arguments, env=dict(address.env or {}) or None, cwd=address.cwd,
                    # One byte that is no UTF-8 would end the reading of all that follows.
                    encoding_error_handler="replace",
                )  # fmt: skip
                transport = stdio_client(parameters, errlog=cast(TextIO, errors))
            session = Client(lenient(transport, self.exchange), message_handler=self._heard)
            yield await stack.enter_async_context(session)

    async def _heard(self, message: Any) -> None:
        if getattr(message, "method", None) == "notifications/tools/list_changed":
            self._changed.set()

    async def _attend(self, client: Any, errors: ErrorLog) -> None:
        """Stay until it is closed; read the list of tools again whenever the server says that it has changed."""
        closing = asyncio.create_task(self._closing.wait())
        follower = asyncio.create_task(self._follow(client))
        tasks: list[asyncio.Task[Any]] = [closing, follower, asyncio.create_task(self._listen(client))]
        if self.address.command is not None:
            tasks.append(asyncio.create_task(_trim(errors)))
        try:
            await asyncio.wait((closing, follower), return_when=asyncio.FIRST_COMPLETED)
            if not closing.done():
                follower.result()  # it ends only with a lost connection
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _follow(self, client: Any) -> None:
        pause = _RELIST_S
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._on_change(await asyncio.wait_for(list_tools(client), self._connect_timeout_s))
            except Exception as exc:
                if means_lost(exc):
                    raise
                log.warning(
                    "the MCP server's list of tools could not be read again, the old one stays: %r",
                    redact(describe(exc)),
                )
            pause = min(2 * pause, _RELIST_AT_MOST_S) if self._changed.is_set() else _RELIST_S
            await asyncio.sleep(pause)

    async def _listen(self, client: Any) -> None:
        """Newer protocol versions tell of changes only those who subscribed."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        for attempt in range(_RELISTEN):
            try:
                async with client.listen(tools_list_changed=True) as subscription:
                    if attempt:
                        self._changed.set()  # nobody told what happened in between
                    async for _ in subscription:
                        self._changed.set()
                return
            except SubscriptionLost:
                if self.address.url is None:
                    self.lost = self.lost or "the server has ended"
                    return
                await asyncio.sleep(1.0 + attempt)
            except (ListenNotSupportedError, MCPError, TimeoutError):
                # An older protocol, which sends changes unasked, or a server without them.
                return

    def _why(self, exc: BaseException, errors: ErrorLog) -> str:
        said = errors.tail()
        return str(redact(describe(exc) + (f"; it wrote: {said}" if said else "")))


async def _trim(errors: ErrorLog) -> None:
    while True:
        await asyncio.sleep(_TRIM_S)
        errors.trim()


async def list_tools(client: Any) -> list[Any]:
    """Every page of the server's list of tools."""
    tools: list[Any] = []
    cursor: str | None = None
    seen: set[str | None] = set()
    while cursor not in seen and len(seen) < _PAGES:
        seen.add(cursor)
        page = await client.list_tools(cursor=cursor, cache_mode="refresh")
        tools.extend(page.tools)
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def describe(exc: BaseException) -> str:
    """An exception in words; of a group, what is in it."""
    if isinstance(exc, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(describe(inner) for inner in exc.exceptions))
    text = str(exc).strip()
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def means_lost(exc: BaseException) -> bool:
    """Whether a failed call shows that the connection is gone, so that the next one needs a new one."""
    import anyio
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED

    if isinstance(exc, MCPError):
        # By their words, too: servers use the code of a closed connection for faults of their own. One that was started anew answers 404
        # to a session that it does not know.
        closed = exc.code == CONNECTION_CLOSED and exc.message.startswith(("Connection closed", "SSE stream "))
        return closed or exc.message == "Session terminated"
    if isinstance(exc, BaseExceptionGroup):
        return any(means_lost(inner) for inner in exc.exceptions)
    if isinstance(exc, anyio.ClosedResourceError | anyio.BrokenResourceError | anyio.EndOfStream | ConnectionError):
        return True
    return type(exc).__module__.partition(".")[0] in ("httpx2", "httpcore2")

"""What a server sends, before the ``mcp`` package judges it: an answer that breaks the protocol's schema is kept, not refused.

`lenient` stands between a transport and the session. An answer to a call reaches the session as an empty result that carries what the
server sent; a tool whose description breaks the protocol is mended or left out, where it would make the whole list unreadable; an answer
that could not be parsed ends the call that waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

from rein_nb.ir.base import clean_json, clean_text, loads

log = logging.getLogger("rein_nb.tools.mcp")

SENT = "rein_nb/sent"
"""The key of a result's ``_meta`` that holds what the server sent."""

_ANSWER = re.compile(r'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')
_KEPT_CHARS = 20_000
"""Characters of an unreadable answer that are kept."""

_PARSE_ERROR = -32700  # JSON-RPC 2.0, section 5.1


class Exchange:
    """Rewrites one connection's incoming messages; knows of every request what was asked.

    Attributes
    ----------
    left_out
        By a tool's name, why it could not be taken.
    """

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}
        self._asked: dict[Any, str] = {}
        self._refused: dict[Any, dict[str, Any]] = {}

    async def responded(self, response: Any) -> None:
        """Note what an HTTP response with an error says; the package tells of it only that it was one."""
        if response.status_code < 400:
            return
        try:
            number = _same(loads(response.request.content).get("id"))
        except (ValueError, AttributeError, RuntimeError):  # the end of a session, or a stream: no request of ours
            return
        said = {"status": response.status_code, "reason": response.reason_phrase, "body": ""}
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) <= _KEPT_CHARS:
            said["body"] = clean_text((await response.aread()).decode("utf-8", "replace"))
        if number in self._asked:
            self._refused[number] = said

    def sent(self, message: Any) -> None:
        """Note what goes out."""
        method, params = getattr(message, "method", None), getattr(message, "params", None) or {}
        number = _same(getattr(message, "id", None))
        if method is not None and number is not None:
            self._asked[number] = method
        elif method == "notifications/cancelled":
            self._asked.pop(_same(params.get("requestId")), None)
            self._refused.pop(_same(params.get("requestId")), None)

    def received(self, item: Any) -> Any:
        """What the session gets of a message or of a failed attempt to read one."""
        from mcp.shared.message import SessionMessage

        if isinstance(item, Exception):
            message = self._unreadable(item)
            return item if message is None else SessionMessage(message)
        message = item.message
        result = getattr(message, "result", None)
        if getattr(message, "method", None) is not None:
            return item
        number = _same(message.id)
        method, refused = self._asked.pop(number, None), self._refused.pop(number, None)
        error = getattr(message, "error", None)
        if refused is not None and error is not None:
            error.message += f" (HTTP {refused['status']} {refused['reason']})"
            error.data = {"http": refused} if error.data is None else {"http": refused, "data": error.data}
        if isinstance(result, dict):
            message.result = self._answered(method, result)
        return item

    def _answered(self, method: str | None, result: dict[str, Any]) -> dict[str, Any]:
        if method == "tools/call":
            return carried(result)
        return self._listed(result) if method == "tools/list" else result

    def _unreadable(self, exc: Exception) -> Any:
        """The answer to a waiting request that the package could not read; None when it was none."""
        from mcp.types import ErrorData, JSONRPCError, JSONRPCResponse

        data, text = _what_was_read(exc)
        number = _same(data.get("id") if isinstance(data, dict) else _number(text))
        if not isinstance(number, int | str) or number not in self._asked:
            return None
        if isinstance(data, dict) and isinstance(data.get("result"), dict):
            result = self._answered(self._asked.pop(number), data["result"])
            return JSONRPCResponse(jsonrpc="2.0", id=number, result=result)
        self._asked.pop(number)
        kept = clean_json(data) if isinstance(data, dict) else clean_text(text[:_KEPT_CHARS])
        return JSONRPCError(
            jsonrpc="2.0",
            id=number,
            error=ErrorData(code=_PARSE_ERROR, message="the server's answer breaks the protocol", data={"sent": kept}),
        )

    def _listed(self, result: dict[str, Any]) -> dict[str, Any]:
        given = result.get("tools")
        if not isinstance(given, list):
            return {**result, "tools": []}
        tools = []
        for found in given:
            taken, why = _tool(found)
            if why:
                name = str(found.get("name") if isinstance(found, dict) else found)[:100]
                if name not in self.left_out:
                    log.warning("the MCP server's tool %r was left out: %r", name, why)
                self.left_out[name] = why
            else:
                tools.append(taken)
        cursor = result.get("nextCursor")
        return {**result, "tools": tools, "nextCursor": cursor if isinstance(cursor, str) else None}


def _same(number: Any) -> Any:
    """An id as the session compares it: a server may send a number back as text."""
    from mcp.shared.dispatcher import coerce_request_id

    return coerce_request_id(number) if isinstance(number, str) else number


def carried(result: dict[str, Any]) -> dict[str, Any]:
    """A result that every version of the protocol accepts, which carries `result`. One that asks for input stays what it is."""
    if result.get("resultType") not in (None, "complete"):
        return result
    # An error's structured content is not held against the tool's output schema, by which the package would refuse the answer.
    return {"content": [], "isError": True, "resultType": "complete", "_meta": {SENT: result}}


def _tool(found: Any) -> tuple[Any, str]:
    """(a tool that the package accepts, why not)."""
    from mcp.types import Tool
    from pydantic import ValidationError

    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None, "it has no name"
    schema = found.get("inputSchema")
    if schema is None:
        schema = {}
    if not isinstance(schema, dict):
        return None, "its schema is no object"
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return None, f"its schema describes no object, but {kind!r}"[:200]
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return None, "the properties of its schema are no object"
    needed = {"name": found["name"], "inputSchema": {**schema, "type": "object"}}
    taken = found | needed
    output = taken.get("outputSchema")
    if not isinstance(output, dict) or output.get("type") != "object":
        taken.pop("outputSchema", None)
    try:
        Tool.model_validate(taken, by_name=False)
    except ValidationError:  # something beside what is needed
        description = found.get("description")
        taken = needed | ({"description": description} if isinstance(description, str) else {})
    return taken, ""


def _what_was_read(exc: Exception) -> tuple[Any, str]:
    """(the message as JSON, its text) of a failed validation, as far as they can be had."""
    from pydantic import ValidationError

    if not isinstance(exc, ValidationError):
        return None, ""
    given = exc.errors(include_url=False, include_context=False)[0]["input"]
    for fault in exc.errors(include_url=False, include_context=False):
        if isinstance(fault["input"], dict) and "jsonrpc" in fault["input"]:
            given = fault["input"]
    if isinstance(given, str | bytes):
        text = given if isinstance(given, str) else given.decode("utf-8", "replace")
        try:
            return loads(text), text
        except (ValueError, RecursionError):
            return None, text
    return given, ""


def _number(text: str) -> int | str | None:
    """The id in an answer that is no JSON, which may be cut off or too deep."""
    found = _ANSWER.search(text[:200]) or _ANSWER.search(text[-200:])
    if found is None:
        return None
    number = found[1]
    return number[1:-1] if number.startswith('"') else int(number)


class _Inbox:
    """A stream of incoming messages, each as `Exchange` makes it."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream, self._exchange = stream, exchange

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        return self._exchange.received(await self._stream.receive())

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> Any:
        return self._exchange.received(await self._stream.__anext__())

    async def __aenter__(self) -> _Inbox:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._stream.__aexit__(*exc)


class _Outbox:
    """A stream of outgoing messages, noted by `Exchange`."""

    def __init__(self, stream: Any, exchange: Exchange) -> None:
        self._stream, self._exchange = stream, exchange

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def send(self, item: Any) -> None:
        self._exchange.sent(item.message)
        await self._stream.send(item)

    async def __aenter__(self) -> _Outbox:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._stream.__aexit__(*exc)


@contextlib.asynccontextmanager
async def lenient(transport: Any, exchange: Exchange) -> AsyncIterator[Any]:
    """`transport` with `exchange` between it and the session."""
    async with transport as (incoming, outgoing):
        yield _Inbox(incoming, exchange), _Outbox(outgoing, exchange)

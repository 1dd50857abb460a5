"""What HTTP libraries and SDKs raise, as `ErrorInfo`: tables from class names to neutral kinds.

Classes are known by name, so that no library is imported to understand another one's exception. An SDK wraps what its HTTP client
raised, and the aiohttp backend wraps what aiohttp raised, under names that can mislead (a dropped connection becomes a
ConnectTimeout): the chain of causes is searched, aiohttp's own exceptions first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from rein_nb.dialects.base import Target
from rein_nb.ir import ErrorInfo, InvalidRequest, ReinError
from rein_nb.ir.errors import TimeoutPhase

Stage: TypeAlias = Literal["open", "body"]
"""Whether the answer's headers had arrived when the fault struck: ``body`` when they had."""


class _Row(NamedTuple):
    kind: Literal["connect_timeout", "read_timeout", "broken", "refused", "bad_url", "bad_body", "bad_request"]
    words: str


_AIOHTTP: dict[str, _Row] = {
    "ConnectionTimeoutError": _Row("connect_timeout", "no connection in time"),
    "SocketTimeoutError": _Row("read_timeout", "nothing arrived in time"),
    "ServerTimeoutError": _Row("read_timeout", "nothing arrived in time"),
    "ClientConnectorCertificateError": _Row("refused", "the server's certificate was not accepted"),
    "ClientConnectorSSLError": _Row("refused", "no secure connection"),
    "ClientConnectorError": _Row("broken", "no connection"),
    "ClientPayloadError": _Row("broken", "the connection broke in mid-answer"),
    "ServerDisconnectedError": _Row("broken", "the server closed the connection"),
    "InvalidURL": _Row("bad_url", "the URL is not valid"),
    "ClientError": _Row("broken", "the connection failed"),
}
_HTTPX: dict[str, _Row] = {
    "ConnectTimeout": _Row("connect_timeout", "no connection in time"),
    "PoolTimeout": _Row("connect_timeout", "no free connection in time"),
    "ReadTimeout": _Row("read_timeout", "nothing arrived in time"),
    "WriteTimeout": _Row("read_timeout", "the request could not be sent in time"),
    "TimeoutException": _Row("read_timeout", "nothing arrived in time"),
    "UnsupportedProtocol": _Row("bad_url", "the URL is not valid"),
    "InvalidURL": _Row("bad_url", "the URL is not valid"),
    "LocalProtocolError": _Row("bad_request", "the request is not valid HTTP"),
    "TooManyRedirects": _Row("bad_url", "the server redirects in a circle"),
    "DecodingError": _Row("bad_body", "the answer's compression is broken"),
    "ConnectError": _Row("broken", "no connection"),
    "ReadError": _Row("broken", "the connection broke"),
    "RemoteProtocolError": _Row("broken", "the server broke off"),
    "StreamError": _Row("broken", "the connection broke"),
    "HTTPError": _Row("broken", "the connection failed"),
}
_OTHER: dict[str, _Row] = {
    "SSLCertVerificationError": _Row("refused", "the server's certificate was not accepted"),
    "SSLError": _Row("broken", "the secure connection failed"),
    "EndOfStream": _Row("broken", "the server closed the connection"),
    "BrokenResourceError": _Row("broken", "the connection broke"),
    "ClosedResourceError": _Row("broken", "the connection was closed"),
    "IncompleteReadError": _Row("broken", "the connection broke"),
    "OSError": _Row("broken", "the connection failed"),
    "APITimeoutError": _Row("read_timeout", "nothing arrived in time"),
    "APIConnectionError": _Row("broken", "the connection failed"),
}


def chain(exc: BaseException) -> Iterator[BaseException]:
    """An exception and what caused it, outermost first."""
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def network_fault(exc: BaseException, *, stage: Stage, target: Target) -> ErrorInfo | None:
    """The fault that an exception of the network tells of; None for one that is not of the network."""
    links = list(chain(exc))
    found = _find(links, _AIOHTTP, ("aiohttp",)) or _find(links, _HTTPX, ("httpx2", "httpx", "httpcore2", "httpcore"))
    found = found or _find(links, _OTHER, None)
    if found is None:
        return None
    row, link = found
    if row.kind in ("broken", "connect_timeout") and any(type(x).__name__ == "SSLCertVerificationError" for x in links):
        row = _OTHER["SSLCertVerificationError"]
    detail = next((str(x).strip() for x in reversed(links) if str(x).strip()), type(link).__name__)
    message = f"{row.words} ({detail})" if detail.lower() not in row.words.lower() else row.words
    where: dict[str, Any] = {"provider": target.provider, "model": target.model, "code": type(link).__name__}
    if row.kind == "connect_timeout":
        return ErrorInfo.make("timed_out", message, phase="connect", **where)
    if row.kind == "read_timeout":
        phase: TimeoutPhase = "first_byte" if stage == "open" else "idle"
        return ErrorInfo.make("timed_out", message, phase=phase, **where)
    if row.kind in ("refused", "bad_url", "bad_request"):
        return ErrorInfo.make("connection_failed", message, retryable=False, **where)
    if row.kind == "bad_body" and stage == "body":
        return ErrorInfo.make("stream_cut", message, **where)
    return ErrorInfo.make("connection_failed" if stage == "open" else "stream_cut", message, **where)


def _find(
    links: list[BaseException], table: dict[str, _Row], modules: tuple[str, ...] | None
) -> tuple[_Row, BaseException] | None:
    for link in reversed(links):
        for cls in type(link).__mro__:
            row = table.get(cls.__name__)
            if row is not None and (modules is None or cls.__module__.partition(".")[0] in modules):
                return row, link
    return None


def setup_fault(exc: BaseException, provider: str) -> ReinError | None:
    """What the programmer did wrong, as the SDK says it; None when it is something else.

    SDKs check credentials and arguments when a client is made or a request is built, and raise their own base error, TypeError or
    ValueError for what they do not accept.
    """
    names = {cls.__name__ for cls in type(exc).__mro__}
    if names & {"OpenAIError", "AnthropicError"} or isinstance(exc, TypeError | ValueError):
        return InvalidRequest(f"{provider}: {exc}")
    return None

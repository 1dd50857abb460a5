"""The one thing that moves bytes: an SDK's client, or a plain HTTP client, kept per event loop.

OpenAI's and Anthropic's clients are used for what they know (authentication, URLs, Azure, Bedrock, Vertex) through their generic
``post``, and asked for the raw response: their typed methods transform every parameter of the whole history at each request,
and their typed streams build objects that nobody here looks at. Their own retries are off; the driver retries.

A client belongs to one event loop, since its connections do. It is closed by `Transport.aclose`, or else with its loop: an async
generator that holds it is registered with the loop, and ``asyncio.run`` closes those before it ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import gc
import importlib.util
import json
import logging
import os
import ssl
import threading
import urllib.parse
import urllib.request
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, TypeAlias

from pydantic_core import PydanticSerializationError, to_json

from rein_nb.dialects.base import WireCall
from rein_nb.ir.redaction import REDACTOR
from rein_nb.providers import prices
from rein_nb.providers.config import Config, Timeouts, resolve_base_url
from rein_nb.providers.spec import ProviderSpec

Response: TypeAlias = Any
"""An ``httpx2.Response`` whose body has not been read (or ``httpx.Response``, from a client of the user's own)."""

_NO_KEY = "no-key"
"""What the SDKs, which insist on a key, get for servers that want none. Without it they would take theirs from the environment."""

_CLOSE_S = 1.0
"""How long a connection's orderly end is waited for."""


class StatusError(Exception):
    """An HTTP answer that is not a success; its body has been read.

    Attributes
    ----------
    response
        The answer.
    """

    def __init__(self, response: Response) -> None:
        super().__init__(f"HTTP {response.status_code}")
        self.response = response


class Endpoint:
    """Where to send requests, and with which key. Its repr shows no key."""

    __slots__ = ("_key", "base_url", "headers")

    def __init__(self, base_url: str, key: str | None, headers: Mapping[str, str] | None = None) -> None:
        self.base_url = base_url
        self._key = key
        self.headers = dict(headers or {})

    @property
    def key(self) -> str | None:
        """The key."""
        return self._key

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Endpoint) and (self.base_url, self._key, self.headers) == (
            other.base_url, other._key, other.headers,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.base_url, self._key))


class _Held:
    """A client on one loop, and the endpoint that it was made for."""

    __slots__ = ("client", "endpoint", "keeper")

    def __init__(self, client: Any, endpoint: Endpoint, keeper: AsyncGenerator[None, None]) -> None:
        self.client = client
        self.endpoint = endpoint
        self.keeper = keeper


_open: weakref.WeakSet[Transport] = weakref.WeakSet()


class Transport:
    """Sends wire calls to one endpoint.

    Parameters
    ----------
    config, spec
        Who is at the other end.
    client
        An SDK client of the user's own; used as it is, never closed.

    Raises
    ------
    TypeError
        When `client` is not an asynchronous client of the SDK that this provider is reached through.
    """

    def __init__(self, config: Config, spec: ProviderSpec, client: Any = None) -> None:
        self.config = config
        self.spec = spec
        self._own = client
        if client is not None:
            _check_client(client, spec)
        self._held: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Held] = weakref.WeakKeyDictionary()
        self._making: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[_Held]] = (
            weakref.WeakKeyDictionary()
        )

    def endpoint(self) -> Endpoint:
        """The configured endpoint.

        Raises
        ------
        ValueError
            When no base URL is known; the message says what to set.
        """
        key = self.config.api_key
        headers = {name: value.get_secret_value() for name, value in self.config.headers.items()}
        return Endpoint(
            resolve_base_url(self.config, self.spec),
            key.get_secret_value() if key is not None else None,
            {**self.spec.headers, **headers},
        )

    async def send(self, call: WireCall, endpoint: Endpoint | None = None, *, method: str = "POST") -> Response:
        """Send a call; returns the response once its headers are there, body unread.

        Raises
        ------
        StatusError
            For a status of 300 or more.
        Exception
            What the SDK or the HTTP client raises; see `rein_nb.providers.faults`.
        """
        if self._own is not None:
            return await self._send_by_sdk(self._own, call, method)
        held = await self.ready(endpoint)
        assert held is not None
        if self.spec.sdk is not None:
            return await self._send_by_sdk(held.client, call, method)
        return await self._send_plain(held.client, call, method)

    async def ready(self, endpoint: Endpoint | None = None) -> _Held | None:
        """This loop's client, made if there is none; None when the user brought one."""
        if self._own is not None:
            return None
        held = self._held.get(asyncio.get_running_loop())
        if endpoint is None:
            endpoint = held.endpoint if held is not None else self.endpoint()
        if held is None or (held.endpoint is not endpoint and held.endpoint != endpoint):
            held = await self._make(endpoint)
        return held

    async def _send_by_sdk(self, client: Any, call: WireCall, method: str) -> Response:
        options: dict[str, Any] = {"max_retries": 0}
        if call.headers:
            options["headers"] = call.headers
        if call.query:
            options["params"] = call.query
        path = _relative(call.path, client)
        if method == "POST" and len(options) == 1 and isinstance(client, _Templates):
            await client.being_made(path)
            request = client.filled_in(path, call.body)
            if request is not None:
                return await _sent(client.http, request)
            with client.making(path):
                return await self._post_by_sdk(client, path, call, method, options)
        return await self._post_by_sdk(client, path, call, method, options)

    async def _post_by_sdk(
        self, client: Any, path: str, call: WireCall, method: str, options: dict[str, Any]
    ) -> Response:
        import httpx2

        try:
            if method == "GET":
                return await client.get(path, cast_to=httpx2.Response, options=options, stream=True)
            return await client.post(path, body=call.body, cast_to=httpx2.Response, options=options, stream=True)
        except Exception as exc:
            response = getattr(exc, "response", None)
            if response is None or not hasattr(exc, "status_code"):
                raise
        # Outside of the handler, so that a traceback that shows local variables shows none of the SDK's.
        raise StatusError(response)

    async def _send_plain(self, client: Any, call: WireCall, method: str) -> Response:
        request = client.build_request(
            method,
            _relative(call.path, client),
            json=call.body if method == "POST" else None,
            headers=call.headers or None,
            params=call.query or None,
        )
        return await _sent(client, request)

    def sdk_framing(self) -> Any:
        """The SDK's own decoder of streams, where the user's client speaks something else than server-sent events; else None."""
        make = getattr(self._own, "_make_sse_decoder", None)
        if make is None:
            return None
        decoder = make()
        return None if type(decoder).__name__ in ("SSEDecoder", "SSEBytesDecoder") else decoder

    # -- clients ----------------------------------------------------------------------------------

    async def _make(self, endpoint: Endpoint) -> _Held:
        loop = asyncio.get_running_loop()
        task = self._making.get(loop)
        if task is None or task.done():
            task = self._making[loop] = loop.create_task(self._make_once(endpoint))
        held = await asyncio.shield(task)
        return held if held.endpoint == endpoint else await self._make(endpoint)

    async def _make_once(self, endpoint: Endpoint) -> _Held:
        loop = asyncio.get_running_loop()
        # Importing an SDK takes up to two seconds of CPU, a price list a tenth: in a thread, the loop goes on in the meantime.
        client = await asyncio.to_thread(_make_client, endpoint, self.config, self.spec)
        keeper = _keep(client)
        await keeper.__anext__()
        old = self._held.get(loop)
        held = self._held[loop] = _Held(client, endpoint, keeper)
        _open.add(self)
        if old is not None:
            await old.keeper.aclose()
        return held

    async def aclose(self) -> None:
        """Close the clients: this loop's before it returns, those of other running loops soon after."""
        here = asyncio.get_running_loop()
        for loop, held in list(self._held.items()):
            self._held.pop(loop, None)
            if loop is here:
                await held.keeper.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(held.keeper.aclose(), loop)

    def _close_from_outside(self, timeout_s: float) -> None:
        for loop, held in list(self._held.items()):
            if loop.is_running():
                future = asyncio.run_coroutine_threadsafe(held.keeper.aclose(), loop)
                try:
                    future.result(timeout_s)
                except TimeoutError:
                    future.cancel()

    def __repr__(self) -> str:
        return f"Transport({self.spec.name})"


@atexit.register
def _close_all() -> None:
    for transport in list(_open):
        transport._close_from_outside(0.5)


_clients: dict[int, Any] = {}
"""Clients that are not closed yet, by identity. A collected `Transport` is often part of a cycle: its client must outlive it until it is closed."""


async def _keep(client: Any) -> AsyncGenerator[None, None]:
    """Holds a client until the loop, or `Transport`, closes this generator."""
    _clients[id(client)] = client
    try:
        yield
    finally:
        try:
            close = getattr(client, "close", None) or client.aclose
            await close()
        finally:
            del _clients[id(client)]


async def _sent(http: Any, request: Any) -> Response:
    """Send a built request; the response once its headers are there."""
    response = await http.send(request, stream=True)
    if response.status_code < 300:
        return response
    try:
        await response.aread()
    finally:
        await close_response(response)
    raise StatusError(response)


_closing: set[asyncio.Task[None]] = set()


async def close_response(response: Response, *, whole: bool = False) -> None:
    """Close a response, once, also while this task is being cancelled, and without waiting long for a dead connection.

    Parameters
    ----------
    whole
        Its body was read to the end: the connection goes back to the pool, which nothing has to be waited for.
    """
    if response.is_closed:
        return
    if whole:
        with contextlib.suppress(Exception):  # as in `_closed`
            await response.aclose()
        return
    task = asyncio.get_running_loop().create_task(response.aclose())
    _closing.add(task)
    task.add_done_callback(_closed)
    await asyncio.wait((task,), timeout=_CLOSE_S)


def _closed(task: asyncio.Task[None]) -> None:
    _closing.discard(task)
    if not task.cancelled():
        task.exception()  # a fault while closing adds nothing to the outcome, which is known by now


def _check_client(client: Any, spec: ProviderSpec) -> None:
    names = [cls.__name__ for cls in type(client).__mro__]
    packages = {cls.__module__.partition(".")[0] for cls in type(client).__mro__}
    if spec.sdk is None:
        raise TypeError(f"provider {spec.name!r} is not reached through an SDK, so it takes no client")
    if spec.sdk not in packages:
        raise TypeError(
            f"provider {spec.name!r} needs a client of the {spec.sdk!r} package, not {type(client).__name__}"
        )
    if "AsyncAPIClient" not in names:
        raise TypeError(f"give the asynchronous client (Async{type(client).__name__}), not {type(client).__name__}")


def _relative(path: str, client: Any) -> str:
    """`path` without its version, where the base URL, written for another kind of client, ends with it."""
    base = str(getattr(getattr(client, "base_url", None), "path", "")).rstrip("/")
    version = "/" + path.split("/")[1]
    return path.removeprefix(version) if path.count("/") > 1 and base.endswith(version) else path


# -- making clients: runs in a worker thread ---------------------------------------------------------


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    # Loading the certificates takes 20 ms or more, so it is done once.
    import httpx2

    context: ssl.SSLContext = httpx2.create_ssl_context()
    return context


def _http_timeouts(timeouts: Timeouts) -> Any:
    import httpx2

    # Whoever reads keeps the clocks of first byte and idle. One of the HTTP client's own would be set anew at every read of every stream.
    write = None if timeouts.first_byte_s is None else timeouts.first_byte_s + 1.0
    return httpx2.Timeout(connect=timeouts.connect_s, read=None, write=write, pool=timeouts.connect_s)


def uses_aiohttp(base_url: str) -> bool:
    """Whether the SDKs' aiohttp backend is used for an address: less CPU a chunk, and no SOCKS proxies.

    It is not where ``REIN_NB_TRANSPORT`` is ``default``, where the address is reached through a SOCKS proxy, and where there is no aiohttp.
    """
    if os.environ.get("REIN_NB_TRANSPORT") == "default" or socks_proxy(base_url):
        return False
    return importlib.util.find_spec("aiohttp") is not None


def socks_proxy(base_url: str) -> bool:
    """Whether the environment (``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY``, ``NO_PROXY``, in any case) sends this address through a SOCKS proxy."""
    address = urllib.parse.urlsplit(base_url)
    if not address.hostname or urllib.request.proxy_bypass(address.hostname):
        return False
    proxies = urllib.request.getproxies()
    return (proxies.get(address.scheme) or proxies.get("all") or "").lower().startswith("socks")


def _http_client(sdk: Any, config: Config, base_url: str) -> Any:
    kind = sdk.DefaultAioHttpClient if uses_aiohttp(base_url) else sdk.DefaultAsyncHttpxClient
    try:
        # A key in a header of its own would follow a redirect to another host.
        return kind(timeout=_http_timeouts(config.timeouts), verify=_ssl_context(), follow_redirects=False)
    except ImportError as exc:
        raise ValueError(
            "the environment names a SOCKS proxy, for which a package is missing: pip install socksio"
        ) from exc


_LOGGERS = (
    "anthropic", "anthropic._base_client", "openai", "openai._base_client", "httpx2", "httpcore2", "httpcore2.connection",
    "httpcore2.http11", "httpcore2.http2", "httpcore2.proxy", "httpcore2.socks", "httpx", "httpcore.connection", "httpcore.http11",
    "aiohttp.client",
)  # fmt: skip
"""Who logs requests, responses and their headers when asked to. A logger's filter does not see its children's records."""


class _NoSecrets(logging.Filter):
    """Takes keys out of what HTTP libraries log."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        clean = REDACTOR.text(message)
        if clean != message:
            record.msg, record.args = clean, None
        return True


_no_secrets = _NoSecrets("rein_nb")


def _make_client(endpoint: Endpoint, config: Config, spec: ProviderSpec) -> Any:
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_no_secrets)
    with _import_lock, _without_collections():
        client = _MAKERS[spec.sdk](endpoint, config, spec)
        prices.warm(spec.name, config.model)
    return client


_import_lock = threading.Lock()


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection while a million objects are made that stay: each would look at all of them, and every thread would wait.

    What was made meanwhile joins the oldest generation unseen, for the next full collection to look at.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        gc.enable()


class _Templates:
    """Mixed into an SDK's client class: keeps the request to each path as the SDK built it first, for the next to differ in the body alone.

    Building a request (options, headers and parameters merged, the URL parsed) and looking whether to try again is more than half of
    what an SDK spends on a call, and comes out the same each time. Used for clients made here, whose key and headers do not change and
    whose retries are off; what is out of the ordinary goes through the SDK.
    """

    http: Any

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.http = arguments["http_client"]
        self._made: dict[str, tuple[Any, Any, Any]] = {}
        self._making: dict[str, asyncio.Event] = {}

    async def being_made(self, path: str) -> None:
        """Wait while another call has the first request to `path` built: of many calls that begin at once, one does that work."""
        while (making := self._making.get(path)) is not None:
            await making.wait()

    @contextlib.contextmanager
    def making(self, path: str) -> Iterator[None]:
        """Within, the SDK builds a request to `path`; who waits for it goes on when it is built, or when that failed."""
        self._making[path] = asyncio.Event()
        try:
            yield
        finally:
            self._go_on(path)

    def _go_on(self, path: str) -> None:
        making = self._making.pop(path, None)
        if making is not None:
            making.set()

    def filled_in(self, path: str, body: Any) -> Any:
        """The request to `path` with this body; None while there is none to take as a model."""
        made = self._made.get(path)
        if made is None or not isinstance(body, dict):
            return None
        import httpx2

        url, headers, extensions = made
        content = _as_json(body)
        # Given as a stream, no header is made up anew: all that changes is there.
        request = httpx2.Request(
            "POST", url, headers=headers, stream=httpx2.ByteStream(content), extensions=dict(extensions)
        )
        request.headers["Content-Length"] = str(len(content))
        request.read()
        return request

    def _build_request(self, options: Any, **more: Any) -> Any:
        try:
            request = super()._build_request(options, **more)  # type: ignore[misc]
            self._keep(options, request, more)
        finally:
            self._go_on(options.url)
        return request

    def _keep(self, options: Any, request: Any, more: Mapping[str, Any]) -> None:
        if (
            options.method.lower() == "post"
            and isinstance(options.json_data, dict)
            and not any(more.values())
            and _is_plain(options)
            and getattr(self, "_idempotency_header", "") is None
        ):
            import httpx2

            self._made[options.url] = (request.url, httpx2.Headers(request.headers), request.extensions)


def _as_json(body: Any) -> bytes:
    """A body as JSON in UTF-8. Raises ValueError for a number that JSON does not have, as the SDKs do."""
    try:
        content = to_json(body)
    except PydanticSerializationError:
        content = b""
    if not content or b"NaN" in content or b"Infinity" in content:  # such a number, or a text that speaks of one
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return content


@functools.cache
def _with_templates(client: type[Any]) -> type[Any]:
    """The SDK's client class with `_Templates`."""
    return type("Client", (_Templates, client), {})


def _is_plain(options: Any) -> bool:
    """Whether a call has nothing of its own but its body (an option that was not given is falsy)."""
    return not (
        options.headers or options.params or options.timeout or options.content or options.files or options.extra_json
    )


def _make_openai(endpoint: Endpoint, config: Config, spec: ProviderSpec) -> Any:
    import openai

    headers: dict[str, Any] = dict(endpoint.headers)
    if spec.price_id != "openai":
        # The SDK reads these from the environment; they are OpenAI's business only.
        headers = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit(), **headers}
    keyless = endpoint.key is None and not any(name.lower() == "authorization" for name in headers)
    if keyless:
        headers["Authorization"] = openai.Omit()
    client = _with_templates(openai.AsyncOpenAI)(
        api_key=endpoint.key or _NO_KEY,
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=_http_timeouts(config.timeouts),
        default_headers=headers,
        http_client=_http_client(openai, config, endpoint.base_url),
    )
    if keyless:
        # The SDK looks for the omitted header in the request's own headers alone, and would refuse to send without a key.
        client._validate_headers = _no_check
    return client


def _no_check(*_: Any, **__: Any) -> None:
    """In place of a check that would ask for a key."""


def _make_anthropic(endpoint: Endpoint, config: Config, spec: ProviderSpec) -> Any:
    import anthropic

    return _with_templates(anthropic.AsyncAnthropic)(
        api_key=endpoint.key or _NO_KEY,
        base_url=endpoint.base_url,
        max_retries=0,
        timeout=_http_timeouts(config.timeouts),
        default_headers=endpoint.headers,
        http_client=_http_client(anthropic, config, endpoint.base_url),
    )


def _make_plain(endpoint: Endpoint, config: Config, spec: ProviderSpec) -> Any:
    import httpx2

    headers = dict(endpoint.headers)
    if endpoint.key is not None and spec.auth != "none":
        if spec.auth == "bearer":
            headers.setdefault("Authorization", f"Bearer {endpoint.key}")
        else:
            headers.setdefault(spec.auth, endpoint.key)
    return httpx2.AsyncClient(
        base_url=endpoint.base_url + "/",
        headers=headers,
        timeout=_http_timeouts(config.timeouts),
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=100),
        # A key in a header of its own would follow a redirect to another host.
        follow_redirects=False,
        verify=_ssl_context(),
    )


_MAKERS: Mapping[str | None, Callable[[Endpoint, Config, ProviderSpec], Any]] = {
    "openai": _make_openai,
    "anthropic": _make_anthropic,
    None: _make_plain,
}

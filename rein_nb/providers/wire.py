"""A provider that speaks a known dialect over HTTP: encode, send, read, decode. Everything vendor-specific in it is data."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeAlias

from rein_nb.dialects import side_calls
from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.framing import parse_event
from rein_nb.ir import ErrorInfo, InvalidRequest, ReinError, Request
from rein_nb.ir.base import JSON
from rein_nb.ir.deltas import Delta, Meta, Warn
from rein_nb.ir.redaction import REDACTOR
from rein_nb.providers import reading
from rein_nb.providers.capabilities import capabilities, quirks_for
from rein_nb.providers.codecs import codec_for
from rein_nb.providers.config import Config, require_key, resolve_base_url
from rein_nb.providers.faults import Stage, network_fault, setup_fault
from rein_nb.providers.spec import ProviderSpec, find_spec, require_known
from rein_nb.providers.transport import Endpoint, Response, StatusError, Transport, close_response

OnResponse: TypeAlias = Callable[[int, Mapping[str, str]], None]
"""Told the status and the headers of an answer when they arrive."""

_KEPT_HEADERS = (
    "request-id",
    "x-request-id",
    "apim-request-id",
    "x-amzn-requestid",
    "cf-ray",
    "openai-processing-ms",
    "retry-after",
)
"""Kept with a completion, beside every header that speaks of a rate limit."""


class WireProvider:
    """Answers requests over HTTP.

    Parameters
    ----------
    config
        Who and how.
    client
        An SDK client of your own (``AsyncOpenAI``, ``AsyncAzureOpenAI``, ``AsyncAnthropicBedrock``...): used as it is, and never closed here.

    Raises
    ------
    ValueError
        For an unknown provider, or a key or base URL that is needed and missing; the message says where was looked.
    TypeError
        For a client of the wrong kind.
    """

    def __init__(self, config: Config, client: Any = None) -> None:
        spec = find_spec(config.provider)
        if spec is None:
            require_known(config.provider)
            raise ValueError(f"provider {config.provider!r} has a class of its own")
        self.config = config
        self.spec: ProviderSpec = spec
        self.name = spec.name
        codec_for(spec.dialect)  # imported here rather than in a first call, which others on its loop would wait for
        self._transport = Transport(config, spec, client)
        if client is None and spec.endpoint == "url":
            require_key(config, spec)
            resolve_base_url(config, spec)
        self._targets: dict[str, Target] = {}
        self._checked: tuple[Request, bool, WireCall, Target] | None = None

    def __repr__(self) -> str:
        return f"WireProvider({self.config.name})"

    # -- what the facade and the driver use -------------------------------------------------------

    def target(self, model: str | None = None) -> Target:
        """Who requests are encoded for."""
        name = model or self.config.model
        target = self._targets.get(name)
        if target is None:
            target = self._targets[name] = self._make_target(name)
        return target

    def _make_target(self, name: str) -> Target:
        quirks, known = self.spec.quirks, capabilities(name)
        if self.spec.endpoint == "local":
            from rein_nb.providers.local.quirks import CAPABILITIES, QUIRKS

            quirks, known = QUIRKS, CAPABILITIES
        return Target(
            provider=self.name,
            dialect=self.spec.dialect,
            model=name,
            quirks=quirks_for(quirks, self.spec.dialect, name),
            capabilities=known,
        )

    def check(self, request: Request, *, stream: bool = True) -> None:
        """Raise for what this dialect or model cannot express, before any I/O. `stream` says which form will be asked for.

        Raises
        ------
        UnsupportedOption, InvalidRequest
            Saying what is wrong.
        """
        target = self.target(request.options.model)
        # Kept for the call that follows, so that a long history is encoded once.
        self._checked = (request, stream, codec_for(target.dialect).encode(request, target, stream=stream), target)

    async def prepare(self) -> None:
        """Make ready for a first request: the SDK is imported, the client made, a local model fetched and started.

        Raises
        ------
        ProviderError
            When the local model cannot be had.
        ReinError
            When something is not set up; the message says what.
        """
        target = self.target()
        try:
            await self._transport.ready(await self._endpoint(target))
        except (ReinError, asyncio.CancelledError):
            raise
        except Exception as exc:
            error = self._understood(exc, "open", target)
        else:
            return
        raise error

    async def stream(
        self, request: Request, *, on_response: OnResponse | None = None, tap: reading.Tap | None = None
    ) -> AsyncIterator[list[Delta]]:
        """Answer a request, streamed: one list of deltas a network read; an empty list is a sign of life.

        Parameters
        ----------
        request
            What is asked.
        on_response
            Told the status and headers when they arrive.
        tap
            Told every decoded wire event, for recordings.

        Raises
        ------
        ProviderError
            For what the provider or the network did.
        InvalidRequest, UnsupportedOption
            Before any I/O, for what cannot be expressed.
        """
        call, target = self._encode(request, stream=True)
        codec = codec_for(target.dialect)
        response = await self._open(call, target)
        chunks: Any = None
        deltas: Any = None
        error: Exception | None = None
        try:
            headers = _started(response, on_response)
            yield _opening(call, headers)
            chunks = self._bytes(response)
            deltas = reading.stream_deltas(chunks, codec, target, call, status=response.status_code, tap=tap)
            local = self.spec.endpoint == "local"
            async for batch in deltas:
                yield self.put_right(batch, call, target) if local else batch
        except (ReinError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as exc:
            error = self._understood(exc, "body", target)
        finally:
            if deltas is not None:
                await deltas.aclose()  # left to the garbage collector, it would be closed by a task of its own
            # A generator without a frame has come to its end: the whole body was read.
            await close_response(response, whole=chunks is not None and getattr(chunks, "ag_frame", chunks) is None)
            if chunks is not None:
                await chunks.aclose()
        if error is not None:
            raise error

    async def complete(
        self, request: Request, *, on_response: OnResponse | None = None, tap: reading.Tap | None = None
    ) -> list[Delta]:
        """Answer a request in one piece. Parameters and errors as for `stream`."""
        call, target = self._encode(request, stream=False)
        response = await self._open(call, target)
        headers = _started(response, on_response)
        body = await self._read(response, target)
        deltas = await reading.whole_deltas(
            body, codec_for(target.dialect), target, call, status=response.status_code, tap=tap
        )
        return [*_opening(call, headers), *self.put_right(deltas, call, target)]

    async def models(self) -> list[dict[str, Any]]:
        """What the endpoint offers: one dict a model, with at least ``id``.

        Raises
        ------
        InvalidRequest
            Where the API has no such list.
        ProviderError
            For what the provider or the network did.
        """
        target = self.target()
        call = side_calls.models_call(target.dialect)
        if call is None:
            raise InvalidRequest(f"{self.name} has no list of models")
        out: list[dict[str, Any]] = []
        for _ in range(100):
            answer = await self._exchange(call, target, method="GET")
            out += side_calls.models_list(target.dialect, answer)
            following = side_calls.models_next(target.dialect, answer, call)
            if following is None:
                break
            call = following
        return out

    async def count_tokens(self, request: Request) -> int:
        """The input tokens of a request, counted by the provider.

        Raises
        ------
        InvalidRequest
            Where the API cannot count.
        ProviderError
            For what the provider or the network did.
        """
        call, target = self._encode(request, stream=False)
        counting = side_calls.count_call(target.dialect, call, target)
        if counting is None:
            raise InvalidRequest(f"{self.name} has no token counting")
        answer = await self._exchange(counting, target)
        tokens = side_calls.counted(answer)
        if tokens is None:
            raise reading.malformed("the answer states no number of tokens", str(answer).encode(), target, 200)
        return tokens

    async def aclose(self) -> None:
        """Close connections. Using the provider again opens new ones."""
        await self._transport.aclose()

    # -- inside -----------------------------------------------------------------------------------

    def _encode(self, request: Request, *, stream: bool) -> tuple[WireCall, Target]:
        checked, self._checked = self._checked, None
        if checked is not None and checked[0] is request and checked[1] == stream:
            return checked[2], checked[3]
        target = self.target(request.options.model)
        return codec_for(target.dialect).encode(request, target, stream=stream), target

    async def _open(self, call: WireCall, target: Target, method: str = "POST") -> Response:
        try:
            endpoint = await self._endpoint(target)
            if self.spec.endpoint == "local":
                from rein_nb.providers.local.quirks import adapt_body

                call.body = adapt_body(call.body, target.dialect)
            return await self._transport.send(call, endpoint, method=method)
        except (ReinError, asyncio.CancelledError):
            raise
        except Exception as exc:
            error = self._understood(exc, "open", target)
        raise error

    async def _endpoint(self, target: Target) -> Endpoint | None:
        """Where the embedded model answers; it is fetched and started when need be. None for every configured address."""
        if self.spec.endpoint != "local" or self.config.base_url is not None:
            return None
        from rein_nb.providers import local

        at = await asyncio.to_thread(local.ensure, target.model)
        url = at.root_url if self.spec.sdk == "anthropic" else at.base_url
        return Endpoint(url, at.api_key, at.headers)

    def put_right(self, deltas: list[Delta], call: WireCall, target: Target) -> list[Delta]:
        """A batch of deltas with what this server is known to tell wrongly put right; recordings need it when they are played back."""
        if self.spec.endpoint != "local":
            return deltas
        from rein_nb.providers.local.quirks import adapt_deltas

        return adapt_deltas(deltas, call.body, target.dialect)

    async def _read(self, response: Response, target: Target) -> bytes:
        try:
            body: bytes = await response.aread()
            return body
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            error = self._understood(exc, "body", target)
        finally:
            await close_response(response)
        raise error

    async def _exchange(self, call: WireCall, target: Target, method: str = "POST") -> JSON:
        await self.prepare()  # an import, or a local model's download, is not the server's silence
        limit_s = self.config.timeouts.first_byte_s
        try:
            async with asyncio.timeout(limit_s):
                response = await self._open(call, target, method)
                body = await self._read(response, target)
        except TimeoutError:
            raise ErrorInfo.make(
                "timed_out", f"no answer within {limit_s:g} s",
                phase="first_byte", provider=self.name, model=target.model,
            ).to_exception() from None  # fmt: skip
        answer = parse_event(body)
        if isinstance(answer, str):
            raise reading.malformed("what came is not JSON", body, target, response.status_code)
        return answer

    def _bytes(self, response: Response) -> Any:
        """The body's bytes as they arrive."""
        decoder = self._transport.sdk_framing()
        if decoder is not None:
            return _as_sse(decoder, response)
        if "content-encoding" in response.headers or response.is_stream_consumed:
            return response.aiter_bytes()
        # What there is to decode and to cut to size is nothing, which `aiter_bytes` does with much ado at every read.
        return aiter(response.stream)

    def _understood(self, exc: Exception, stage: Stage, target: Target) -> ReinError | Exception:
        """What to raise for an exception of the SDK or the HTTP client."""
        if isinstance(exc, StatusError):
            return _status_error(exc.response, target).to_exception()
        fault = network_fault(exc, stage=stage, target=target)
        if fault is not None:
            return fault.to_exception()
        return (setup_fault(exc, self.name) if stage == "open" else None) or exc


def _status_error(response: Response, target: Target) -> ErrorInfo:
    body: JSON = None
    try:
        body = parse_event(response.content)
    except Exception as exc:  # the body could not be read: the status still tells
        body = f"(the error's body could not be read: {type(exc).__name__})"
    if 300 <= response.status_code < 400:
        where = response.headers.get("location", "nowhere")
        return ErrorInfo.make(
            "bad_request",
            f"the server redirects to {where}: is the base URL right?",
            status=response.status_code, provider=target.provider, model=target.model, body=body or None,
        )  # fmt: skip
    return codec_for(target.dialect).error(response.status_code, response.headers, body, target)


def _started(response: Response, on_response: OnResponse | None) -> Mapping[str, str]:
    headers: Mapping[str, str] = response.headers
    if on_response is not None:
        on_response(response.status_code, headers)
    return headers


@functools.lru_cache(maxsize=256)
def _kept_name(header: bytes) -> str | None:
    """The name under which a header of an answer is kept; None for one that is not."""
    name = header.decode("latin-1").lower()
    return name if name in _KEPT_HEADERS or "ratelimit" in name or "rate-limit" in name else None


def _opening(call: WireCall, headers: Any) -> list[Delta]:
    """What is known before the answer's first byte: warnings, and the headers worth keeping."""
    kept: dict[str, str] = {}
    for raw, value in headers.raw:  # of which few need be decoded
        name = _kept_name(raw)
        if name is not None:
            text = value.decode("utf-8", "replace")
            kept[name] = f"{kept[name]}, {text}" if name in kept else text
    out: list[Delta] = [Warn(text) for text in call.warnings]
    if kept:
        out.append(Meta(extra={"http": dict(REDACTOR.headers(kept.items()))}))
    return out


async def _as_sse(decoder: Any, response: Response) -> AsyncIterator[bytes]:
    """A stream in an SDK's own framing (Bedrock's binary one), put as server-sent events."""
    async for event in decoder.aiter_bytes(response.aiter_bytes()):
        name = f"event: {event.event}\n" if event.event else ""
        yield f"{name}data: {event.data}\n\n".encode()

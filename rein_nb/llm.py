"""The facade: one object for one model, five ways to call it.

``chat`` and ``achat`` return a `Completion` or raise a typed `ProviderError` that carries the partial one. ``stream`` and
``achat_stream`` give `StreamChunk`, ``astream_events`` gives events; these three never raise for what a provider or network did:
their last item says so. What the programmer did wrong raises at once, before any I/O, from all five.
"""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from rein_nb import aio
from rein_nb.ir import (
    Completion,
    InvalidRequest,
    Message,
    Options,
    OutputFormat,
    Request,
    StreamChunk,
    StreamDone,
    StreamError,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolChoice,
    ToolSpec,
)
from rein_nb.middleware import Call, Handler, Middleware, cache, fallback, wrap
from rein_nb.providers import Config, open_provider
from rein_nb.providers.driver import Provider, RetryPolicy, drive
from rein_nb.providers.interception import intercepted
from rein_nb.stream import CancellationToken

__all__ = ["LLM", "Config", "cache", "fallback", "wrap"]


class LLM:
    """One model at one provider.

    Parameters
    ----------
    config
        Who and how: provider, model, key, limits, defaults.
    client
        An SDK client of your own (``AsyncOpenAI``, ``AsyncAzureOpenAI``, ``AsyncAnthropicBedrock``...), used as it is.
    provider
        An object that answers requests, in place of the configured one: anything with an async generator method ``stream(request)``.
    middleware
        What wraps each call; the first is the outermost, None is left out.
    fallback
        Further models, asked in order when a call fails before it showed anything.

    Raises
    ------
    TypeError
        When `config` is not a `Config`.
    ValueError
        For an unknown provider (the message names the known ones) or a missing key (it says which variable was looked at).

    Examples
    --------
    >>> LLM("openai/gpt-5")
    Traceback (most recent call last):
        ...
    TypeError: LLM expects a Config instance, got str; LLM.named("provider/model") takes a name
    """

    def __init__(
        self,
        config: Config,
        *,
        client: Any = None,
        provider: Provider | None = None,
        middleware: Sequence[Middleware | None] = (),
        fallback: Sequence[LLM] = (),
    ) -> None:
        if not isinstance(config, Config):
            raise TypeError(
                f'LLM expects a Config instance, got {type(config).__name__}; LLM.named("provider/model") takes a name'
            )
        self.config = config
        self._defaults = config.options().model_copy(update={"model": config.model})
        self._provider: Provider = provider if provider is not None else open_provider(config, client=client)
        self._middleware = tuple(middleware)
        self._fallback = tuple(fallback)

    @classmethod
    def named(cls, name: str, *, client: Any = None, **config: Any) -> LLM:
        """An LLM from ``"provider/model"`` and further `Config` fields."""
        return cls(Config.of(name, **config), client=client)

    @property
    def model(self) -> str:
        """The model's name."""
        return self.config.model

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.config.provider

    @property
    def backend(self) -> Provider:
        """The object that answers requests."""
        return self._provider

    def __repr__(self) -> str:
        return f"LLM({self.provider}/{self.model})"

    # -- the five ways ----------------------------------------------------------------------------

    def astream_events(
        self,
        messages: Any,
        *,
        tools: Sequence[Any] | None = None,
        tool_choice: Any = None,
        output_format: Any = None,
        model: str | None = None,
        signal: CancellationToken | None = None,
        **options: Any,
    ) -> AsyncIterator[StreamEvent]:
        """The call as events, in strict order. Never raises for what a provider or network did.

        Parameters
        ----------
        messages
            A string, a `Message`, or a list of strings, messages and dicts.
        tools
            `ToolSpec`, tools made with ``@tool``, or dicts (flat, or OpenAI's nested form).
        tool_choice
            ``"auto"``, ``"none"``, ``"required"``, a tool's name or a `ToolChoice`.
        output_format
            A pydantic type, a JSON Schema, ``"json"`` or an `OutputFormat`.
        model
            Another model of the same provider, for this call.
        signal
            Cancels the call at once.
        options
            `Options` fields; they win over the config's defaults.

        Raises
        ------
        InvalidRequest, UnsupportedOption
            For what is wrong with the call itself, before any I/O.
        """
        call = self._call(messages, tools, tool_choice, output_format, model, signal, options, stream=True)
        return self._handler()(call)

    async def achat(self, messages: Any, **arguments: Any) -> Completion:
        """One answer, not streamed. Arguments as for `astream_events`.

        Raises
        ------
        ProviderError
            A typed error carrying the partial completion.
        InvalidRequest, UnsupportedOption
            Before any I/O.
        """
        call = self._call_from(messages, arguments, stream=False)
        return await self._finish(self._handler()(call))

    def chat(self, messages: Any, **arguments: Any) -> Completion:
        """`achat` for synchronous code; works in a notebook cell too."""
        call = self._call_from(messages, arguments, stream=False)
        return aio.run_sync(self._finish(self._handler()(call)))

    def achat_stream(self, messages: Any, **arguments: Any) -> AsyncIterator[StreamChunk]:
        """The flat stream: text, thinking, tool calls, done. Arguments as for `astream_events`."""
        return chunks(self.astream_events(messages, **arguments))

    def stream(self, messages: Any, **arguments: Any) -> Iterator[StreamChunk]:
        """`achat_stream` for synchronous code; works in a notebook cell too."""
        return aio.iterate_sync(self.achat_stream(messages, **arguments))

    # -- further ----------------------------------------------------------------------------------

    async def amodels(self) -> list[dict[str, Any]]:
        """What the endpoint offers: one dict a model, with at least ``id``."""
        return list(await self._capability("models")())

    def models(self) -> list[dict[str, Any]]:
        """`amodels` for synchronous code."""
        return aio.run_sync(self.amodels())

    async def acount_tokens(self, messages: Any, **arguments: Any) -> int:
        """Input tokens that a call would have, counted by the provider.

        Raises
        ------
        InvalidRequest
            When the provider's API has no token counting.
        """
        call = self._call_from(messages, arguments, stream=False)
        return int(await self._capability("count_tokens")(call.request))

    def count_tokens(self, messages: Any, **arguments: Any) -> int:
        """`acount_tokens` for synchronous code."""
        return aio.run_sync(self.acount_tokens(messages, **arguments))

    async def aclose(self) -> None:
        """Close connections."""
        closer = getattr(self._provider, "aclose", None)
        if closer is not None:
            await closer()

    def with_middleware(self, *middleware: Middleware | None) -> LLM:
        """This LLM with further middleware outside of what it has."""
        return LLM(
            self.config,
            provider=self._provider,
            middleware=(*middleware, *self._middleware),
            fallback=self._fallback,
        )

    def target(self, model: str | None = None) -> Any:
        """Who requests are encoded for (`rein_nb.dialects.base.Target`); None for a provider without a wire."""
        find = getattr(self._provider, "target", None)
        return find(model or self.model) if find is not None else None

    # -- inside -----------------------------------------------------------------------------------

    def _capability(self, name: str) -> Any:
        method = getattr(self._provider, name, None)
        if method is None:
            raise InvalidRequest(f"{self.provider} has no {name.replace('_', ' ')} endpoint")
        return method

    def _call_from(self, messages: Any, arguments: dict[str, Any], *, stream: bool) -> Call:
        take = arguments.pop
        return self._call(
            messages,
            take("tools", None),
            take("tool_choice", None),
            take("output_format", None),
            take("model", None),
            take("signal", None),
            arguments,
            stream=stream,
        )

    def _call(
        self,
        messages: Any,
        tools: Any,
        tool_choice: Any,
        output_format: Any,
        model: str | None,
        signal: CancellationToken | None,
        options: dict[str, Any],
        *,
        stream: bool,
    ) -> Call:
        chosen = model or self.model
        merged = self._defaults.resolve(as_options(options)) if options else self._defaults
        if chosen != self.model:
            merged = merged.model_copy(update={"model": chosen})
        request = Request.make(
            as_messages(messages),
            tools=[as_tool_spec(tool) for tool in tools or ()],
            tool_choice=ToolChoice.of(tool_choice),
            options=merged,
            output_format=OutputFormat.of(output_format),
        )
        check = getattr(self._provider, "check", None)
        if check is not None:
            check(request, stream=stream)
        return Call(request=request, model=chosen, stream=stream, signal=signal)

    def _handler(self) -> Handler:
        others = [(llm.model, llm._handler_for_fallback()) for llm in self._fallback]
        return wrap(self._drive, *self._middleware, fallback(others) if others else None)

    def _handler_for_fallback(self) -> Handler:
        inner = self._handler()

        def run(call: Call) -> AsyncIterator[StreamEvent]:
            options = call.request.options.model_copy(update={"model": self.model})
            request = call.request.model_copy(update={"options": options})
            return inner(Call(request, self.model, call.stream, call.signal, call.state))

        return run

    def _drive(self, call: Call) -> AsyncIterator[StreamEvent]:
        provider = intercepted(self._provider)
        complete = None if call.stream else getattr(provider, "complete", None)

        async def once() -> AsyncIterator[Any]:
            assert complete is not None
            yield await complete(call.request)

        target = self.target(call.model)
        origin = target.origin if target is not None else None
        return drive(
            once if complete is not None else lambda: provider.stream(call.request),
            origin=origin or _plain_origin(provider.name, call.model),
            signal=call.signal,
            retry=self._retry(),
            timeouts=self.config.timeouts,
            finalize=lambda completion: self._price(completion, call.request),
            prepare=getattr(provider, "prepare", None),
        )

    def _retry(self) -> RetryPolicy:
        return RetryPolicy(self.config.max_retries)

    def _price(self, completion: Completion, request: Request) -> Completion:
        usage = completion.usage
        if usage.cost_usd is not None:
            return completion
        from rein_nb.providers.prices import cost_usd, terms_of

        terms = terms_of(usage, completion.extra, request.options.extensions)
        cost = cost_usd(usage, provider=self.provider, model=completion.model or self.model, terms=terms)
        if cost is None and completion.model and completion.model != self.model:
            cost = cost_usd(usage, provider=self.provider, model=self.model, terms=terms)
        if cost is None:
            return completion
        return completion.model_copy(update={"usage": usage.model_copy(update={"cost_usd": cost})})

    @staticmethod
    async def _finish(events: AsyncIterator[StreamEvent]) -> Completion:
        last: StreamEvent | None = None
        async for event in events:  # to its end, so that nothing is left for the loop's finaliser
            last = event
        if isinstance(last, StreamDone):
            return last.completion
        if isinstance(last, StreamError):
            raise last.error.to_exception(last.completion)
        raise RuntimeError("a middleware ended the call without a terminal event")


def _plain_origin(provider: str, model: str) -> Any:
    from rein_nb.ir import Origin

    return Origin(provider=provider, model=model)


def as_messages(value: Any) -> list[Message]:
    """Messages from a string, a message, a dict, or a list of these.

    Raises
    ------
    InvalidRequest
        For anything else; the message says what would be right.
    """
    items = value if type(value) is list else [value] if isinstance(value, str | Message | Mapping) else value
    try:
        items = list(items)
    except TypeError:
        raise InvalidRequest(
            f"messages must be a string, a Message or a list of these, not {type(value).__name__}"
        ) from None
    if all(type(item) is Message for item in items):
        return items  # type: ignore[return-value]
    out: list[Message] = []
    for n, item in enumerate(items):
        if isinstance(item, Message):
            out.append(item)
        elif isinstance(item, str):
            out.append(Message(role="user", content=item))
        elif isinstance(item, Mapping):
            try:
                out.append(Message.model_validate(dict(item)))
            except ValidationError as exc:
                first = exc.errors()[0]
                where = ".".join(map(str, first["loc"]))
                raise InvalidRequest(f"messages[{n}] is not a message: {where}: {first['msg']}") from exc
        else:
            raise InvalidRequest(f"messages[{n}] must be a Message, a dict or a string, not {type(item).__name__}")
    return out


def as_tool_spec(value: Any) -> ToolSpec:
    """A `ToolSpec` from itself, from a tool, or from a dict (flat, or OpenAI's nested form)."""
    if isinstance(value, ToolSpec):
        return value
    spec = getattr(value, "spec", None)
    if callable(spec):
        made = spec()
        if isinstance(made, ToolSpec):
            return made
    if isinstance(value, Mapping):
        data = dict(value)
        if isinstance(data.get("function"), Mapping):
            data = dict(data["function"])
        data.pop("type", None)
        if "input_schema" in data:
            data["parameters"] = data.pop("input_schema")
        try:
            return ToolSpec.model_validate(data)
        except ValidationError as exc:
            first = exc.errors()[0]
            raise InvalidRequest(f"not a tool: {'.'.join(map(str, first['loc']))}: {first['msg']}") from exc
    if callable(value):
        raise InvalidRequest(f"{getattr(value, '__name__', value)!r} is a plain function: decorate it with @tool")
    raise InvalidRequest(f"a tool must be a ToolSpec, a @tool function or a dict, not {type(value).__name__}")


def as_options(values: dict[str, Any]) -> Options:
    """`Options` from keyword arguments.

    Raises
    ------
    InvalidRequest
        For an unknown name (with the nearest known one) or a value out of range.
    """
    known = [*Options.model_fields, "max_tokens"]
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
            raise InvalidRequest(f"unknown option {name!r}{hint} Provider-only settings go into extensions={{...}}.")
    try:
        return Options.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as exc:
        first = exc.errors()[0]
        name = ".".join(map(str, first["loc"])) or "options"
        raise InvalidRequest(f"option {name}: {first['msg'].removeprefix('Value error, ')}") from exc


async def chunks(events: AsyncIterator[StreamEvent]) -> AsyncIterator[StreamChunk]:
    """The flat view of one call's events. The last chunk has type ``done``, also after a failure."""
    async for event in events:
        if isinstance(event, TextDelta):
            yield StreamChunk("text", event.delta)
        elif isinstance(event, ThinkingDelta):
            yield StreamChunk("thinking", event.delta)
        elif isinstance(event, StreamDone | StreamError):
            completion = event.completion
            calls = completion.runnable_tool_calls
            if calls:
                yield StreamChunk("tool_calls", tool_calls=calls)
            yield StreamChunk(
                "done",
                tool_calls=calls or None,
                usage=completion.usage,
                finish_reason=completion.finish_reason,
                completion=completion,
            )

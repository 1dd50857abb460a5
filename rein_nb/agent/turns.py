"""One turn's model call: asked, streamed, and asked again where that is right (overflow, fallback, a malformed attempt)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from rein_nb.agent import hooks
from rein_nb.agent.asking import Stopped, is_closed, stoppable
from rein_nb.agent.context import SUMMARY_PROMPT, Compaction, compact
from rein_nb.agent.events import (
    MessageEnd,
    MessageStart,
    MessageUpdate,
    ModelCallEnd,
    ModelCallStart,
    Notice,
    Retry,
)
from rein_nb.agent.healing import marked_interrupted, with_ids
from rein_nb.agent.output import OutputSpec, has_native_output
from rein_nb.agent.state import RunState
from rein_nb.ir import (
    Completion,
    ErrorInfo,
    Message,
    StreamDone,
    StreamError,
    StreamEvent,
    StreamRetry,
    StreamStart,
    ToolChoice,
)
from rein_nb.llm import LLM

MALFORMED_WORDS = frozenset({"malformed_function_call", "malformed_tool_call", "unexpected_tool_call"})
"""Native finish reasons (in lower case) of a turn in which the provider itself could not read the model's tool call."""

MALFORMED_RETRIES = 2
"""How often such a turn is asked again unchanged: sampling usually gets it right the next time."""

_FRAME = frozenset({StreamStart, StreamRetry, StreamDone, StreamError})
"""The events of a model call that are about the call, and not about its message."""

_MORE = 1.1
"""How much larger a transcript is before a summary is asked for again that no model could make."""

_UNKNOWN_WINDOW_KEEP = 16_000
"""Tokens kept after an overflow of a window whose size nobody told, at most half of what the transcript seems to have."""


async def ask_model(run: RunState) -> Completion:
    """One model call. Never raises for what a provider or the network did.

    Raises
    ------
    InvalidRequest, UnsupportedOption
        What the programmer did wrong.
    Stopped
        When the run was stopped before the model was asked.
    Exception
        Whatever a ``before_request`` hook raised.
    """
    await _keep_within_window(run)
    malformed = 0
    while True:
        request = await _request(run)
        completion, shown = await _stream(run, request)
        run.add_usage(completion.usage)
        error = completion.error
        if _provider_could_not_read(completion) and not completion.tool_calls and not run.token.is_cancelled:
            # The driver may have asked again already.
            malformed += 1 + completion.timing.retries
            if malformed <= MALFORMED_RETRIES and run.stop_reason is None:
                run.emit(
                    Notice(kind="retry", message="the provider could not read the model's tool call; asking again")
                )
                run.other_calls.append(completion)
                _close_message(run, completion, shown)
                continue
            completion = completion.model_copy(
                update={"error": completion.error or _malformed_error(completion), "finish_reason": "error"}
            )
        elif (
            error is not None
            and error.kind == "context_overflow"
            and run.stop_reason is None
            and not run.compacted
            and await _made_room(run, completion, shown)
        ):
            _set_aside(run, completion, shown)
            continue
        elif error is not None and run.stop_reason is None and not completion.message.parts and run.fallbacks:
            _set_aside(run, completion, shown)
            run.llm = run.fallbacks.popleft()
            run.meter.forget()
            name = f"{run.llm.provider}/{run.llm.model}"
            if run.output_spec is not None:
                # This model may have another way to be asked for a form.
                run.output_spec = OutputSpec(
                    run.setup.output_type, native=has_native_output(run.llm), taken=run.tools.names
                )
            run.emit(Notice(kind="fallback", message=f"{error.kind}: {error.message}; going on with {name}"))
            continue
        return _settled(run, completion, shown)


async def _made_room(run: RunState, completion: Completion, shown: bool) -> bool:
    """Whether the transcript is shorter now; what a compaction function raises is raised, when listeners were told how the answer ended."""
    try:
        return await compact_now(run, "the context window overflowed")
    except BaseException:
        _set_aside(run, completion, shown)
        raise


def _provider_could_not_read(completion: Completion) -> bool:
    error = completion.error
    words = (completion.native_finish_reason, error.code if error is not None else None)
    return any(word is not None and word.lower() in MALFORMED_WORDS for word in words)


def _malformed_error(completion: Completion) -> ErrorInfo:
    return ErrorInfo.make(
        "malformed_response",
        f"the provider reported {completion.native_finish_reason} {MALFORMED_RETRIES + 1} times: the model's tool call could not be read",
        code=completion.native_finish_reason,
        provider=completion.provider,
        model=completion.model,
        retryable=True,
    )


def _settled(run: RunState, completion: Completion, shown: bool) -> Completion:
    message = with_ids(completion.message, len(run.messages))
    if completion.error is not None and message.parts:
        message = marked_interrupted(message, completion.finish_reason)
    if message is not completion.message:
        completion = completion.model_copy(update={"message": message})
    if message.parts:
        run.messages.append(message)
        if completion.error is None:
            run.compacted = False  # a later overflow is another one
            run.meter.anchor(completion.usage, len(run.messages))
    _close_message(run, completion, shown)
    return completion


def _set_aside(run: RunState, completion: Completion, shown: bool) -> None:
    """Keep an attempt that is asked again: it was paid for. What listeners saw of it is closed."""
    run.other_calls.append(completion)
    if shown:
        _close_message(run, completion, shown)


def _close_message(run: RunState, completion: Completion, shown: bool) -> None:
    if not run.listening:
        return
    if not shown:
        run.emit(MessageStart(message=completion.message))
    run.emit(MessageEnd(message=completion.message, completion=completion))


async def _request(run: RunState) -> hooks.ModelRequest:
    setup = run.setup
    messages = run.compaction.view(run.messages)
    if run.system_message is not None:
        messages.insert(0, run.system_message)
    # A hook may change the list; the toolset's own is for everybody.
    tools = list(run.tools.specs()) if setup.before_request else run.tools.specs()
    choice = setup.tool_choice
    output_format = None
    spec = run.output_spec
    if spec is not None and not spec.native and spec.tool_name in run.tools:
        # A tool of that name came while the run was going.
        spec = run.output_spec = OutputSpec(setup.output_type, native=False, taken=run.tools.names)
    if spec is not None:
        if spec.native:
            output_format = spec.format
        else:
            tools = [*tools, spec.tool]
            if run.force_answer and not setup.options.get("reasoning_effort"):
                # Thinking models refuse a forced tool; they are asked in words alone.
                choice = ToolChoice(mode="required")
    made = ToolChoice.of(choice) if run.turn > 1 else None
    # A forced first call is wanted once; forced at every turn the run could never end. The answer tool, if there is one, is a call too.
    if made is not None and (made.mode == "named" or (made.mode == "required" and (spec is None or spec.native))):
        choice = ToolChoice(mode="auto", parallel=made.parallel)
    if not tools:
        choice = None
    request = hooks.ModelRequest(
        messages=messages,
        tools=tools,
        tool_choice=choice,
        output_format=output_format,
        options=setup.options,
        turn=run.turn,
    )
    if setup.before_request:
        request.options = dict(request.options)
        request = await stoppable(run, lambda: hooks.before_request(setup.before_request, request, run.hook_copies))
    return request


async def _stream(run: RunState, request: hooks.ModelRequest) -> tuple[Completion, bool]:
    """(the completion, whether `MessageStart` was emitted)."""
    if run.listening:
        run.emit(
            ModelCallStart(
                model=run.llm.model, provider=run.llm.provider, messages=request.messages, options=request.options
            )
        )
    shown = False
    completion: Completion | None = None
    last: StreamEvent | None = None
    try:
        events: AsyncIterator[StreamEvent] = run.llm.astream_events(
            request.messages,
            tools=request.tools or None,
            tool_choice=request.tool_choice,
            output_format=request.output_format,
            signal=run.token,
            **request.options,
        )
        # Read to the very end: a generator that is left before it would be closed by a task of its own.
        async for event in events:
            last = event
            if type(event) in _FRAME:
                if isinstance(event, StreamDone | StreamError):
                    completion = event.completion
                elif isinstance(event, StreamStart):
                    run.clock.follow(event._source)
                elif run.listening:
                    run.emit(Retry(attempt=event.attempt, wait_s=event.wait_s, error=event.error))  # type: ignore[union-attr]
                continue
            if not run.listening:
                continue
            if not shown:
                # Still empty: what comes is told by the updates, once.
                run.emit(MessageStart(message=event._source.message_at(0, 0)))
                shown = True
            run.emit(MessageUpdate(event=event))
    except BaseException as exc:
        if is_closed(exc, run.task):
            raise
        # A provider of the user's own, or a middleware, has a bug, or the task was cancelled. What was said is kept.
        run.end_with(exc)
        completion = _broken_off(run, last)
    if completion is None:
        run.end_with(RuntimeError("the model call ended without a terminal event"))
        completion = _broken_off(run, last)
    run.clock.settle(completion.timing.total_s)
    if run.listening:
        run.emit(ModelCallEnd(completion=completion))
    return completion, shown


def _broken_off(run: RunState, last: StreamEvent | None) -> Completion:
    """The completion of a call that ended in an exception, as far as it got."""
    said = getattr(last, "partial", None)
    return Completion(
        message=said if isinstance(said, Message) else Message(role="assistant", parts=[]),
        finish_reason="cancelled" if run.error is None else "error",
        error=run.error or ErrorInfo.make("cancelled", run.token.reason or "cancelled"),
        model=run.llm.model,
        provider=run.llm.provider,
    )


# -- the context window ----------------------------------------------------------------------------


def window(run: RunState) -> int | None:
    """Input tokens that a request may have; None when nobody knows."""
    policy = run.setup.context
    if policy.max_tokens is not None:
        return policy.max_tokens
    target = run.llm.target()
    return target.capabilities.context_window if target is not None else None


async def _keep_within_window(run: RunState) -> None:
    limit = window(run)
    if limit is None:
        return
    used = run.meter.tokens(run.messages, run.compaction)
    # A summary that no model could make is not paid for again at every turn.
    if used > max(limit * run.setup.context.fill, run.no_summary_of * _MORE):
        await compact_now(run, "the context window is nearly full", needed=False)


async def compact_now(run: RunState, why: str, *, needed: bool = True) -> bool:
    """Leave out the older part of the transcript from now on; False when it is left as it is.

    Parameters
    ----------
    why
        For the notice.
    needed
        Whether nothing can be sent without it. Then a summary that no model can make is done without; else the whole transcript is sent
        for as long as it fits.
    """
    policy = run.setup.context
    limit = window(run)
    used = run.meter.tokens(run.messages, run.compaction)
    keep = int(limit * policy.keep) if limit is not None else min(_UNKNOWN_WINDOW_KEEP, used // 2)

    async def compacted() -> Compaction | None:
        return await compact(run.messages, run.compaction, policy, keep, lambda older: _summary(run, older, needed))

    try:
        # The model calls of a summary look at the token themselves, and their ends are not to be lost.
        done = await (stoppable(run, compacted) if callable(policy.strategy) else compacted())
    except (Stopped, NoSummary):
        return False
    if done is None or run.token.is_cancelled:  # a stop changes nothing: no request needed the cut
        return False
    if needed:
        run.compacted = True
    left_out = done.upto - run.compaction.upto
    run.compaction = done
    run.meter.forget()
    run.emit(Notice(kind="compaction", message=f"{why}: {left_out} older messages are no longer sent"))
    return True


async def _summary(run: RunState, older: list[Message], needed: bool) -> str | None:
    """What a model says the older messages come to: the run's own, or the first of its fallbacks that can. None when none can and it must do.

    Raises
    ------
    NoSummary
        When none can, and the older messages may as well stay.
    """
    why = "no answer"
    for llm in (run.llm, *run.fallbacks):
        try:
            completion = await _summary_by(llm, run, older)
            error = completion.error if completion is not None else None
        except Exception as exc:  # an option that this model does not know, a bug of a provider's
            completion, error = None, ErrorInfo.of(exc)
        if run.token.is_cancelled:
            raise NoSummary
        if completion is not None and error is None and completion.text:
            return completion.text
        if error is not None:
            why = f"{error.kind}: {error.message}"
    then = "the older messages are left out without one" if needed else "the older messages are still sent"
    run.emit(Notice(kind="warning", message=f"no summary could be made ({why}); {then}"))
    if not needed:
        run.no_summary_of = run.meter.tokens(run.messages, run.compaction)
        raise NoSummary
    return None


async def _summary_by(llm: LLM, run: RunState, older: list[Message]) -> Completion | None:
    messages = [*older, Message(role="user", content=SUMMARY_PROMPT)]
    options = run.setup.options
    run.emit(
        ModelCallStart(model=llm.model, provider=llm.provider, purpose="summary", messages=messages, options=options)
    )
    completion: Completion | None = None
    try:
        async for event in llm.astream_events(messages, signal=run.token, **options):
            if isinstance(event, StreamDone | StreamError):
                completion = event.completion
    finally:
        if completion is not None:
            run.add_usage(completion.usage)
            run.other_calls.append(completion)
            run.clock.settle(completion.timing.total_s)
        run.emit(ModelCallEnd(purpose="summary", completion=completion))
    return completion


class NoSummary(Exception):
    """No model could make one, or the run was stopped."""

"""OpenTelemetry spans of an agent's runs, by the GenAI semantic conventions; the extra ``rein-nb[otel]``.

A listener like any other: ``invoke_agent`` spans a run, ``chat`` each model call, ``execute_tool`` each tool call. While one is open it is the
current span, so what a tool or the HTTP client records falls below it. Names of attributes are from the conventions (status: development;
https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai); ``rein_nb.*`` are our own. No content is recorded unless asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rein_nb.agent.events import (
    AgentEnd,
    AgentEvent,
    AgentStart,
    MessageEnd,
    MessageStart,
    Notice,
    Retry,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from rein_nb.agent.telemetry_calls import Open, OpenCall, ended_at, overflowed, told_apart
from rein_nb.agent.telemetry_content import json_text, message_json, system_json
from rein_nb.ir import Completion, ErrorInfo, Message, ToolCall, Usage, redact
from rein_nb.ir.base import clean_text

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

    from rein_nb.agent.agent import Agent

SCOPE = "rein_nb"

# The conventions' well-known values, where they differ from our names.
_PROVIDERS = {
    "openai-chat": "openai", "google": "gcp.gemini", "antigravity": "gcp.gen_ai", "mistral": "mistral_ai", "xai": "x_ai",
    "azure": "azure.ai.openai", "bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai", "moonshot": "moonshot_ai",
}  # fmt: skip

_OPTIONS = {
    "temperature": "gen_ai.request.temperature", "top_p": "gen_ai.request.top_p", "top_k": "gen_ai.request.top_k",
    "max_output_tokens": "gen_ai.request.max_tokens", "seed": "gen_ai.request.seed", "stop": "gen_ai.request.stop_sequences",
    "frequency_penalty": "gen_ai.request.frequency_penalty", "presence_penalty": "gen_ai.request.presence_penalty",
}  # fmt: skip

_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens", "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens", "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}  # fmt: skip


def instrument(
    agent: Agent, tracer_provider: TracerProvider | None = None, content: bool = False
) -> Callable[[], None]:
    """Record every later run of an agent (and of its forks) as spans.

    Parameters
    ----------
    agent
        The agent.
    tracer_provider
        Where spans go; OpenTelemetry's global one by default.
    content
        Record the system prompt, messages, tool arguments and results too, with secrets masked. They may be large and private.

    Returns
    -------
    Callable
        Ends the recording; runs that are going on are recorded to their end.

    Raises
    ------
    ImportError
        When OpenTelemetry is not installed, saying how to install it.
    """
    listener = SpanListener(agent, tracer_provider, content)
    agent.add_listener(listener)
    return lambda: agent.remove_listener(listener)


@dataclass(slots=True)
class _Run:
    """What is open in one run."""

    agent: Open
    provider: str
    model: str
    system: str | None
    messages: list[Message] = field(default_factory=list)
    chat: OpenCall | None = None
    calls: list[OpenCall] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    again: bool = False
    tools: dict[int, Open] = field(default_factory=dict)
    finish_reasons: list[str] = field(default_factory=list)


class SpanListener:
    """Turns the events of any number of runs at the same time into spans; see `instrument`."""

    def __init__(self, agent: Agent, tracer_provider: TracerProvider | None = None, content: bool = False) -> None:
        try:
            from opentelemetry import context, trace
        except ImportError as missing:
            raise ImportError("telemetry needs OpenTelemetry: pip install 'rein-nb[otel]'") from missing
        self._context = context
        self._trace = trace
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._agent = agent
        self._content = content
        self._runs: dict[str, _Run] = {}

    def __call__(self, event: AgentEvent) -> None:
        """Take one event, in the task that emits it."""
        if isinstance(event, AgentStart):
            self._start_run(event)
            return
        run = self._runs.get(event.run_id)
        if run is None:
            return
        if isinstance(event, TurnStart):
            run.model = event.model
            run.again = False
            run.told.clear()
            run.calls.clear()
            self._start_chat(run, event.time)
        elif isinstance(event, MessageStart) and event.message.role == "assistant":
            # A call that is made again within a turn begins without a `TurnStart`.
            if run.chat is None:
                self._start_chat(run, event.time)
            if run.chat is not None:
                run.chat.answering = True
        elif isinstance(event, MessageEnd):
            self._end_message(run, event)
        elif isinstance(event, Retry) and run.chat is not None:
            kind = event.error.kind if event.error is not None else "_OTHER"
            run.chat.span.add_event(
                "rein_nb.retry", {"attempt": event.attempt, "wait_s": event.wait_s, "error.type": kind}
            )
        elif isinstance(event, Notice):
            self._notice(run, event)
        elif isinstance(event, ToolExecutionStart):
            self._start_tool(run, event)
        elif isinstance(event, ToolExecutionEnd):
            self._end_tool(run, event)
        elif isinstance(event, TurnEnd):
            self._end_turn(run, event)
        elif isinstance(event, AgentEnd):
            self._end_run(run, event)

    # -- opening and closing ----------------------------------------------------------------------

    def _open(self, name: str, kind: str, attributes: Mapping[str, Any], at: float) -> Open:
        span = self._tracer.start_span(
            name, kind=self._trace.SpanKind[kind], attributes=dict(attributes), start_time=_ns(at)
        )
        return Open(span, self._context.attach(self._trace.set_span_in_context(span)))

    def _close(self, opened: Open, at: float, error: str | None = None, message: str | None = None) -> None:
        self._end(opened.span, at, error, message)
        self._leave(opened)

    def _end(self, span: Span, at: float, error: str | None = None, message: str | None = None) -> None:
        if error is not None:
            span.set_attribute("error.type", error)
            span.set_status(self._trace.StatusCode.ERROR, str(redact(message or error)))
        span.end(_ns(at))

    def _leave(self, opened: Open) -> None:
        """The span is current no more."""
        try:
            opened.token.var.reset(opened.token)
        except ValueError:  # ended in another task than it began in: that task's context ended with it
            return

    # -- a run ------------------------------------------------------------------------------------

    def _start_run(self, event: AgentStart) -> None:
        label = self._agent._setup.label
        provider = _PROVIDERS.get(event.provider, event.provider)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.provider.name": provider, "gen_ai.request.model": event.model,
            "rein_nb.run_id": event.run_id,
        }  # fmt: skip
        if label:
            attributes["gen_ai.agent.name"] = label
        opened = self._open(f"invoke_agent {label}".strip(), "INTERNAL", attributes, event.time)
        run = _Run(opened, provider, event.model, event.system, list(event.messages))
        self._runs[event.run_id] = run
        if self._content:
            self._set_system(opened.span, run)
            opened.span.set_attribute("gen_ai.input.messages", json_text([message_json(m) for m in event.messages]))

    def _end_run(self, run: _Run, event: AgentEnd) -> None:
        del self._runs[event.run_id]
        for call in run.calls:
            if call.ended is not None and not call.told:
                self._end(call.span, event.time, "cancelled", "the run ended first")
        for opened in [*run.tools.values(), *([run.chat] if run.chat is not None else [])]:
            self._close(opened, event.time, "cancelled", "the run ended first")
        result = event.result
        span = run.agent.span
        _set_usage(span, result.usage)
        span.set_attribute("rein_nb.stop_reason", result.stop_reason)
        span.set_attribute("rein_nb.turns", len(result.turns))
        if run.finish_reasons:
            span.set_attribute("gen_ai.response.finish_reasons", run.finish_reasons[-1:])
        if self._content and result.text:
            last = next(m for m in reversed(result.new_messages) if m.role == "assistant")
            reason = run.finish_reasons[-1] if run.finish_reasons else None
            span.set_attribute("gen_ai.output.messages", json_text([message_json(last, reason)]))
        error: ErrorInfo | None = result.error
        if error is not None:
            self._close(run.agent, event.time, error.kind, error.message)
        elif result.stop_reason == "completed":
            self._close(run.agent, event.time)
        else:
            self._close(run.agent, event.time, result.stop_reason)

    def _notice(self, run: _Run, event: Notice) -> None:
        run.again = event.kind == "retry"
        if event.kind in ("fallback", "compaction"):
            self._set_aside(run, event)
            self._start_chat(run, event.time)
        run.agent.span.add_event(f"rein_nb.{event.kind}", {"message": str(redact(event.message))})

    # -- a model call -----------------------------------------------------------------------------

    def _start_chat(self, run: _Run, at: float) -> None:
        options = self._agent._setup.options
        attributes = _of_a_call(run.provider, run.model)
        for name, attribute in _OPTIONS.items():
            value = options.get(name)
            if value is not None:
                attributes[attribute] = [value] if name == "stop" and isinstance(value, str) else value
        opened = self._open(f"chat {run.model}", "CLIENT", attributes, at)
        run.chat = OpenCall(opened.span, opened.token, at, run.model, list(run.messages))
        run.calls.append(run.chat)

    def _set_aside(self, run: _Run, event: Notice) -> None:
        """What was asked is asked again, of another model or shortened: its span waits for what became of it."""
        if run.chat is not None:
            run.chat.ended = event.time
            run.chat.compaction = event.kind == "compaction"
            self._leave(run.chat)
            run.chat = None
        if event.kind == "fallback":
            # The event has it in words alone; a run's own fallback models and a fork's are not the agent's.
            provider, _, model = event.message.rpartition("; going on with ")[2].partition("/")
            if model:
                run.provider, run.model = _PROVIDERS.get(provider, provider), model

    def _end_message(self, run: _Run, event: MessageEnd) -> None:
        completion = event.completion
        if completion is None:
            run.messages.append(event.message)
            return
        run.told.add(id(completion))
        run.finish_reasons.append(completion.finish_reason)
        before = run.calls[-2] if len(run.calls) > 1 else None
        if run.chat is not None and not run.chat.answering and before is not None and before.compaction:
            # The answer that had begun before it was found to overflow; the next request is going on.
            self._end_chat(run, before, completion, ended_at(completion, event.time))
            return
        if run.chat is None:
            self._start_chat(run, event.time)
        opened, run.chat = run.chat, None
        assert opened is not None
        if event.message.parts:
            run.messages.append(event.message)
        self._leave(opened)
        self._end_chat(run, opened, completion, event.time)
        if run.again:
            run.again = False
            self._start_chat(run, event.time)

    def _end_turn(self, run: _Run, event: TurnEnd) -> None:
        """Tell of the calls that no event told of, and end what is open still."""
        rest = [completion for completion in event.other_calls if id(completion) not in run.told]
        for call, own, completion in told_apart(run.calls, rest):
            opened = call if own else self._afterwards(run, call, completion)
            if not own or (call.compaction and not overflowed(completion)):
                # The summary of an older part; what was sent for it, no event tells.
                opened.span.set_attribute("rein_nb.purpose", "compaction")
                opened.messages = []
            self._end_chat(run, opened, completion, ended_at(completion, call.ended or event.time))
        if run.chat is not None:
            opened, run.chat = run.chat, None
            self._leave(opened)
            self._end_chat(run, opened, event.completion, event.time)
        # One that was told nothing was open while the transcript was shortened, and nobody was asked.
        run.calls.clear()

    def _afterwards(self, run: _Run, during: OpenCall, completion: Completion) -> OpenCall:
        """A span of a call that is over."""
        started = completion.timing.started_at
        at = during.begun if started is None else started
        span = self._tracer.start_span(
            f"chat {during.model}",
            context=self._trace.set_span_in_context(run.agent.span),
            kind=self._trace.SpanKind.CLIENT,
            attributes=_of_a_call(run.provider, during.model),
            start_time=_ns(at),
        )
        return OpenCall(span, during.token, at, during.model)

    def _end_chat(self, run: _Run, call: OpenCall, completion: Completion, at: float) -> None:
        """End the span of a call with what came of it."""
        call.told = True
        if self._content and call.messages:
            self._set_system(call.span, run)
            call.span.set_attribute("gen_ai.input.messages", json_text([message_json(m) for m in call.messages]))
        self._set_response(call.span, run, completion)
        error = completion.error
        self._end(call.span, at, error.kind if error else None, error.message if error else None)

    def _set_response(self, span: Span, run: _Run, completion: Completion) -> None:
        span.set_attribute("gen_ai.response.finish_reasons", [completion.finish_reason])
        if completion.provider:
            span.set_attribute("gen_ai.provider.name", _PROVIDERS.get(completion.provider, completion.provider))
        if completion.model and (completion.error is None or completion.message.parts or completion.response_id):
            span.set_attribute("gen_ai.response.model", completion.model)
        if completion.response_id:
            span.set_attribute("gen_ai.response.id", completion.response_id)
        if completion.timing.first_token_s is not None:
            span.set_attribute("gen_ai.response.time_to_first_chunk", completion.timing.first_token_s)
        if completion.timing.retries:
            span.set_attribute("rein_nb.retries", completion.timing.retries)
        _set_usage(span, completion.usage)
        if self._content:
            output = [message_json(completion.message, completion.finish_reason)]
            span.set_attribute("gen_ai.output.messages", json_text(output))

    # -- a tool call ------------------------------------------------------------------------------

    def _start_tool(self, run: _Run, event: ToolExecutionStart) -> None:
        call = event.call
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }  # fmt: skip
        tool = self._agent.tools.get(call.name)
        if tool is not None and tool.description:
            attributes["gen_ai.tool.description"] = str(redact(tool.description))
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = json_text(call.arguments)
        run.tools[id(call)] = self._open(f"execute_tool {call.name}", "INTERNAL", attributes, event.time)

    def _end_tool(self, run: _Run, event: ToolExecutionEnd) -> None:
        opened = run.tools.pop(id(event.call), None)
        result = event.result
        if opened is None:
            self._never_ran(run, event.call, result.status)
            return
        if self._content:
            opened.span.set_attribute("gen_ai.tool.call.result", clean_text(str(redact(result.text))))
        error: str | None = None
        if result.is_error:
            error = result.status
            if isinstance(result.details, dict) and isinstance(result.details.get("error"), str):
                error = result.details["error"]
        # What a tool says when it fails is content too.
        self._close(opened, event.time, error, result.text if self._content else None)

    def _never_ran(self, run: _Run, call: ToolCall, status: str) -> None:
        run.agent.span.add_event(
            "rein_nb.tool_not_executed",
            {"gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id, "rein_nb.status": status},
        )

    def _set_system(self, span: Span, run: _Run) -> None:
        if run.system:
            span.set_attribute("gen_ai.system_instructions", json_text(system_json(run.system)))


def _of_a_call(provider: str, model: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model,
        "gen_ai.request.stream": True,
    }  # fmt: skip


def _set_usage(span: Span, usage: Usage) -> None:
    """Only what was reported: an unknown count is no 0."""
    for name, attribute in _USAGE.items():
        count = getattr(usage, name)
        if count is not None:
            span.set_attribute(attribute, count)
    if usage.cost_usd is not None:
        span.set_attribute("rein_nb.usage.cost_usd", usage.cost_usd)


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)

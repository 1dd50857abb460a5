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
    ModelCallEnd,
    ModelCallStart,
    Notice,
    Retry,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from rein_nb.agent.telemetry_content import json_text, message_json, system_json
from rein_nb.ir import Completion, ErrorInfo, ToolCall, Usage, redact
from rein_nb.ir.base import clean_text

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
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
class _Open:
    """A span that is open and current."""

    span: Span
    token: Token[Context]


@dataclass(slots=True)
class _Run:
    """What is open in one run."""

    agent: _Open
    system: str | None
    chat: _Open | None = None
    tools: dict[int, _Open] = field(default_factory=dict)
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
        if isinstance(event, ModelCallStart):
            self._start_chat(run, event)
        elif isinstance(event, ModelCallEnd):
            self._end_chat(run, event)
        elif isinstance(event, Retry) and run.chat is not None:
            kind = event.error.kind if event.error is not None else "_OTHER"
            run.chat.span.add_event(
                "rein_nb.retry", {"attempt": event.attempt, "wait_s": event.wait_s, "error.type": kind}
            )
        elif isinstance(event, Notice):
            run.agent.span.add_event(f"rein_nb.{event.kind}", {"message": str(redact(event.message))})
        elif isinstance(event, ToolExecutionStart):
            self._start_tool(run, event)
        elif isinstance(event, ToolExecutionEnd):
            self._end_tool(run, event)
        elif isinstance(event, AgentEnd):
            self._end_run(run, event)

    # -- opening and closing ----------------------------------------------------------------------

    def _open(self, name: str, kind: str, attributes: Mapping[str, Any], at: float) -> _Open:
        span = self._tracer.start_span(
            name, kind=self._trace.SpanKind[kind], attributes=dict(attributes), start_time=_ns(at)
        )
        return _Open(span, self._context.attach(self._trace.set_span_in_context(span)))

    def _close(self, opened: _Open, at: float, error: str | None = None, message: str | None = None) -> None:
        if error is not None:
            opened.span.set_attribute("error.type", error)
            opened.span.set_status(self._trace.StatusCode.ERROR, str(redact(message or error)))
        opened.span.end(_ns(at))
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
        run = _Run(opened, event.system)
        self._runs[event.run_id] = run
        if self._content:
            self._set_system(opened.span, run)
            opened.span.set_attribute("gen_ai.input.messages", json_text([message_json(m) for m in event.messages]))

    def _end_run(self, run: _Run, event: AgentEnd) -> None:
        del self._runs[event.run_id]
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

    # -- a model call -----------------------------------------------------------------------------

    def _start_chat(self, run: _Run, event: ModelCallStart) -> None:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat", "gen_ai.provider.name": _PROVIDERS.get(event.provider, event.provider),
            "gen_ai.request.model": event.model, "gen_ai.request.stream": True,
        }  # fmt: skip
        if event.purpose != "answer":
            attributes["rein_nb.purpose"] = event.purpose
        for name, attribute in _OPTIONS.items():
            value = event.options.get(name)
            if value is not None:
                attributes[attribute] = [value] if name == "stop" and isinstance(value, str) else value
        run.chat = self._open(f"chat {event.model}", "CLIENT", attributes, event.time)
        if self._content:
            self._set_system(run.chat.span, run)
            sent = [message_json(m) for m in event.messages if m.role != "system"]
            run.chat.span.set_attribute("gen_ai.input.messages", json_text(sent))

    def _end_chat(self, run: _Run, event: ModelCallEnd) -> None:
        opened, run.chat = run.chat, None
        if opened is None:  # the recording began after it did
            return
        completion = event.completion
        if completion is None:
            self._close(opened, event.time, "_OTHER", "it ended in an exception")
            return
        if event.purpose == "answer":
            run.finish_reasons.append(completion.finish_reason)
        self._set_response(opened.span, run, completion)
        error = completion.error
        self._close(opened, event.time, error.kind if error else None, error.message if error else None)

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

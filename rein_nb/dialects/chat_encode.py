"""Requests to the Chat Completions family, as wire bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rein_nb.dialects.base import Target, WireCall, not_told
from rein_nb.dialects.chat_history import ChatMessages, own_extra
from rein_nb.dialects.handoff import handoff
from rein_nb.dialects.schema import for_openai
from rein_nb.ir import (
    InvalidRequest,
    Options,
    OutputFormat,
    Request,
    ToolChoice,
    ToolSpec,
    UnsupportedOption,
)
from rein_nb.ir.base import JSON, clean_json

PLAIN_OPTIONS = ("temperature", "top_p", "stop", "frequency_penalty", "presence_penalty")
"""Options that go by the same name on the wire."""


def encode_chat(request: Request, target: Target, *, stream: bool) -> WireCall:
    """The wire request. See `Codec.encode`."""
    quirks = target.quirks
    handed = handoff(request.messages, target)
    warnings: dict[str, None] = dict.fromkeys(handed.warnings)
    body: dict[str, Any] = {**quirks.default_body, "model": target.model}
    _tools(request, target, body, warnings)
    _options(request.options, target, body)
    _output_format(request.output_format, target, body, warnings)
    if stream:
        body["stream"] = True
        if quirks.stream_usage:
            body["stream_options"] = {"include_usage": True}
    for namespace in dict.fromkeys((target.dialect, target.provider)):
        merge_body(body, request.options.extensions.get(namespace, {}))
    # The history is clean of unpaired surrogates since the hand-off; walking it once more would cost the most in long loops.
    history = ChatMessages(handed, target)
    messages = history.encode()
    warnings.update(history.warnings)
    if not messages:
        raise InvalidRequest("nothing is left to send: every message is empty, or belongs to another provider alone")
    body = {"model": target.model, "messages": messages, **clean_json(body)}
    return WireCall(
        path=quirks.path or "/chat/completions", body=body, warnings=list(warnings), tool_names=handed.tool_names
    )


def merge_body(body: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Lay a caller's own wire fields over the body: objects are merged, None takes a field out, everything else replaces."""
    for name, value in more.items():
        known = body.get(name)
        if value is None:
            body.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(known, Mapping):
            inner = dict(known)
            merge_body(inner, value)
            body[name] = inner
        else:
            body[name] = value


# -- options ----------------------------------------------------------------------------------------


def check_options(options: Options, target: Target) -> None:
    """Raise `UnsupportedOption` for what the model is known to refuse."""
    refused = target.capabilities.unsupported_options
    for name in options.given():
        if name in refused:
            raise UnsupportedOption(name, f"{target.provider}/{target.model}")
    efforts = target.capabilities.reasoning_efforts
    effort = options.reasoning_effort
    if effort is not None and efforts is not None and effort not in efforts:
        known = f"it takes {', '.join(efforts)}" if efforts else "it has no thinking levels"
        raise UnsupportedOption("reasoning_effort", f"{target.provider}/{target.model}", f"{effort!r} given; {known}")


def _options(options: Options, target: Target, body: dict[str, Any]) -> None:
    check_options(options, target)
    quirks = target.quirks
    for name in PLAIN_OPTIONS:
        value = getattr(options, name)
        if value is not None:
            body[name] = value
    if options.max_output_tokens is not None:
        body[quirks.max_tokens_field] = options.max_output_tokens
    if options.logprobs is not None:
        body["logprobs"] = True
        if options.logprobs:
            body["top_logprobs"] = options.logprobs
    for name, field, value in (
        ("top_k", quirks.top_k_field, options.top_k),
        ("seed", quirks.seed_field, options.seed),
        ("reasoning_effort", quirks.effort_field, options.reasoning_effort),
    ):
        if value is None:
            continue
        if field is None:
            where = f"{target.dialect} at {target.provider}"
            raise UnsupportedOption(name, where, "its servers differ; put the server's own field into extensions")
        *outer, last = field.split(".")
        place = body
        for step in outer:
            place = place.setdefault(step, {})
        place[last] = value


def _output_format(
    output: OutputFormat | None, target: Target, body: dict[str, Any], warnings: dict[str, None]
) -> None:
    if output is None or output.type == "text":
        return
    if output.type == "json":
        body["response_format"] = {"type": "json_object"}
        return
    if target.capabilities.structured_output is False:
        raise UnsupportedOption(
            "output_format",
            f"{target.provider}/{target.model}",
            "it has no JSON-schema output; use a tool or type 'json'",
        )
    schema, strict, notes = for_openai(output.json_schema or {}, output.strict)
    warnings.update(dict.fromkeys(f"output format: {note}" for note in notes))
    form: dict[str, Any] = {"name": output.name or "output", "schema": schema}
    if output.description:
        form["description"] = output.description
    if strict is not None:
        form["strict"] = strict
    body["response_format"] = {"type": "json_schema", "json_schema": form}


# -- tools ------------------------------------------------------------------------------------------


def _tools(request: Request, target: Target, body: dict[str, Any], warnings: dict[str, None]) -> None:
    if not request.tools:
        return
    if target.capabilities.tools is False:
        raise UnsupportedOption("tools", f"{target.provider}/{target.model}")
    body["tools"] = [_tool(spec, target, warnings) for spec in request.tools]
    choice = request.tool_choice
    if choice is None:
        return
    body["tool_choice"] = _tool_choice(choice, target)
    if choice.parallel is None:
        return
    if not target.quirks.parallel_tool_calls or "parallel_tool_calls" in target.capabilities.unsupported_options:
        warnings[not_told(target, choice)] = None
    else:
        body["parallel_tool_calls"] = choice.parallel == "allow"


def _tool(spec: ToolSpec, target: Target, warnings: dict[str, None]) -> dict[str, Any]:
    own = own_extra(spec.extra, target)
    if own.get("type", "function") != "function":
        if own["type"] == "custom" and "custom" not in own:
            return {**own, "custom": {"name": spec.name, "description": spec.description}}
        return own  # a tool of the provider's own kind, in its own words
    strict = spec.strict
    if strict and not target.quirks.strict_tools:
        warnings[f"{target.provider} is not known to enforce tool schemas: strict was left out"] = None
    if not target.quirks.strict_tools:
        strict = None
    schema, strict, notes = for_openai(spec.parameters, strict)
    warnings.update(dict.fromkeys(f"tool {spec.name!r}: {note}" for note in notes))
    function: dict[str, Any] = {"name": spec.name, "parameters": schema}
    if spec.description:
        function["description"] = spec.description
    if strict is not None:
        function["strict"] = strict
    return {"type": "function", "function": function, **own}


def _tool_choice(choice: ToolChoice, target: Target) -> JSON:
    if choice.mode != "named":
        return choice.mode
    if not target.quirks.named_tool_choice:
        raise UnsupportedOption(
            "tool_choice", f"{target.provider}/{target.model}", "it cannot be held to one named tool"
        )
    return {"type": "function", "function": {"name": choice.name}}

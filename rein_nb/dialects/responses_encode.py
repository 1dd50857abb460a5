"""OpenAI Responses: a request as the wire wants it.

Settings of this provider alone come through ``options.extensions`` under the dialect's or the provider's name. They are merged into
the body: objects into objects, ``tools`` (built-in tools) and ``include`` are added to ours, everything else replaces.
"""

from __future__ import annotations

import re
from typing import Any

from rein_nb.dialects.base import Target, WireCall, not_told
from rein_nb.dialects.handoff import handoff
from rein_nb.dialects.handoff_rules import wire_names
from rein_nb.dialects.responses_input import input_items, instructions
from rein_nb.dialects.responses_items import NAMESPACE
from rein_nb.dialects.schema import for_openai
from rein_nb.ir import InvalidRequest, OutputFormat, Request, ToolSpec, UnsupportedOption

_NOT_HERE = ("top_k", "stop", "seed", "frequency_penalty", "presence_penalty")
_ADDED = ("tools", "include")
ENCRYPTED = "reasoning.encrypted_content"
LOGPROBS = "message.output_text.logprobs"

_NO_REASONING = re.compile(r"(?:^|/)(?:gpt-3|gpt-4|chatgpt-)|-chat(?:-latest)?$")
"""OpenAI models that refuse to be asked for reasoning; used where nothing is known of a model's efforts."""


def encode(request: Request, target: Target, *, stream: bool) -> WireCall:
    """The wire request. See `rein_nb.dialects.base.Codec.encode`."""
    extensions = _extensions(request, target)
    handed = handoff(request.messages, target)
    warnings = list(handed.warnings)
    names = wire_names([tool.name for tool in request.tools], target)

    store = extensions.get("store", False if target.quirks.store else None)
    told, rest = instructions(handed.messages)
    lead = len(handed.messages) - len(rest)
    items = input_items(
        rest, target, stored=store is True, warnings=warnings, settled=handed.settled - lead, wire=handed.wire
    )
    body: dict[str, Any] = {**target.quirks.default_body, "model": target.model, "input": items}
    if told is not None:
        body["instructions"] = told
    if store is not None:
        body["store"] = store
    _options(body, request, target)
    _reasoning(body, request, target)
    _tools(body, request, extensions, names, target, warnings)
    if (form := _format(request.output_format, target, warnings)) is not None:
        body["text"] = {"format": form}
    _merge(body, extensions)
    if not items and not any(body.get(name) for name in ("prompt", "previous_response_id", "conversation")):
        raise InvalidRequest("openai-responses needs at least one message that is not a system message and not empty")
    if stream:
        body["stream"] = True
    return WireCall(
        path=target.quirks.path or "/responses",
        body=body,
        warnings=warnings,
        tool_names={wire: name for name, wire in names.items() if wire != name} | handed.tool_names,
    )


def _extensions(request: Request, target: Target) -> dict[str, Any]:
    given = request.options.extensions
    merged: dict[str, Any] = {}
    for namespace in dict.fromkeys((target.dialect, target.provider)):
        merged.update(given.get(namespace, {}))
    for name in _ADDED:
        if name in merged and not isinstance(merged[name], list | tuple):
            raise InvalidRequest(
                f"extensions: {target.provider} {name!r} must be a list, not {type(merged[name]).__name__}"
            )
    return merged


def _merge(body: dict[str, Any], extensions: dict[str, Any]) -> None:
    for name, value in extensions.items():
        if name in _ADDED:
            body[name] = [*body.get(name, []), *(item for item in value if item not in body.get(name, []))]
        elif isinstance(value, dict) and isinstance(body.get(name), dict):
            body[name] = {**body[name], **value}
        else:
            body[name] = value


# -- options ------------------------------------------------------------------------------------------


def _options(body: dict[str, Any], request: Request, target: Target) -> None:
    options = request.options
    given = options.given()
    for name in given:
        if name in _NOT_HERE:
            raise UnsupportedOption(name, target.dialect)
        if name in target.capabilities.unsupported_options:
            raise UnsupportedOption(name, f"{target.provider}/{target.model}")
    for name in ("temperature", "top_p", "max_output_tokens"):
        if name in given:
            body[name] = given[name]
    if options.logprobs is not None:
        body["top_logprobs"] = options.logprobs
        body["include"] = [*body.get("include", []), LOGPROBS]


def reasons(target: Target) -> bool:
    """Whether the model is known, or has to be taken, to be a reasoning model."""
    efforts = target.capabilities.reasoning_efforts
    if efforts is not None:
        return bool(efforts)
    return _NO_REASONING.search(target.model) is None


def _reasoning(body: dict[str, Any], request: Request, target: Target) -> None:
    effort = request.options.reasoning_effort
    known = target.capabilities.reasoning_efforts
    if effort is not None and known is not None and effort not in known:
        who = f"{target.provider}/{target.model}"
        raise UnsupportedOption("reasoning_effort", who, f"it knows {', '.join(known) or 'none'}, not {effort!r}")
    reasoning: dict[str, Any] = {}
    if effort is not None:
        reasoning["effort"] = effort
    if target.quirks.reasoning_summary is not None and effort != "none" and reasons(target):
        reasoning["summary"] = target.quirks.reasoning_summary
    if reasoning:
        body["reasoning"] = reasoning
    if body.get("store") is False and target.quirks.store and reasons(target):
        # Nothing is stored, so the reasoning itself has to come here and go back (C041).
        body["include"] = [*body.get("include", []), ENCRYPTED]


# -- tools --------------------------------------------------------------------------------------------


def _tools(
    body: dict[str, Any],
    request: Request,
    extensions: dict[str, Any],
    names: dict[str, str],
    target: Target,
    warnings: list[str],
) -> None:
    if request.tools:
        body["tools"] = [_tool(spec, names[spec.name], target, warnings) for spec in request.tools]
    choice = request.tool_choice
    # Without tools there is nothing to choose, and the API refuses the fields (C047).
    if choice is None or not (request.tools or extensions.get("tools")):
        return
    if choice.mode == "named":
        spec = next(spec for spec in request.tools if spec.name == choice.name)
        kind = spec.extra.get(NAMESPACE, {}).get("type", "function")
        body["tool_choice"] = {"type": kind, "name": names[spec.name]}
    else:
        body["tool_choice"] = choice.mode
    if choice.parallel is not None:
        if target.quirks.parallel_tool_calls:
            body["parallel_tool_calls"] = choice.parallel == "allow"
        else:
            warnings.append(not_told(target, choice))


def _tool(spec: ToolSpec, name: str, target: Target, warnings: list[str]) -> dict[str, Any]:
    extra = spec.extra.get(NAMESPACE, {})
    if extra.get("type") == "custom":
        # A custom tool takes plain text; its schema is {"input": string} on our side only.
        return {"type": "custom", "name": name, "description": spec.description, **extra}
    strict = spec.strict
    if strict and not target.quirks.strict_tools:
        warnings.append(f"{target.provider} is not known to enforce tool schemas: strict was left out")
        strict = None
    schema, strict, notes = for_openai(spec.parameters, strict)
    warnings += [f"tool {spec.name!r}: {note}" for note in notes]
    tool: dict[str, Any] = {"type": "function", "name": name, "parameters": schema}
    if spec.description:
        tool["description"] = spec.description
    if strict is not None:
        tool["strict"] = strict
    return {**tool, **extra}


# -- output format ------------------------------------------------------------------------------------


def _format(wanted: OutputFormat | None, target: Target, warnings: list[str]) -> dict[str, Any] | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json":
        return {"type": "json_object"}
    if target.capabilities.structured_output is False:
        raise UnsupportedOption(
            "output_format", f"{target.provider}/{target.model}", "it has no native JSON-schema output"
        )
    schema, strict, notes = for_openai(wanted.json_schema or {}, wanted.strict)
    warnings += [f"output format: {note}" for note in notes]
    form: dict[str, Any] = {"type": "json_schema", "name": wanted.name or "output", "schema": schema}
    if wanted.description:
        form["description"] = wanted.description
    if strict is not None:
        form["strict"] = strict
    return form

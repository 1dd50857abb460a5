"""Anthropic Messages: a request as the wire wants it.

Settings of this provider alone come through ``options.extensions`` under the dialect's or the provider's name. They are merged
into the body, with four that are read here: ``tools`` (server tools, added to the functions), ``betas`` (a header),
``cache_control="auto"`` (see `anthropic_cache`), and ``thinking`` (checked against the other options).
"""

from __future__ import annotations

from typing import Any

from rein_nb.dialects import anthropic_cache
from rein_nb.dialects.anthropic_blocks import system_blocks, turns
from rein_nb.dialects.anthropic_decode import NAMESPACE
from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.handoff import handoff
from rein_nb.dialects.handoff_rules import wire_names
from rein_nb.dialects.schema import for_anthropic
from rein_nb.ir import InvalidRequest, Request, ToolChoice, ToolSpec, UnsupportedOption

DEFAULT_MAX_TOKENS = 4096
"""``max_tokens`` is required by the wire. Used where neither the caller nor what is known of the model says a limit."""

DEFAULT_THINKING_TOKENS = 16384
"""The same with adaptive thinking, which counts towards ``max_tokens`` and would leave no room for an answer in less."""

_NOT_HERE = ("seed", "frequency_penalty", "presence_penalty", "logprobs")
_ALWAYS_LISTS = ("tools", "betas")


def encode(request: Request, target: Target, *, stream: bool) -> WireCall:
    """The wire request. See `rein_nb.dialects.base.Codec.encode`."""
    extensions = _extensions(request, target)
    handed = handoff(request.messages, target)
    warnings = list(handed.warnings)
    names = wire_names([tool.name for tool in request.tools], target)

    system, rest = system_blocks(handed.messages)
    messages = turns(rest, target, handed.settled - (len(handed.messages) - len(rest)), handed.wire)
    if not messages:
        raise InvalidRequest("anthropic needs at least one message that is not a system message and not blank")
    body: dict[str, Any] = {**target.quirks.default_body, "model": target.model, "messages": messages}
    if system:
        body["system"] = system
    _options(body, request, target)
    _tools(body, request, extensions, names, target, warnings)
    _output_format(body, request, target, warnings)
    automatic = _merge(body, extensions)
    _thinking(body, request, target)
    if (warning := anthropic_cache.enforce(body, automatic)) is not None:
        warnings.append(warning)
    _plain_system(body)
    if stream:
        body["stream"] = True

    headers = {}
    if extensions.get("betas"):
        headers["anthropic-beta"] = ",".join(str(beta) for beta in extensions["betas"])
    return WireCall(
        path=target.quirks.path or "/v1/messages",
        body=body,
        headers=headers,
        warnings=warnings,
        tool_names={wire: name for name, wire in names.items() if wire != name} | handed.tool_names,
    )


def _extensions(request: Request, target: Target) -> dict[str, Any]:
    given = request.options.extensions
    merged = {**given.get(NAMESPACE, {}), **(given.get(target.provider, {}) if target.provider != NAMESPACE else {})}
    for name in _ALWAYS_LISTS:
        if name in merged and not isinstance(merged[name], list | tuple):
            raise InvalidRequest(f"extensions: anthropic {name!r} must be a list, not {type(merged[name]).__name__}")
    return merged


# -- options ------------------------------------------------------------------------------------------


def _options(body: dict[str, Any], request: Request, target: Target) -> None:
    options = request.options
    given = options.given()
    who = f"{target.provider}/{target.model}"
    for name in given:
        if name in _NOT_HERE:
            raise UnsupportedOption(name, target.dialect)
        if name in target.capabilities.unsupported_options:
            raise UnsupportedOption(name, who)
    if (options.temperature or 0) > 1:
        raise UnsupportedOption("temperature", target.dialect, f"it takes 0 to 1, not {options.temperature}")
    for name in ("temperature", "top_p", "top_k"):
        if name in given:
            body[name] = given[name]
    if options.stop is not None:
        body["stop_sequences"] = options.stop
    if options.max_output_tokens is not None:
        body["max_tokens"] = options.max_output_tokens
    effort = options.reasoning_effort
    if effort is None:
        return
    known = target.capabilities.reasoning_efforts
    if known is not None and effort not in known:
        raise UnsupportedOption("reasoning_effort", who, f"it knows {', '.join(known) or 'none'}, not {effort!r}")
    if effort == "none":
        body["thinking"] = {"type": "disabled"}
        return
    body["output_config"] = {"effort": effort}
    if target.quirks.adaptive_thinking:
        # Without it, effort alone makes some models answer better but not think; "summarized" is what makes thinking visible.
        body["thinking"] = {"type": "adaptive", "display": "summarized"}


def _thinking(body: dict[str, Any], request: Request, target: Target) -> None:
    """Settle ``max_tokens`` against the thinking budget, and refuse what the API refuses beside thinking."""
    options = request.options
    thinking = body.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    fallback = DEFAULT_THINKING_TOKENS if kind == "adaptive" else DEFAULT_MAX_TOKENS
    limit = target.capabilities.max_output_tokens or fallback
    if isinstance(budget, int):
        # The budget counts towards max_tokens, which must be larger.
        if "max_tokens" not in body and budget >= limit:
            if target.capabilities.max_output_tokens is not None:
                raise InvalidRequest(
                    f"thinking.budget_tokens ({budget}) must be less than the model's limit of {limit} output tokens"
                )
            limit = budget + DEFAULT_MAX_TOKENS
        elif body.get("max_tokens", limit) <= budget:
            raise InvalidRequest(
                f"max_output_tokens ({body['max_tokens']}) must be larger than thinking.budget_tokens ({budget}), which counts towards it"
            )
    body.setdefault("max_tokens", limit)
    if kind not in ("enabled", "adaptive"):
        return
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        forced = f"tool {choice['name']!r}" if choice.get("name") else "a tool"
        raise InvalidRequest(
            f"tool_choice forces {forced} while thinking is on ({'reasoning_effort' if options.reasoning_effort else 'thinking'}); "
            "the API refuses the two together: take tool_choice 'auto', or turn thinking off (reasoning_effort='none')"
        )
    if options.temperature not in (None, 1.0):
        raise InvalidRequest(
            f"temperature {options.temperature} cannot be set while thinking is on; leave it out, or turn thinking off"
        )
    if options.top_k is not None:
        raise InvalidRequest("top_k cannot be set while thinking is on; leave it out, or turn thinking off")


# -- tools --------------------------------------------------------------------------------------------


def _tools(
    body: dict[str, Any],
    request: Request,
    extensions: dict[str, Any],
    names: dict[str, str],
    target: Target,
    warnings: list[str],
) -> None:
    tools = [_tool(spec, names[spec.name], target, warnings) for spec in request.tools]
    tools += [dict(tool) for tool in extensions.get("tools", ())]
    if not tools:
        return
    body["tools"] = tools
    choice = _tool_choice(request.tool_choice, names)
    if choice is not None:
        body["tool_choice"] = choice


def _tool(spec: ToolSpec, name: str, target: Target, warnings: list[str]) -> dict[str, Any]:
    strict = spec.strict
    if strict is not None and not target.quirks.strict_tools:
        if strict:
            warnings.append(f"{target.provider} is not known to enforce tool schemas: strict was left out")
        strict = None
    schema, strict, notes = for_anthropic(spec.parameters, strict)
    warnings += [f"tool {spec.name!r}: {note}" for note in notes]
    tool: dict[str, Any] = {"name": name, "input_schema": schema}
    if spec.description:
        tool["description"] = spec.description
    if strict is not None:
        tool["strict"] = strict
    return {**tool, **spec.extra.get(NAMESPACE, {})}


def _tool_choice(choice: ToolChoice | None, names: dict[str, str]) -> dict[str, Any] | None:
    if choice is None:
        return None
    if choice.mode == "none":
        return {"type": "none"}
    wire: dict[str, Any] = {"type": {"auto": "auto", "required": "any", "named": "tool"}[choice.mode]}
    if choice.name is not None:
        wire["name"] = names[choice.name]
    if choice.parallel is not None:
        wire["disable_parallel_tool_use"] = choice.parallel == "single"
    return wire


# -- output format ------------------------------------------------------------------------------------


def _output_format(body: dict[str, Any], request: Request, target: Target, warnings: list[str]) -> None:
    wanted = request.output_format
    if wanted is None or wanted.type == "text":
        return
    if wanted.type == "json":
        raise UnsupportedOption("output_format", target.dialect, "it takes a JSON Schema, not 'json' alone")
    if target.capabilities.structured_output is False:
        raise UnsupportedOption(
            "output_format", f"{target.provider}/{target.model}", "it has no native JSON-schema output"
        )
    schema, strict, notes = for_anthropic(wanted.json_schema or {}, True)
    if not strict:
        raise UnsupportedOption("output_format", target.dialect, "; ".join(notes))
    body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": schema}
    warnings += [f"output format: {note}" for note in notes]


# -- extensions ---------------------------------------------------------------------------------------


def _merge(body: dict[str, Any], extensions: dict[str, Any]) -> list[dict[str, Any]]:
    """Merge the extensions into the body; returns the blocks that were marked for caching automatically."""
    for name, value in extensions.items():
        if name in _ALWAYS_LISTS or (name == "cache_control" and value == "auto"):
            continue
        if name == "system" and value:
            body["system"] = [
                *body.get("system", []),
                *([{"type": "text", "text": value}] if isinstance(value, str) else value),
            ]
        elif isinstance(value, dict) and isinstance(body.get(name), dict) and name != "thinking":
            body[name] = {**body[name], **value}
        else:
            body[name] = value
    return anthropic_cache.mark(body) if extensions.get("cache_control") == "auto" else []


def _plain_system(body: dict[str, Any]) -> None:
    """One plain system block goes out as the string that it is: the form every server reads."""
    system = body.get("system")
    if isinstance(system, list) and len(system) == 1 and system[0].keys() == {"type", "text"}:
        body["system"] = system[0]["text"]

"""Requests in Google's generateContent dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rein_nb.dialects.base import Target, WireCall, not_told
from rein_nb.dialects.google_contents import contents, system_parts
from rein_nb.dialects.google_decode import NAMESPACE
from rein_nb.dialects.handoff import handoff
from rein_nb.dialects.handoff_rules import model_family
from rein_nb.dialects.schema import for_google, for_google_json, object_root
from rein_nb.ir import InvalidRequest, Options, OutputFormat, Request, ToolChoice, ToolSpec, UnsupportedOption

Body = dict[str, Any]

_PLAIN_OPTIONS = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "max_output_tokens": "maxOutputTokens",
    "stop": "stopSequences",
    "seed": "seed",
    "frequency_penalty": "frequencyPenalty",
    "presence_penalty": "presencePenalty",
}

BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "dynamic": -1}
"""Thinking budgets in tokens for models before Gemini 3, which know no levels: Google's own mapping of effort words
(https://ai.google.dev/gemini-api/docs/openai#thinking); ``dynamic`` leaves the amount to the model."""


def encode(request: Request, target: Target, *, stream: bool) -> WireCall:
    """The wire request. See `rein_nb.dialects.base.Codec.encode`."""
    body, warnings, tool_names = encode_body(request, target)
    body = merged(body, *extensions(request, target, target.provider, target.dialect, NAMESPACE))
    return WireCall(
        path=f"{model_path(target)}:{method(stream)}",
        body=merged(target.quirks.default_body, body),
        query={"alt": "sse"} if stream else {},
        warnings=warnings,
        tool_names=tool_names,
    )


def method(stream: bool) -> str:
    """The method's name on the wire."""
    return "streamGenerateContent" if stream else "generateContent"


def model_path(target: Target) -> str:
    """Where the model lives: its own path where its name is one, else under ``models``; `Quirks.path` may hold ``{model}``."""
    model = quote(target.model, safe="/@.-_~")
    if target.quirks.path is not None:
        return target.quirks.path.replace("{model}", model)
    return f"/v1beta/{model}" if "/" in model else f"/v1beta/models/{model}"


def encode_body(request: Request, target: Target) -> tuple[Body, list[str], dict[str, str]]:
    """(body, warnings, wire names of renamed tools), without extensions."""
    healed = handoff(request.messages, target)
    warnings = list(healed.warnings)
    system, rest = system_parts(healed.messages)
    body: Body = {"contents": contents(rest, target)}
    if not body["contents"]:
        raise InvalidRequest("Google needs at least one message that is not a system message, with something in it")
    if system:
        body["systemInstruction"] = {"parts": system}
    if request.tools:
        if target.capabilities.tools is False:
            raise UnsupportedOption("tools", f"{target.provider}/{target.model}")
        body["tools"] = [{"functionDeclarations": [_declaration(spec) for spec in request.tools]}]
        if request.tool_choice is not None and request.tool_choice.parallel is not None:
            warnings.append(not_told(target, request.tool_choice))
    if (choice := _tool_config(request.tool_choice, request.tools)) is not None:
        body["toolConfig"] = {"functionCallingConfig": choice}
    config = _generation_config(request.options, target)
    config.update(_output_format(request.output_format, target))
    if config:
        body["generationConfig"] = config
    return body, warnings, healed.tool_names


# -- tools --------------------------------------------------------------------------------------------


def _declaration(spec: ToolSpec) -> Body:
    out: Body = {"name": spec.name, "description": spec.description}
    parameters = object_root(spec.parameters)
    schema, lost = for_google(parameters)
    if lost:
        out["parametersJsonSchema"] = for_google_json(parameters)
    elif schema.get("properties"):
        # An object without properties is refused here; a tool without parameters leaves the field out.
        out["parameters"] = schema
    return {**out, **spec.extra.get(NAMESPACE, {})}


def _tool_config(choice: ToolChoice | None, tools: list[ToolSpec]) -> Body | None:
    strict = any(tool.strict for tool in tools)
    if choice is None or choice.mode == "auto":
        if strict:
            return {"mode": "VALIDATED"}
        return None if choice is None else {"mode": "AUTO"}
    if choice.mode == "named":
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    return {"mode": "ANY" if choice.mode == "required" else "NONE"}


# -- options ------------------------------------------------------------------------------------------


def _generation_config(options: Options, target: Target) -> Body:
    who = f"{target.provider}/{target.model}"
    config: Body = {}
    for name, value in options.given().items():
        if name in target.capabilities.unsupported_options:
            raise UnsupportedOption(name, who)
        if name in _PLAIN_OPTIONS:
            config[_PLAIN_OPTIONS[name]] = value
        elif name == "logprobs":
            config["responseLogprobs"] = True
            if value:
                config["logprobs"] = value
        elif name == "reasoning_effort":
            config["thinkingConfig"] = _thinking(value, target)
        else:
            raise UnsupportedOption(name, target.dialect)
    return config


def _thinking(effort: str, target: Target) -> Body:
    """Levels for Gemini 3 and later, token budgets before; a whole number is a budget in tokens for both."""
    who = f"{target.provider}/{target.model}"
    number = effort.removeprefix("-").isdecimal()
    known = target.capabilities.reasoning_efforts
    if known is not None and effort not in known and not number:
        raise UnsupportedOption("reasoning_effort", who, f"it knows {', '.join(known) or 'none'}, not {effort!r}")
    if number:
        budget = int(effort)
        return {"thinkingBudget": budget, **({"includeThoughts": True} if budget else {})}
    if model_family(target.model).startswith(("gemini-1", "gemini-2")) or effort == "none":
        if effort not in BUDGETS:
            words = ", ".join(BUDGETS)
            raise UnsupportedOption("reasoning_effort", who, f"it takes {words} or a number of tokens, not {effort!r}")
        return {"thinkingBudget": BUDGETS[effort], **({"includeThoughts": True} if BUDGETS[effort] else {})}
    return {"thinkingLevel": effort, "includeThoughts": True}


def _output_format(wanted: OutputFormat | None, target: Target) -> Body:
    if wanted is None or wanted.type == "text":
        return {}
    out: Body = {"responseMimeType": "application/json"}
    if wanted.type == "json":
        return out
    if target.capabilities.structured_output is False:
        raise UnsupportedOption(
            "output_format", f"{target.provider}/{target.model}", "it has no native JSON-schema output"
        )
    given = wanted.json_schema or {}
    if wanted.description and not given.get("description"):
        given = {**given, "description": wanted.description}
    schema, lost = for_google(given)
    if lost:
        out["responseJsonSchema"] = for_google_json(given)
    else:
        out["responseSchema"] = schema
    return out


# -- extensions ---------------------------------------------------------------------------------------


def extensions(request: Request, target: Target, *namespaces: str) -> list[Mapping[str, Any]]:
    """The request's extensions under these names, each name once, the more particular one last."""
    given = request.options.extensions
    return [given[name] for name in reversed(dict.fromkeys(namespaces)) if name in given]


def merged(base: Mapping[str, Any], *more: Mapping[str, Any]) -> Body:
    """`base` with the others laid over it: objects key by key, ``tools`` and ``safetySettings`` one after the other, the rest replaced."""
    out: Body = dict(base)
    for layer in more:
        for key, value in layer.items():
            known = out.get(key)
            if isinstance(known, Mapping) and isinstance(value, Mapping):
                out[key] = merged(known, value)
            elif key in ("tools", "safetySettings") and isinstance(known, list) and isinstance(value, list):
                out[key] = [*known, *value]
            else:
                out[key] = value
    return out

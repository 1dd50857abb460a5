"""Google generateContent, bare and in the Code Assist envelope.

Sources: https://ai.google.dev/api/generate-content, https://ai.google.dev/api/caching (Content, Part, FunctionDeclaration, Schema),
https://ai.google.dev/gemini-api/docs/thought-signatures, and the API's own error messages on turns ("function call turn comes
immediately after a user turn", "number of function response parts"); field cases C050, C052, C054, C057, C058.
"""

from __future__ import annotations

import re
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.testing.violations import Report

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
_SIGNED_MODELS = re.compile(r"gemini-(?:[3-9]|\d\d)")
_DATA = {
    "text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
}  # fmt: skip
_MODEL_ONLY = {"functionCall", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
_SCHEMA_KEYS = {
    "type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems", "properties", "required",
    "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength", "pattern", "anyOf", "propertyOrdering",
    "example", "default",
}  # fmt: skip
_SNAKE = re.compile(r"_([a-z])")

Part = dict[str, Any]


def check_code_assist(body: dict[str, Any], target: Target, report: Report) -> None:
    """Note what Code Assist would refuse: its envelope, and the request inside."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        report.add("bad-envelope", "model", "the envelope needs the model's name")
    if not isinstance(body.get("request"), dict):
        report.add("bad-envelope", "request", "the envelope needs a request object")
        return
    check_google(body["request"], target, report)


def check_google(body: dict[str, Any], target: Target, report: Report) -> None:
    """Note what generateContent would refuse."""
    contents = report.objects(_list(body.get("contents")), "contents")
    if not contents:
        report.add("no-messages", "contents", "at least one content is needed")
        return
    if contents[0].get("role") == "model":
        report.add("bad-role", "contents[0]", "the first content must be the user's")
    signed = _SIGNED_MODELS.search(target.model) is not None
    turn_start = max((n for n, c in enumerate(contents) if c.get("role") == "user" and not _answers(c)), default=0)
    pending: list[tuple[Any, Any]] = []
    for n, content in enumerate(contents):
        where = f"contents[{n}]"
        role = content.get("role", "user")
        if not report.one_of(role, ("user", "model", "function"), "bad-role", where):
            continue
        parts = _parts(content, role, where, report)
        responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        _pair(pending, responses, where, report)
        pending = [(call.get("name"), call.get("id")) for call in calls]
        if calls and n and contents[n - 1].get("role") == "model":
            report.add(
                "call-place", where, "function calls must come right after the user's turn or after function responses"
            )
        if signed and calls and n > turn_start:
            first = next(part for part in parts if "functionCall" in part)
            if not first.get("thoughtSignature"):
                report.add("missing-signature", where, "the first function call of a step needs its thought signature")
    _pair(pending, [], f"contents[{len(contents)}]", report)
    for k, part in enumerate(
        report.objects(_list((_get(body, "systemInstruction") or {}).get("parts")), "systemInstruction")
    ):
        if not part.get("text"):
            report.add("empty-text", f"systemInstruction.parts[{k}]", "an empty text part")
    _tools(body, report)


def _get(value: Part, name: str) -> Any:
    """A field under its camel or its snake name; the API reads both."""
    snake = re.sub(r"([A-Z])", lambda found: "_" + found[1].lower(), name)
    return value.get(name, value.get(snake))


def _list(value: Any) -> Any:
    """One object stands for a list of one, as the API reads it."""
    return [value] if isinstance(value, dict) else value


def _camel(part: Part) -> Part:
    return {_SNAKE.sub(lambda found: found[1].upper(), key): value for key, value in part.items()}


def _answers(content: Part) -> bool:
    parts = _list(content.get("parts"))
    return isinstance(parts, list) and any(
        "functionResponse" in _camel(part) for part in parts if isinstance(part, dict)
    )


def _parts(content: Part, role: str, where: str, report: Report) -> list[Part]:
    parts = _list(content.get("parts"))
    if not isinstance(parts, list) or not parts:
        report.add("empty-message", where, "a content needs at least one part")
        return []
    out = [_camel(part) for part in report.objects(parts, f"{where}.parts")]
    for k, part in enumerate(out):
        place = f"{where}.parts[{k}]"
        kinds = _DATA & part.keys()
        if len(kinds) != 1:
            report.add(
                "bad-part",
                place,
                f"a part holds exactly one of {', '.join(sorted(_DATA))}, not {sorted(kinds) or 'none'}",
            )
            continue
        (kind,) = kinds
        if role != "model" and (kind in _MODEL_ONLY or "thoughtSignature" in part or part.get("thought")):
            report.add("bad-part", place, f"{kind} and thoughts belong to the model's contents")
        if role == "model" and kind == "functionResponse":
            report.add("bad-part", place, "a function response belongs to the user's contents")
        _part(kind, part, place, report)
    return out


def _part(kind: str, part: Part, where: str, report: Report) -> None:
    value = part[kind]
    if kind == "text":
        if not isinstance(value, str) or not (value or part.get("thoughtSignature")):
            report.add("empty-text", where, "an empty text part is only accepted with a thought signature")
        return
    if not isinstance(value, dict):
        report.add("bad-part", where, f"{kind} must be an object")
    elif kind in ("functionCall", "functionResponse"):
        report.name(value.get("name"), _NAME, where)
        field = "args" if kind == "functionCall" else "response"
        if not isinstance(value.get(field, {}), dict) or (kind == "functionResponse" and field not in value):
            report.add("bad-arguments", where, f"{field} must be an object")
    elif kind == "inlineData" and not (_get(value, "mimeType") and value.get("data")):
        report.add("bad-media", where, "inline data needs a mimeType and data")
    elif kind == "fileData" and not _get(value, "fileUri"):
        report.add("bad-media", where, "file data needs a fileUri")


def _pair(pending: list[tuple[Any, Any]], responses: list[Part], where: str, report: Report) -> None:
    """As many responses as calls, by id where the API gave ids, else by name and place (C057, C058)."""
    names = [response.get("name") for response in responses]
    if len(pending) > len(responses):
        report.add("unanswered-call", where, f"{len(pending)} function calls and {len(responses)} responses")
    elif len(pending) < len(responses):
        report.add("orphan-result", where, f"{len(responses)} function responses to {len(pending)} calls")
    elif [name for name, _ in pending] != names:
        report.add(
            "result-order", where, f"responses come as {names}, and their calls as {[name for name, _ in pending]}"
        )
    elif [id for _, id in pending] != [response.get("id") for response in responses]:
        report.add("bad-id", where, "a response must carry the id of its call, and none where the call has none")
    ids = [id for _, id in pending if id is not None]
    if len(set(ids)) != len(ids):
        report.add("repeated-id", where, f"an id is used twice among {ids}")


def _tools(body: Part, report: Report) -> None:
    declared: list[Any] = []
    for n, tool in enumerate(report.objects(body.get("tools") or [], "tools")):
        for k, declaration in enumerate(report.objects(_get(tool, "functionDeclarations") or [], f"tools[{n}]")):
            where = f"tools[{n}].functionDeclarations[{k}]"
            declared.append(declaration.get("name"))
            if declaration.get("parameters") is not None:
                if _get(declaration, "parametersJsonSchema") is not None:
                    report.add("bad-schema", where, "parameters and parametersJsonSchema exclude each other")
                _schema(declaration["parameters"], f"{where}.parameters", report)
    report.tools(declared, _NAME, "functionDeclarations")
    config = _get(_get(body, "toolConfig") or {}, "functionCallingConfig") or {}
    for name in _get(config, "allowedFunctionNames") or ():
        if name not in declared:
            report.add("bad-tool-choice", "toolConfig", f"it allows {name!r}, which is not declared")
    if config.get("mode") == "ANY" and not declared:
        report.add("bad-tool-choice", "toolConfig", "a call can only be asked for with declared functions")


def _schema(schema: Any, where: str, report: Report) -> None:
    if not isinstance(schema, dict):
        report.add("bad-schema", where, "a schema must be an object")
        return
    if odd := _camel(schema).keys() - _SCHEMA_KEYS:
        report.add("bad-schema", where, f"unknown to the API's Schema: {', '.join(sorted(odd))}")
    for name, item in (schema.get("properties") or {}).items():
        _schema(item, f"{where}.properties.{name}", report)
    for branch in _get(schema, "anyOf") or ():
        _schema(branch, f"{where}.anyOf", report)
    if "items" in schema:
        _schema(schema["items"], f"{where}.items", report)

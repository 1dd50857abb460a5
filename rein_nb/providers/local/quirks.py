"""How llama.cpp's server and small models depart from the three dialects: data, and one pure change of the body.

Seen with xllamacpp 2026.10 (llama.cpp of autumn 2026):

- A required tool call is not binding: the model may write prose first. An answer that begins with ``<tool_call>`` is parsed, and held to the
  tools' schemas by a grammar, so the call is begun on the model's behalf, and ended at its end tag.
- A named tool choice is read as "auto". Sending only that tool and requiring a call says the same.
- Without a limit it writes until its context is full, and a grammar with unbounded strings can be followed for just as long.
- ``/v1/responses`` ignores ``text.format`` and takes ``json_schema``; ``/v1/messages`` has no structured output at all.
- ``/v1/responses`` says "completed" for an answer that was cut at the token limit.
- ``/v1/messages`` cannot be told to stop after one call, and a stop sequence that the vocabulary has as one unprinted token never matches:
  there, a forced call of qwen2.5-coder is repeated until the token limit. Nothing here mends that.
- After a streamed answer it closes the connection without having said so, and the next request on it fails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rein_nb.dialects.base import Capabilities, Quirks
from rein_nb.ir import UnsupportedOption
from rein_nb.ir import deltas as d
from rein_nb.providers.local.catalog import MODELS

QUIRKS = Quirks(mid_system=True)
"""For the codecs. `adapt_body` does the rest."""

CAPABILITIES = Capabilities(media_in=frozenset())
"""Text only."""

HEADERS: Mapping[str, str] = {"Connection": "close"}
"""The server closes connections unannounced after a stream, so none is used twice. On loopback a new one costs nothing."""

CALL_BEGINS = "<tool_call>\n"
CALL_ENDS = "</tool_call>"
MAX_TOKENS = 512
MAX_STRING = 160
MAX_ITEMS = 16

_LIMIT_FIELDS = {
    "openai-chat": ("max_tokens", "max_completion_tokens"),
    "openai-responses": ("max_output_tokens",),
    "anthropic": ("max_tokens",),
}
_STOP_FIELD = {"openai-chat": "stop", "openai-responses": "stop", "anthropic": "stop_sequences"}


def adapt_body(body: dict[str, Any], dialect: str) -> dict[str, Any]:
    """The body that makes the embedded server do what `body` asks for. Pure and idempotent.

    Parameters
    ----------
    body
        A request as the dialect's codec made it; not changed.
    dialect
        ``"openai-chat"``, ``"openai-responses"`` or ``"anthropic"``.

    Raises
    ------
    ValueError
        For another dialect: the server speaks no other.
    UnsupportedOption
        For structured output in the Messages dialect, which the server would ignore.
    """
    if dialect not in _LIMIT_FIELDS:
        raise ValueError(f"the embedded server speaks {', '.join(_LIMIT_FIELDS)}, not {dialect!r}")
    out = dict(body)
    if not any(out.get(name) for name in _LIMIT_FIELDS[dialect]):
        out[_LIMIT_FIELDS[dialect][0]] = MAX_TOKENS
    mode, name = _tool_choice(out.get("tool_choice"), dialect)
    if mode == "none":
        # The tools' descriptions alone make the model write calls, as text.
        out.pop("tools", None)
        out.pop("tool_choice", None)
        out.pop("parallel_tool_calls", None)
    if out.get("tools"):
        out["tools"] = [
            _bounded_tool(tool, dialect) for tool in out["tools"] if name is None or _name(tool, dialect) == name
        ]
        if mode == "required":
            _force_call(out, dialect)
        elif _answers_a_result(out, dialect) and (card := MODELS.get(str(out.get("model")))) and card.repeats_calls:
            out["chat_template_kwargs"] = {**out.get("chat_template_kwargs", {}), "offer_tools": False}
    _structured_output(out, dialect)
    return out


def _tool_choice(choice: Any, dialect: str) -> tuple[str, str | None]:
    """The choice as (auto, none or required; the name of the only tool allowed)."""
    if isinstance(choice, str):
        return choice, None
    if not isinstance(choice, dict):
        return "auto", None
    kind = choice.get("type")
    if dialect == "openai-chat" and kind == "function":
        return "required", choice["function"]["name"]
    if kind in ("function", "tool"):
        return "required", choice["name"]
    return {"any": "required"}.get(str(kind), str(kind)), None


def _name(tool: dict[str, Any], dialect: str) -> Any:
    return tool.get("function", {}).get("name") if dialect == "openai-chat" else tool.get("name")


def _force_call(out: dict[str, Any], dialect: str) -> None:
    begun: dict[str, Any] = {"role": "assistant", "content": CALL_BEGINS}
    turns = "messages"
    if dialect == "openai-responses":
        begun = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": CALL_BEGINS}]}
        turns = "input"
        if isinstance(out.get("input"), str):
            out["input"] = [{"role": "user", "content": out["input"]}]
    if not out.get(turns) or out[turns][-1] != begun:
        out[turns] = [*out.get(turns, ()), begun]
    out["tool_choice"] = {"type": "any"} if dialect == "anthropic" else "required"
    if dialect != "anthropic":
        out["parallel_tool_calls"] = False
    stop = out.get(_STOP_FIELD[dialect]) or []
    stop = [stop] if isinstance(stop, str) else list(stop)
    out[_STOP_FIELD[dialect]] = stop if CALL_ENDS in stop else [*stop, CALL_ENDS]
    # At its default temperature so small a model too often picks the wrong tool.
    if out.get("temperature") is None:
        out["temperature"] = 0


def _answers_a_result(out: dict[str, Any], dialect: str) -> bool:
    """Whether the last thing said is a tool's result."""
    turns = out.get("input") if dialect == "openai-responses" else out.get("messages")
    last = turns[-1] if isinstance(turns, list) and turns else {}
    if dialect == "openai-chat":
        return bool(last.get("role") == "tool")
    if dialect == "openai-responses":
        return bool(last.get("type") == "function_call_output")
    content = last.get("content")
    return isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)


def _structured_output(out: dict[str, Any], dialect: str) -> None:
    if dialect == "openai-chat":
        asked = out.get("response_format")
        if isinstance(asked, dict) and asked.get("type") == "json_schema":
            inner = {**asked["json_schema"], "schema": bounded(asked["json_schema"].get("schema", {}))}
            out["response_format"] = {**asked, "json_schema": inner}
    elif dialect == "openai-responses":
        asked = (out.get("text") or {}).get("format")
        if isinstance(asked, dict) and asked.get("type") == "json_schema":
            out["json_schema"] = bounded(asked["schema"])
        elif isinstance(asked, dict) and asked.get("type") == "json_object":
            out["response_format"] = {"type": "json_object"}
    elif (out.get("output_config") or {}).get("format"):
        raise UnsupportedOption(
            "output_format", "local-messages", "the server ignores it there; local/ and local-responses/ have it"
        )


def adapt_deltas(deltas: Sequence[d.Delta], body: Mapping[str, Any], dialect: str) -> list[d.Delta]:
    """One batch of deltas with the finish reason put right: an answer of as many tokens as were allowed was cut.

    Only ``/v1/responses`` needs it; the usage comes in the same wire event as the end.
    """
    limit = body.get("max_output_tokens")
    if dialect != "openai-responses" or not limit:
        return list(deltas)
    written = [delta.usage.output_tokens or 0 for delta in deltas if isinstance(delta, d.UsageReport)]
    if not written or written[-1] < limit:
        return list(deltas)
    return [
        replace(delta, reason="length")
        if isinstance(delta, d.Finish) and delta.reason in ("stop", "tool_calls")
        else delta
        for delta in deltas
    ]


def _bounded_tool(tool: dict[str, Any], dialect: str) -> dict[str, Any]:
    if dialect == "openai-chat":
        function = tool.get("function", {})
        return {**tool, "function": {**function, "parameters": bounded(function.get("parameters", {}))}}
    field = "parameters" if dialect == "openai-responses" else "input_schema"
    return {**tool, field: bounded(tool[field])} if field in tool else tool


_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAPS = ("properties", "$defs", "definitions", "patternProperties")
_SCHEMAS = ("items", "additionalProperties", "not")


def bounded(schema: Any) -> Any:
    """The schema with a limit on every string and array that has none; whatever fits it fits the original too."""
    if not isinstance(schema, dict):
        return schema
    out = dict(schema)
    types = out.get("type")
    types = types if isinstance(types, list) else [types]
    if "string" in types and not out.keys() & {"enum", "const", "maxLength", "format", "pattern"}:
        out["maxLength"] = max(MAX_STRING, out.get("minLength", 0))
    if "array" in types and "maxItems" not in out:
        out["maxItems"] = max(MAX_ITEMS, out.get("minItems", 0))
    for key in _SCHEMA_LISTS:
        if isinstance(out.get(key), list):
            out[key] = [bounded(item) for item in out[key]]
    for key in _SCHEMA_MAPS:
        if isinstance(out.get(key), dict):
            out[key] = {name: bounded(item) for name, item in out[key].items()}
    for key in _SCHEMAS:
        if key in out:
            out[key] = bounded(out[key])
    return out

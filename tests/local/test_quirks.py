"""The change of the body for llama.cpp: pure, idempotent, and nothing else than what was asked for in other words."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from rein_nb.ir import UnsupportedOption, Usage
from rein_nb.ir import deltas as d
from rein_nb.providers.local.quirks import (
    CALL_BEGINS,
    MAX_ITEMS,
    MAX_STRING,
    MAX_TOKENS,
    adapt_body,
    adapt_deltas,
    bounded,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [{"type": "function", "function": {"name": n, "parameters": SCHEMA}} for n in ("weather", "search")],
    "openai-responses": [{"type": "function", "name": n, "parameters": SCHEMA} for n in ("weather", "search")],
    "anthropic": [{"name": n, "input_schema": SCHEMA} for n in ("weather", "search")],
}
NAMED: dict[str, Any] = {
    "openai-chat": {"type": "function", "function": {"name": "search"}},
    "openai-responses": {"type": "function", "name": "search"},
    "anthropic": {"type": "tool", "name": "search"},
}
REQUIRED: dict[str, Any] = {"openai-chat": "required", "openai-responses": "required", "anthropic": {"type": "any"}}
TURNS = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages"}
STOP = {"openai-chat": "stop", "openai-responses": "stop", "anthropic": "stop_sequences"}

every_dialect = pytest.mark.parametrize("dialect", list(TOOLS))


def body(dialect: str, **fields: Any) -> dict[str, Any]:
    turns = TURNS[dialect]
    return {"model": "smollm2-135m", turns: [{"role": "user", "content": "hi"}], **fields}


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in tools]


@every_dialect
def test_a_plain_request_gains_a_token_limit_and_nothing_else(dialect: str) -> None:
    plain = body(dialect)
    adapted = adapt_body(plain, dialect)
    limit = "max_output_tokens" if dialect == "openai-responses" else "max_tokens"
    assert adapted == {**plain, limit: MAX_TOKENS}


@every_dialect
def test_a_limit_that_was_set_stays(dialect: str) -> None:
    limit = "max_output_tokens" if dialect == "openai-responses" else "max_tokens"
    assert adapt_body(body(dialect, **{limit: 7}), dialect)[limit] == 7


def test_the_newer_name_of_the_limit_counts_too() -> None:
    adapted = adapt_body(body("openai-chat", max_completion_tokens=7), "openai-chat")
    assert "max_tokens" not in adapted


@every_dialect
def test_a_required_call_is_begun_for_the_model(dialect: str) -> None:
    adapted = adapt_body(body(dialect, tools=TOOLS[dialect], tool_choice=REQUIRED[dialect]), dialect)
    last = adapted[TURNS[dialect]][-1]
    assert last["role"] == "assistant"
    assert (
        CALL_BEGINS in str(last["content"])
        or last["content"] == CALL_BEGINS
        or last["content"][0]["text"] == CALL_BEGINS
    )
    assert adapted[STOP[dialect]] == ["</tool_call>"]
    assert adapted["temperature"] == 0
    assert adapted["tool_choice"] == REQUIRED[dialect]
    assert names(adapted["tools"]) == ["weather", "search"]


@every_dialect
def test_a_named_choice_becomes_that_tool_alone_and_required(dialect: str) -> None:
    adapted = adapt_body(body(dialect, tools=TOOLS[dialect], tool_choice=NAMED[dialect]), dialect)
    assert names(adapted["tools"]) == ["search"]
    assert adapted["tool_choice"] == REQUIRED[dialect]


@every_dialect
def test_temperature_and_stop_sequences_that_were_set_stay(dialect: str) -> None:
    given = body(
        dialect, tools=TOOLS[dialect], tool_choice=REQUIRED[dialect], temperature=0.7, **{STOP[dialect]: ["END"]}
    )
    adapted = adapt_body(given, dialect)
    assert adapted["temperature"] == 0.7
    assert adapted[STOP[dialect]] == ["END", "</tool_call>"]


@every_dialect
def test_choice_none_sends_no_tools(dialect: str) -> None:
    none = {"type": "none"} if dialect == "anthropic" else "none"
    adapted = adapt_body(body(dialect, tools=TOOLS[dialect], tool_choice=none), dialect)
    assert "tools" not in adapted
    assert "tool_choice" not in adapted


@every_dialect
def test_it_is_pure_and_idempotent(dialect: str) -> None:
    for choice in (None, REQUIRED[dialect], NAMED[dialect]):
        given = body(dialect, tools=TOOLS[dialect], tool_choice=choice)
        before = copy.deepcopy(given)
        once = adapt_body(given, dialect)
        assert given == before
        assert adapt_body(once, dialect) == once


RESULTS: dict[str, dict[str, Any]] = {
    "openai-chat": {"role": "tool", "tool_call_id": "1", "content": "18 C"},
    "openai-responses": {"type": "function_call_output", "call_id": "1", "output": "18 C"},
    "anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "18 C"}]},
}


@every_dialect
def test_after_a_result_the_small_model_is_not_shown_the_tools_again(dialect: str) -> None:
    given = body(dialect, tools=TOOLS[dialect])
    assert "chat_template_kwargs" not in adapt_body(given, dialect)
    given[TURNS[dialect]] = [*given[TURNS[dialect]], RESULTS[dialect]]
    assert adapt_body(given, dialect)["chat_template_kwargs"] == {"offer_tools": False}
    assert "chat_template_kwargs" not in adapt_body({**given, "model": "another"}, dialect)
    forced = adapt_body({**given, "tool_choice": REQUIRED[dialect]}, dialect)
    assert "chat_template_kwargs" not in forced


def test_the_responses_dialect_s_output_schema_goes_where_the_server_reads_it() -> None:
    given = body("openai-responses", text={"format": {"type": "json_schema", "name": "c", "schema": SCHEMA}})
    assert adapt_body(given, "openai-responses")["json_schema"]["properties"]["city"]["maxLength"] == MAX_STRING


def test_a_string_input_can_be_forced_too() -> None:
    given = {"model": "m", "input": "hi", "tools": TOOLS["openai-responses"], "tool_choice": "required"}
    turns = adapt_body(given, "openai-responses")["input"]
    assert turns[0] == {"role": "user", "content": "hi"}
    assert len(turns) == 2


def test_bounds_reach_every_level_and_leave_what_is_bounded() -> None:
    schema = {
        "type": "object",
        "$defs": {"Tag": {"type": "string"}},
        "properties": {
            "kind": {"type": "string", "enum": ["a", "b"]},
            "short": {"type": "string", "maxLength": 3},
            "when": {"type": "string", "format": "date"},
            "long": {"type": "string", "minLength": 1000},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/Tag"}},
        },
    }
    out = bounded(schema)
    properties = out["properties"]
    assert out["$defs"]["Tag"] == {"type": "string", "maxLength": MAX_STRING}
    assert properties["kind"] == {"type": "string", "enum": ["a", "b"]}
    assert properties["short"]["maxLength"] == 3
    assert properties["when"] == {"type": "string", "format": "date"}
    assert properties["long"]["maxLength"] == 1000
    assert properties["maybe"]["anyOf"][0]["maxLength"] == MAX_STRING
    assert properties["tags"]["maxItems"] == MAX_ITEMS
    assert "maxLength" not in schema["properties"]["maybe"]["anyOf"][0]  # type: ignore[index]


def test_another_dialect_is_refused() -> None:
    with pytest.raises(ValueError, match="openai-chat, openai-responses, anthropic"):
        adapt_body({}, "google")


def test_structured_output_in_the_messages_dialect_is_refused() -> None:
    asked = body("anthropic", output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    with pytest.raises(UnsupportedOption, match="local-responses"):
        adapt_body(asked, "anthropic")


@pytest.mark.parametrize(("written", "reason"), [(4, "stop"), (5, "length")])
def test_a_responses_answer_of_as_many_tokens_as_allowed_was_cut(written: int, reason: str) -> None:
    end = [d.UsageReport(Usage(output_tokens=written)), d.Finish("stop", "completed"), d.End()]
    fixed = adapt_deltas(end, {"max_output_tokens": 5}, "openai-responses")
    assert fixed[1] == d.Finish(reason, "completed")  # type: ignore[arg-type]
    assert end[1] == d.Finish("stop", "completed")
    assert adapt_deltas(end, {"max_tokens": 5}, "openai-chat") == end

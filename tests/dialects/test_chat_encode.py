"""Requests in the Chat dialect: every option, message, tool and medium, each expressed or refused."""

from __future__ import annotations

from typing import Any

import pytest

from rein_nb.dialects.base import Quirks, Target
from rein_nb.dialects.chat_encode import merge_body
from rein_nb.ir import (
    Citation,
    MediaPart,
    Message,
    Options,
    Origin,
    Request,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolSpec,
    UnsupportedOption,
)
from tests.dialects.chat_wire import CODEC, body, limited, target, user

OWN = Origin(provider="acme", dialect="openai-chat", model="m1")
ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})


# -- options ------------------------------------------------------------------------------------------

EXPRESSED: dict[str, tuple[Any, dict[str, Any]]] = {
    "temperature": (0.5, {"temperature": 0.5}),
    "top_p": (0.9, {"top_p": 0.9}),
    "max_output_tokens": (7, {"max_tokens": 7}),
    "stop": (["x", "y"], {"stop": ["x", "y"]}),
    "seed": (3, {"seed": 3}),
    "frequency_penalty": (0.1, {"frequency_penalty": 0.1}),
    "presence_penalty": (-0.1, {"presence_penalty": -0.1}),
    "reasoning_effort": ("low", {"reasoning_effort": "low"}),
    "logprobs": (2, {"logprobs": True, "top_logprobs": 2}),
}
REFUSED = {"top_k": 5}


def test_every_option_there_is_has_a_test() -> None:
    assert EXPRESSED.keys() | REFUSED.keys() | {"model", "extensions"} == Options.model_fields.keys()


@pytest.mark.parametrize("name", EXPRESSED)
def test_an_option_is_expressed(name: str) -> None:
    value, expected = EXPRESSED[name]
    wire = body(user(), options={name: value})
    assert wire == {"model": "m1", "messages": [{"role": "user", "content": "hi"}], **expected}


@pytest.mark.parametrize("name", REFUSED)
def test_an_option_that_the_dialect_lacks_is_refused_before_anything_is_sent(name: str) -> None:
    with pytest.raises(UnsupportedOption, match=name):
        body(user(), options={name: REFUSED[name]})


@pytest.mark.parametrize("name", [*EXPRESSED, *REFUSED])
def test_an_option_that_the_model_refuses_is_refused(name: str) -> None:
    value = EXPRESSED[name][0] if name in EXPRESSED else REFUSED[name]
    with pytest.raises(UnsupportedOption, match="acme/m1"):
        body(user(), limited(unsupported_options=frozenset({name})), options={name: value})


def test_logprobs_without_alternatives() -> None:
    wire = body(user(), options={"logprobs": True})
    assert wire["logprobs"] is True
    assert "top_logprobs" not in wire


def test_servers_that_call_an_option_something_else() -> None:
    to = target(
        top_k_field="top_k", seed_field="random_seed", effort_field="reasoning.effort",
        max_tokens_field="max_completion_tokens",
    )  # fmt: skip
    wire = body(user(), to, options={"top_k": 4, "seed": 1, "reasoning_effort": "low", "max_output_tokens": 9})
    del wire["model"], wire["messages"]
    assert wire == {"top_k": 4, "random_seed": 1, "reasoning": {"effort": "low"}, "max_completion_tokens": 9}


def test_servers_that_lack_an_option() -> None:
    for quirks, option in ((Quirks(seed_field=None), "seed"), (Quirks(effort_field=None), "reasoning_effort")):
        to = Target(provider="acme", dialect="openai-chat", model="m1", quirks=quirks)
        with pytest.raises(UnsupportedOption, match=option):
            body(user(), to, options={option: EXPRESSED[option][0]})


@pytest.mark.parametrize(("efforts", "why"), [(("low", "high"), "low, high"), ((), "no thinking levels")])
def test_an_effort_that_the_model_does_not_know_is_refused_with_those_that_it_does(
    efforts: tuple[str, ...], why: str
) -> None:
    with pytest.raises(UnsupportedOption, match=why):
        body(user(), limited(reasoning_efforts=efforts), options={"reasoning_effort": "medium"})


def test_extensions_of_this_provider_and_dialect_are_merged_others_are_not() -> None:
    wire = body(
        user(),
        streamed=True,
        options={
            "temperature": 1,
            "extensions": {
                "openai-chat": {"n": 2, "metadata": {"a": 1}},
                "acme": {"stream_options": {"include_obfuscation": False}, "metadata": {"b": 2}, "temperature": None},
                "other": {"secret": 1},
            },
        },
    )
    assert wire["n"] == 2
    assert wire["metadata"] == {"a": 1, "b": 2}
    assert wire["stream_options"] == {"include_usage": True, "include_obfuscation": False}
    assert "temperature" not in wire
    assert "secret" not in wire


def test_merging_changes_no_object_of_the_caller() -> None:
    inner = {"a": {"b": 1}}
    merged = {"x": inner}
    merge_body(merged, {"x": {"a": {"c": 2}}})
    assert merged == {"x": {"a": {"b": 1, "c": 2}}}
    assert inner == {"a": {"b": 1}}


def test_the_servers_default_body_and_path() -> None:
    to = Target(
        provider="acme", dialect="openai-chat", model="m1",
        quirks=Quirks(default_body={"safe_prompt": False, "temperature": 0.1}, path="/chat"),
    )  # fmt: skip
    call = CODEC.encode(Request(messages=[user()], options=Options(temperature=1)), to, stream=False)
    assert call.path == "/chat"
    assert (call.body["safe_prompt"], call.body["temperature"]) == (False, 1)
    assert CODEC.encode(Request(messages=[user()]), target(), stream=True).path == "/chat/completions"


# -- output format ------------------------------------------------------------------------------------


def test_output_formats() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert "response_format" not in body(user(), output_format={"type": "text"})
    assert body(user(), output_format={"type": "json"})["response_format"] == {"type": "json_object"}
    form = body(
        user(),
        output_format={"type": "json_schema", "name": "out", "description": "d", "json_schema": schema, "strict": True},
    )["response_format"]
    assert form["type"] == "json_schema"
    assert {k: v for k, v in form["json_schema"].items() if k != "schema"} == {
        "name": "out",
        "description": "d",
        "strict": True,
    }
    assert form["json_schema"]["schema"]["additionalProperties"] is False
    with pytest.raises(UnsupportedOption, match="output_format"):
        body(user(), limited(structured_output=False), output_format={"type": "json_schema", "json_schema": schema})


# -- tools --------------------------------------------------------------------------------------------


def test_tools_and_choices() -> None:
    wire = body(user(), tools=[ADD])
    assert wire["tools"] == [
        {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": ADD.parameters}}
    ]
    assert "tool_choice" not in wire
    for mode in ("auto", "none", "required"):
        assert body(user(), tools=[ADD], tool_choice={"mode": mode})["tool_choice"] == mode
    named = body(user(), tools=[ADD], tool_choice={"mode": "named", "name": "add"})
    assert named["tool_choice"] == {"type": "function", "function": {"name": "add"}}


def test_what_a_server_cannot_do_with_tools_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="tools"):
        body(user(), limited(tools=False), tools=[ADD])
    with pytest.raises(UnsupportedOption, match="tool_choice"):
        body(user(), target(named_tool_choice=False), tools=[ADD], tool_choice={"mode": "named", "name": "add"})


def test_strict_tools_only_where_they_are_known() -> None:
    strict = ADD.model_copy(update={"strict": True})
    plain = CODEC.encode(Request(messages=[user()], tools=[strict]), target(), stream=False)
    assert "strict" not in plain.body["tools"][0]["function"]
    assert any("strict" in warning for warning in plain.warnings)
    known = body(user(), target(strict_tools=True), tools=[strict])["tools"][0]["function"]
    assert known["strict"] is True
    assert known["parameters"]["required"] == ["a"]


def test_tools_of_the_providers_own_kind() -> None:
    own = ToolSpec(name="x", extra={"acme": {"type": "web_search", "depth": 2}})
    custom = ToolSpec(name="expr", description="An expression.", extra={"openai-chat": {"type": "custom"}})
    cached = ADD.model_copy(update={"extra": {"acme": {"cache_control": {"type": "ephemeral"}}}})
    wire = body(user(), tools=[own, custom, cached])["tools"]
    assert wire[0] == {"type": "web_search", "depth": 2}
    assert wire[1] == {"type": "custom", "custom": {"name": "expr", "description": "An expression."}}
    assert wire[2]["cache_control"] == {"type": "ephemeral"}


# -- messages -----------------------------------------------------------------------------------------


def test_system_messages_stay_where_they_are() -> None:
    messages = [
        Message(role="system", content=["One.", "Two."]),
        user("a"),
        Message(role="system", content="Now in French."),
        user("b"),
    ]
    assert body(messages)["messages"] == [
        {"role": "system", "content": "One.\n\nTwo."},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "Now in French."},
        {"role": "user", "content": "b"},
    ]


def test_media_in_user_messages() -> None:
    pixel = b"\x89PNG"
    wire = body(
        Message(
            role="user",
            content=[
                "look",
                MediaPart(kind="image", mime_type="image/png", data=pixel),
                MediaPart(kind="image", url="https://x.test/a.jpg"),
                MediaPart(kind="audio", mime_type="audio/mpeg", data=b"ID3"),
                MediaPart(kind="document", mime_type="application/pdf", data=b"%PDF", name="a.pdf"),
                MediaPart(kind="document", file_id="file-1"),
            ],
        )
    )["messages"][0]["content"]
    assert wire == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        {"type": "image_url", "image_url": {"url": "https://x.test/a.jpg"}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]


def test_a_callers_own_fields_of_parts_and_messages_are_sent() -> None:
    mark = {"acme": {"cache_control": {"type": "ephemeral"}}, "other": {"x": 1}}
    wire = body(
        [
            Message(role="system", parts=[TextPart(text="s", extra=mark)]),
            Message(role="user", parts=[TextPart(text="u", extra=mark)], extra={"acme": {"name": "ann"}}),
        ]
    )["messages"]
    block = {"cache_control": {"type": "ephemeral"}}
    assert wire == [
        {"role": "system", "content": [{"type": "text", "text": "s", **block}]},
        {"role": "user", "content": [{"type": "text", "text": "u", **block}], "name": "ann"},
    ]


def test_tool_results_follow_their_calls_and_their_media_follow_them() -> None:
    calls = [ToolCall(id="c1", name="shot", arguments={}), ToolCall(id="c2", name="add", arguments={"a": 1})]
    picture = MediaPart(kind="image", mime_type="image/png", data=b"\x89PNG")
    messages = [
        user(),
        Message(role="assistant", tool_calls=calls, origin=OWN),
        Message(
            role="tool",
            parts=[
                ToolResult(tool_call_id="c1", content=[picture]),
                ToolResult(tool_call_id="c2", content="3", details={"not": "sent"}),
            ],
        ),
    ]
    wire = body(messages)["messages"]
    assert [m["role"] for m in wire] == ["user", "assistant", "tool", "tool", "user"]
    assert [m["tool_call_id"] for m in wire[2:4]] == ["c1", "c2"]
    assert wire[2]["content"]
    assert wire[3] == {"role": "tool", "tool_call_id": "c2", "content": "3"}
    assert wire[4]["content"][-1]["image_url"]["url"].startswith("data:image/png")
    assert wire[1] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "shot", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
        ],
    }


@pytest.mark.parametrize(("status", "text"), [("ok", "(no output)"), ("timed_out", "(timed_out)")])
def test_an_empty_tool_result_says_so(status: str, text: str) -> None:
    messages = [
        user(),
        Message(role="assistant", tool_calls=[ToolCall(id="c1", name="f")]),
        Message(role="tool", parts=[ToolResult(tool_call_id="c1", status=status)]),  # type: ignore[arg-type]
    ]
    assert body(messages)["messages"][2]["content"] == text


def test_no_empty_messages_and_no_empty_blocks() -> None:
    messages = [
        Message(role="system", content=""),
        user("a"),
        Message(role="assistant", parts=[TextPart(text="")]),
        Message(role="user", content=["", "b"]),
    ]
    assert body(messages)["messages"] == [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


def test_an_answer_in_parts_goes_out_as_one_text_without_what_has_no_place() -> None:
    message = Message(
        role="assistant",
        parts=[
            TextPart(text="a", citations=[Citation(source="https://x.test")]),
            ServerToolPart(id="1", name="search", output="x"),
            TextPart(text="b"),
        ],
        origin=OWN,
    )
    call = CODEC.encode(Request(messages=[user(), message]), target(), stream=False)
    assert call.body["messages"][1] == {"role": "assistant", "content": "ab"}
    assert any("search" in warning for warning in call.warnings)


# -- reasoning goes back --------------------------------------------------------------------------------


def thought(text: str, *, origin: Origin | None = OWN, calls: tuple[str, ...] = (), said: str = "") -> Message:
    parts: list[Any] = [ThinkingPart(text=text), *([TextPart(text=said)] if said else [])]
    parts += [ToolCall(id=id, name="add", arguments={}) for id in calls]
    return Message(role="assistant", parts=parts, origin=origin)


def result(id: str) -> Message:
    return Message(role="tool", tool_call_id=id, content="ok")


def replayed(to: Target, messages: list[Message]) -> list[str | None]:
    return [m.get("reasoning_content") for m in body(messages, to)["messages"] if m["role"] == "assistant"]


def test_reasoning_goes_back_when_the_server_wants_it() -> None:
    history = [
        user("1"), thought("plain", said="x"),
        user("2"), thought("calls", calls=("c1",)), result("c1"), thought("after", said="y"),
        user("3"), thought("now", calls=("c2",)), result("c2"),
    ]  # fmt: skip
    field = "reasoning_content"
    assert replayed(target(reasoning_field=field), history) == [None] * 4
    assert replayed(target(reasoning_field=field, reasoning_replay="always"), history) == [
        "plain",
        "calls",
        "after",
        "now",
    ]
    # DeepSeek: every answer of a turn that called a tool, and only those.
    assert replayed(target(reasoning_field=field, reasoning_replay="tool_turns"), history) == [
        None,
        "calls",
        "after",
        "now",
    ]


def test_reasoning_goes_back_to_its_origin_only() -> None:
    to = target(reasoning_field="reasoning_content", reasoning_replay="always")
    other = Origin(provider="other", dialect="openai-chat", model="m1")
    assert replayed(to, [user(), thought("hm", origin=other, said="x")]) == [None]
    assert replayed(to, [user(), thought("hm", origin=None, said="x")]) == ["hm"]


def test_reasoning_as_a_part_of_the_content() -> None:
    to = target(reasoning_field="content", reasoning_replay="always")
    wire = body([user(), thought("hm", said="x")], to)["messages"][1]
    assert wire["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "x"},
    ]


def test_what_the_origin_signed_goes_back_to_it_alone() -> None:
    signed = {"acme": {"extra_content": {"google": {"thought_signature": "S"}}}}
    call = ToolCall(id="c1", name="add", extra=signed)
    message = Message(
        role="assistant", parts=[call], origin=OWN, extra={"acme": {"thought_signature": "M", "channel": "x"}}
    )
    wire = body([user(), message, result("c1")])["messages"][1]
    assert wire["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "S"}}
    assert wire["thought_signature"] == "M"
    assert "channel" not in wire
    elsewhere = body([user(), message, result("c1")], target("elsewhere"))["messages"][1]
    assert "extra_content" not in elsewhere["tool_calls"][0]
    assert "thought_signature" not in elsewhere

"""Ollama's own dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rein_nb.dialects.base import Quirks, Target, decode
from rein_nb.dialects.framing import NDJSONParser
from rein_nb.dialects.ollama import OPTIONS, OllamaCodec
from rein_nb.ir import (
    Completion,
    MediaPart,
    Message,
    Options,
    Origin,
    Request,
    StreamDone,
    StreamError,
    StreamEvent,
    ThinkingPart,
    ToolCall,
    ToolSpec,
    UnsupportedOption,
)
from rein_nb.stream import Accumulator
from tests.support import load_recording, recordings

CODEC = OllamaCodec()
TARGET = Target(provider="ollama", dialect="ollama", model="qwen3:4b", quirks=Quirks(framing="ndjson"))


def stream(*lines: Any, to: Target = TARGET) -> Completion:
    accumulator, decoder = Accumulator(to.origin), CODEC.decoder(to)
    out: list[StreamEvent] = []
    for line in lines:
        for delta in decoder.feed(line):
            out += accumulator.feed(delta)
    for delta in decoder.close():
        out += accumulator.feed(delta)
    out += accumulator.end()
    assert sum(isinstance(event, StreamDone | StreamError) for event in out) == 1
    return accumulator.completion


def line(message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"model": "qwen3:4b", "created_at": "2026-01-01T00:00:00Z", "message": message or {}, "done": False, **more}


END: dict[str, Any] = {
    "done": True,
    "done_reason": "stop",
    "prompt_eval_count": 7,
    "eval_count": 3,
    "total_duration": 5,
}


def test_text_thinking_calls_and_usage() -> None:
    completion = stream(
        line({"role": "assistant", "content": "", "thinking": "hm"}),
        line({"role": "assistant", "content": "It "}),
        line({"role": "assistant", "content": "is."}),
        line(
            {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]}
        ),
        line(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"function": {"index": 0, "name": "add", "arguments": {"a": 2}}}],
            }
        ),
        line({"role": "assistant", "content": ""}, **END),
    )
    assert (completion.thinking, completion.text) == ("hm", "It is.")
    assert [call.arguments for call in completion.runnable_tool_calls] == [{"a": 1}, {"a": 2}]
    assert len({call.id for call in completion.tool_calls}) == 2
    assert (completion.finish_reason, completion.native_finish_reason) == ("tool_calls", "stop")
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (7, 3)
    assert completion.extra["ollama"]["total_duration"] == 5


def test_the_end_of_the_lines_without_done_is_a_cut() -> None:
    completion = stream(line({"role": "assistant", "content": "I will"}))
    assert completion.error is not None
    assert (completion.error.kind, completion.text) == ("stream_cut", "I will")


def test_an_error_line_is_a_fault() -> None:
    completion = stream(line({"role": "assistant", "content": "a"}), {"error": "model runner is overloaded"})
    assert completion.error is not None
    assert (completion.error.kind, completion.text) == ("overloaded", "a")


def test_whole_and_streamed_answers_agree() -> None:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi",
        "thinking": "hm",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}],
    }
    streamed, whole = stream(line(message, **END)), decode(CODEC, line(message, **END), TARGET)
    assert streamed.model_dump(exclude={"timing"}) == whole.model_dump(exclude={"timing"})
    assert whole.error is None


@pytest.mark.parametrize("answer", ["<html>", None, {}, {"message": "x"}, []])
def test_what_is_no_answer_is_malformed(answer: Any) -> None:
    completion = decode(CODEC, answer, TARGET)
    assert completion.error is not None
    assert completion.error.kind == "malformed_response"


@pytest.mark.parametrize(
    "bad",
    ["", "{", 5, [], {"message": 3}, {"done": "x"}, {"message": {"tool_calls": [3, {"function": 1}], "images": [4]}}],
)
def test_odd_lines_raise_nothing(bad: Any) -> None:
    assert stream(line({"role": "assistant", "content": "a"}), bad, line({}, **END)).text == "a"


def test_think_tags_by_quirk() -> None:
    to = Target(provider="ollama", dialect="ollama", model="m", quirks=Quirks(think_tags=True))
    completion = stream(
        line({"role": "assistant", "content": "<think>h"}),
        line({"role": "assistant", "content": "m</think>4"}),
        line(**END),
        to=to,
    )
    assert (completion.thinking, completion.text) == ("hm", "4")


def encode(messages: list[Message], to: Target = TARGET, **fields: Any) -> dict[str, Any]:
    return CODEC.encode(Request(messages=messages, **fields), to, stream=fields.pop("stream", False)).body


USER = Message(role="user", content="hi")
VALUES = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 5, "max_output_tokens": 9, "stop": ["x"], "seed": 1, "frequency_penalty": 0.1,
    "presence_penalty": 0.2,
}  # fmt: skip


def test_every_option_is_expressed() -> None:
    assert VALUES.keys() | {"model", "extensions", "reasoning_effort", "logprobs"} == Options.model_fields.keys()
    body = encode(
        [USER],
        options={**VALUES, "logprobs": 2, "extensions": {"ollama": {"keep_alive": "5m", "options": {"num_ctx": 8192}}}},
    )
    assert body["options"] == {**{OPTIONS[name]: value for name, value in VALUES.items()}, "num_ctx": 8192}
    assert (body["logprobs"], body["top_logprobs"], body["keep_alive"], body["stream"]) == (True, 2, "5m", False)


@pytest.mark.parametrize(("effort", "think"), [("none", False), ("on", True), ("high", "high")])
def test_effort_is_a_switch_or_a_level(effort: str, think: object) -> None:
    assert encode([USER], options={"reasoning_effort": effort})["think"] == think


def test_tools_and_what_cannot_be_forced() -> None:
    tools = [ToolSpec(name="add", description="d")]
    assert encode([USER], tools=tools)["tools"][0]["function"]["name"] == "add"
    assert "tools" not in encode([USER], tools=tools, tool_choice={"mode": "none"})
    for choice in ({"mode": "required"}, {"mode": "named", "name": "add"}):
        with pytest.raises(UnsupportedOption, match="tool_choice"):
            encode([USER], tools=tools, tool_choice=choice)


def test_output_formats() -> None:
    schema = {"type": "object", "properties": {}}
    assert encode([USER], output_format={"type": "json"})["format"] == "json"
    assert encode([USER], output_format={"type": "json_schema", "json_schema": schema})["format"] == schema


def test_a_history() -> None:
    origin = Origin(provider="ollama", dialect="ollama", model="qwen3:4b")
    history = [
        Message(role="system", content="Be brief."),
        Message(role="user", content=["look", MediaPart(kind="image", mime_type="image/png", data=b"\x89PNG")]),
        Message(
            role="assistant",
            parts=[ThinkingPart(text="hm"), ToolCall(id="c1", name="add", arguments={"a": 1})],
            origin=origin,
        ),
        Message(role="tool", tool_call_id="c1", name="add", content="3"),
    ]
    messages = encode(history)["messages"]
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "look", "images": ["iVBORw=="]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}],
        },
        {"role": "tool", "content": "3", "tool_name": "add", "tool_call_id": "c1"},
    ]
    thinking = Target(
        provider="ollama", dialect="ollama", model="qwen3:4b", quirks=Quirks(reasoning_replay="tool_turns")
    )
    assert encode(history, thinking)["messages"][2]["thinking"] == "hm"


def test_recorded_streams(shared: object) -> None:
    seen = 0
    for path in recordings("openai-compatible"):
        for exchange in load_recording(path)["exchanges"]:
            if not exchange["request"]["path"].endswith("/api/chat") or exchange["response"]["status"] != 200:
                continue
            seen += 1
            body = exchange["response"]["body"]
            lines = [json.loads(text) for text in body.splitlines() if text.strip()]
            parser = NDJSONParser()
            framed = [json.loads(data) for _, data in [*parser.feed(body.encode()), *parser.close()]]
            assert framed == lines
            completion = stream(*lines)
            assert completion.text == "".join(item["message"]["content"] for item in lines)
            calls = [call["function"] for item in lines for call in item["message"].get("tool_calls", [])]
            assert [(c.name, c.arguments) for c in completion.tool_calls] == [
                (c["name"], c["arguments"]) for c in calls
            ]
            assert completion.usage.output_tokens == lines[-1]["eval_count"]
            cut = stream(*lines[:-1])
            assert cut.error is not None
            assert cut.text == completion.text
    assert seen == 2

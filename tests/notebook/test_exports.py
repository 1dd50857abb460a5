"""Exports: every kept conversation as a page, Markdown and JSON lines, and JSON lines back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rein_nb import Agent, Session
from rein_nb.ir import Completion, MediaPart, Message, ProviderError, ToolCall, Usage
from rein_nb.notebook import from_jsonl
from rein_nb.testing import ScriptedProvider
from tests.notebook.danger import visible_text
from tests.notebook.hostile import PIXEL
from tests.notebook.script import weather


def sources() -> dict[str, Any]:
    result = weather().events[-1].result
    return {"result": result, "completion": result.completion, "message": result.messages[-1]}


@pytest.mark.parametrize("kind", ["result", "completion", "message"])
def test_everything_kept_can_be_written_out(kind: str) -> None:
    source = sources()[kind]
    page = source.to_html(title="A & B")
    assert page.startswith("<!DOCTYPE html>")
    assert "<title>A &amp; B</title>" in page
    assert "<script" not in page
    for text in (visible_text(page), source.to_markdown()):
        assert "Take an umbrella for the evening." in text
    for line in source.to_jsonl().splitlines():
        json.loads(line)


@pytest.mark.parametrize("kind", ["result", "completion"])
def test_json_lines_come_back_as_they_went_out(kind: str) -> None:
    source = sources()[kind]
    assert from_jsonl(source.to_jsonl()) == source


def test_messages_come_back_with_media_calls_and_odd_characters() -> None:
    messages = [
        Message(
            role="user",
            content=["line\u2028end \U0001f642", MediaPart(kind="image", mime_type="image/png", data=PIXEL)],
        ),
        Message(role="assistant", tool_calls=[ToolCall(id="1", name="add", arguments={"a": 1.5, "b": None})]),
        Message(role="tool", tool_call_id="1", content="3"),
    ]
    agent = Agent(ScriptedProvider.llm("x"), messages=messages)
    assert from_jsonl(agent.to_jsonl()) == messages
    assert from_jsonl(messages[0].to_jsonl()) == messages[:1]


def test_a_failed_run_comes_back_with_its_fault() -> None:
    agent = Agent(ScriptedProvider.llm("half of it, and the rest", fault="mid_stream"))
    with pytest.raises(ProviderError) as caught:
        agent.run("hi")
    result = caught.value.result
    assert result is not None
    assert result.error is not None
    assert from_jsonl(result.to_jsonl()) == result


def test_a_session_is_written_out_whole(tmp_path: Any) -> None:
    session = Session.new("notes", store=tmp_path / "s.db")
    agent = Agent(ScriptedProvider.llm("The *answer*."), session=session)
    agent.run("A question")
    assert from_jsonl(session.to_jsonl()) == agent.messages
    assert "The *answer*." in session.to_markdown()
    assert "<em>answer</em>" in session.to_html()


def test_secrets_are_masked_in_json_lines() -> None:
    text = Message(role="user", content="sk-proj-abcdEFGH1234567890abcdEFGH1234567890").to_jsonl()
    assert "abcdEFGH" not in text
    assert "redacted" in from_jsonl(text)[0].text  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "begins with"),
        ("{}", "begins with"),
        ("[1]", "expected an object"),
        ("{", "line 1"),
        ('{"type": "transcript", "of": "messages", "version": 9}', "version 1"),
        ('{"type": "transcript", "of": "poems", "version": 1}', "'poems'"),
        ('{"type": "transcript", "of": "messages", "version": 1}\n{"type": "message", "role": "nobody"}', "damaged"),
        ('{"type": "transcript", "of": "completion", "version": 1}', "damaged"),
    ],
)
def test_what_is_no_transcript_is_told(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_jsonl(text)


def test_a_completion_without_a_message_number_comes_back() -> None:
    completion = Completion(message=Message(role="assistant", content="x"), usage=Usage(output_tokens=1), model="m")
    assert from_jsonl(completion.to_jsonl()) == completion

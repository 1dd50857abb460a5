"""Recordings: played back through the real decoder, with no key and no network."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from rein_nb.agent import Agent
from rein_nb.compare import compare
from rein_nb.ir import ProviderError
from rein_nb.llm import LLM
from rein_nb.store import RecordingMiss, record, replay
from rein_nb.testing.scripted import ScriptedProvider
from rein_nb.testing.server import serve_recording
from tests.support import load_recording, recordings

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY")


def chat(*pieces: str, call: dict[str, Any] | None = None) -> dict[str, Any]:
    """A streamed Chat Completions answer."""
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in pieces]
    if call is not None:
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        deltas.append({"tool_calls": [{"index": 0, "id": call["id"], "type": "function", "function": function}]})
    chunks: list[dict[str, Any]] = [
        {"id": "r1", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in deltas
    ]
    chunks.append(
        {
            "id": "r1",
            "model": "m",
            "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call else "stop"}],
        }
    )
    chunks.append(
        {
            "id": "r1",
            "model": "m",
            "choices": [],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        }
    )
    return {"body": "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SECRET = "sk-" + "n0tReal" * 5


def model(url: str | None = None, key: str | None = "k") -> LLM:
    return LLM.named("openai-compatible/m", base_url=url or "http://127.0.0.1:9/v1", api_key=key, max_retries=0)


def recorded(tmp_path: Path, *answers: Any, prompts: tuple[str, ...] = ("hi",)) -> tuple[Path, list[Any]]:
    path = tmp_path / "calls.jsonl"
    with serve_recording(list(answers)) as server, record(path):
        llm = model(server.base_url + "/v1", SECRET)
        done = [llm.chat(prompt) if kind == "whole" else list(llm.stream(prompt))[-1].completion for kind, prompt in
                [("stream", prompt) for prompt in prompts]]  # fmt: skip
    return path, done


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_recorded_stream_plays_back_equal_without_server_and_key(tmp_path: Path) -> None:
    path, (original,) = recorded(tmp_path, chat("Hel", "lo"))
    with replay(path):
        played = list(model().stream("hi"))
    assert [chunk.text for chunk in played if chunk.type == "text"] == ["Hel", "lo"]
    again = played[-1].completion
    assert again is not None
    assert again.message == original.message
    assert (again.usage, again.finish_reason, again.response_id) == (original.usage, original.finish_reason, "r1")


def test_replay_needs_no_key_where_the_provider_does(tmp_path: Path) -> None:
    path, _ = recorded(tmp_path, chat("x"))
    with pytest.raises(ValueError, match="no API key"):
        LLM.named("openai/gpt-5")
    with replay(path), pytest.raises(RecordingMiss):
        LLM.named("openai/gpt-5").chat("hi")
    with pytest.raises(ValueError, match="no API key"):
        LLM.named("openai/gpt-5")


def test_an_agents_tool_run_plays_back_with_its_tools_really_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    answers = [chat(call={"id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}}), chat("three")]
    with serve_recording(answers) as server, record(path):
        first = Agent(model(server.base_url + "/v1"), tools=[add]).run("1+2?")
    ran: list[tuple[int, int]] = []

    def counted(a: int, b: int) -> int:
        """Add two numbers."""
        ran.append((a, b))
        return a + b

    counted.__name__ = "add"
    with replay(path):
        second = Agent(model(), tools=[counted]).run("1+2?")
    assert ran == [(1, 2)]
    assert second.messages == first.messages
    assert second.usage == first.usage


def test_whole_answers_are_recorded_and_played_too(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    answer = {
        "id": "r",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
    }
    with serve_recording([{"json": answer}]) as server, record(path):
        assert model(server.base_url + "/v1").chat("hi").text == "whole"
    with replay(path):
        assert model().chat("hi").text == "whole"
        with pytest.raises(RecordingMiss, match="stream"):
            list(model().stream("hi"))


def test_errors_play_back_as_the_same_errors(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    refusal = {
        "status": 429,
        "headers": {"retry-after": "7"},
        "json": {"error": {"message": "slow down", "code": "rate"}},
    }
    with serve_recording([refusal]) as server, record(path), pytest.raises(ProviderError) as original:
        model(server.base_url + "/v1").chat("hi")
    with replay(path), pytest.raises(ProviderError) as played:
        model().chat("hi")
    assert type(played.value) is type(original.value)
    assert played.value.info == original.value.info


def test_equal_requests_play_in_order_and_the_last_again(tmp_path: Path) -> None:
    path, _ = recorded(tmp_path, chat("one"), chat("two"), prompts=("hi", "hi"))
    with replay(path):
        texts = ["".join(c.text for c in model().stream("hi")) for _ in range(3)]
    assert texts == ["one", "two", "two"]


def test_a_miss_names_the_nearest_request_and_what_differs(tmp_path: Path) -> None:
    path, _ = recorded(tmp_path, chat("a"), chat("b"), prompts=("what is the capital of France?", "something else"))
    with replay(path) as playing, pytest.raises(RecordingMiss) as miss:
        list(model().stream("what is the capital of Spain?", temperature=0.5))
    text = str(miss.value)
    assert "(2 recorded)" in text
    assert (
        'body.messages[0].content: recorded "what is the capital of France?", asked "what is the capital of Spain?"'
        in text
    )
    assert "body.temperature: asked 0.5, not recorded" in text
    assert miss.value.nearest == playing.exchanges[0].request
    with replay(path), pytest.raises(RecordingMiss) as other:
        LLM.named("anthropic/claude-sonnet-4-5").chat("hi")
    assert other.value.nearest is None


def test_auto_plays_what_is_there_and_records_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "auto.jsonl"
    for expected in (2, 0):
        with serve_recording([chat("a"), chat("b")]) as server, replay(path, mode="auto"):
            llm = model(server.base_url + "/v1")
            assert ["".join(c.text for c in llm.stream(p)) for p in ("one", "two")] == ["a", "b"]
            assert len(server.requests) == expected
    with replay(path):
        assert "".join(c.text for c in model().stream("two")) == "b"


def test_no_key_and_no_secret_of_a_prompt_enters_the_file(tmp_path: Path) -> None:
    path, _ = recorded(tmp_path, chat(f"you said {SECRET}"), prompts=(f"my key is {SECRET}",))
    text = path.read_text(encoding="utf-8")
    assert SECRET not in text
    assert "authorization" not in text.lower()
    with replay(path):
        assert "".join(c.text for c in model().stream(f"my key is {SECRET}")) == "you said [redacted]"


def test_a_run_that_was_broken_off_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    with serve_recording([chat(*(["x "] * 50))], delay_s=0.02, cuts="events") as server, record(path) as recording:
        for chunk in model(server.base_url + "/v1").stream("hi"):
            assert chunk.text == "x "
            break
        assert recording.exchanges == []
    assert not path.exists()


def test_recorded_speed_is_kept_scaled_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with serve_recording([chat("a", "b", "c", "d")], delay_s=0.1, cuts="events") as server, record(path) as recording:
        list(model(server.base_url + "/v1").stream("hi"))
        took = recording.exchanges[0].seconds
    for speed, low, high in (
        (None, 0.0, 0.3 * took),
        (1.0, 0.9 * took - 0.1, 3 * took),
        (4.0, 0.2 * took - 0.1, 0.8 * took),
    ):
        with replay(path, speed=speed):
            start = time.perf_counter()
            list(model().stream("hi"))
            assert low <= time.perf_counter() - start <= high
    with pytest.raises(ValueError, match="speed must be a positive number"):
        replay(path, speed=0)


def test_only_one_models_calls_are_recorded_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    with serve_recording([chat("a"), chat("b")]) as server:
        first, second = model(server.base_url + "/v1"), model(server.base_url + "/v1")
        with record(path, only=first) as recording:
            list(first.stream("hi"))
            list(second.stream("hi"))
            assert len(recording.exchanges) == 1
            assert ScriptedProvider.llm(["free"]).chat("x").text == "free"


def test_outside_the_block_nothing_is_recorded_or_played(tmp_path: Path) -> None:
    path, _ = recorded(tmp_path, chat("a"))
    before = path.read_bytes()
    with serve_recording([chat("live")]) as server:
        with replay(path):
            pass
        assert "".join(c.text for c in model(server.base_url + "/v1").stream("hi")) == "live"
    assert path.read_bytes() == before


def test_a_comparison_plays_back_with_equal_answers(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with serve_recording([chat("A"), chat("A")]) as server, record(path):
        first = compare(["p", "q"], {"m": model(server.base_url + "/v1")}, concurrency=1)
    with replay(path):
        second = compare(["p", "q"], {"m": model()})
    assert second.table().equals(first.table())


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'{"format":"other"}\n', "is no recording"),
        (b'{"format":"rein_nb.recording","version":9}\n', "versions up to 1"),
        (b'{"format":"rein_nb.recording","version":1}\n{"key":"k"}\n', "line 2: no recorded exchange"),
    ],
)
def test_files_that_are_no_recording_are_named(tmp_path: Path, content: bytes, error: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=error):
        replay(path)
    with pytest.raises(FileNotFoundError, match="there is no recording"):
        replay(tmp_path / "none.jsonl")


def test_C101_a_recording_with_a_broken_tail_goes_on(tmp_path: Path) -> None:
    path, _ = recorded(tmp_path, chat("a"))
    path.write_bytes(path.read_bytes() + b'{"key":"half')
    with serve_recording([chat("b")]) as server, record(path):
        list(model(server.base_url + "/v1").stream("other"))
    with replay(path) as playing:
        assert len(playing.exchanges) == 2
        assert "".join(c.text for c in model().stream("other")) == "b"


PROVIDERS = {
    "anthropic": ("anthropic/m", ""),
    "openai-chat": ("openai-chat/m", "/v1"),
    "openai-responses": ("openai/m", "/v1"),
    "google": ("google/m", "/v1beta"),
}


@pytest.mark.parametrize("folder", PROVIDERS)
def test_recorded_traffic_of_every_dialect_plays_back_to_the_same_completions(
    shared: Path, tmp_path: Path, folder: str
) -> None:
    name, base = PROVIDERS[folder]
    paths = recordings(folder)
    answers = [exchange for path in paths for exchange in load_recording(path)["exchanges"]][:150]
    path = tmp_path / "all.jsonl"
    live: list[Any] = []
    with serve_recording({"exchanges": answers}) as server, record(path):
        llm = LLM.named(name, base_url=server.base_url + base, api_key="k", max_retries=0)
        for n in range(len(answers)):
            live.append(list(llm.stream(f"question {n}"))[-1].completion)
    with replay(path) as playing:
        llm = LLM.named(name, base_url="http://127.0.0.1:9" + base, api_key="k", max_retries=0)
        played = [list(llm.stream(f"question {n}"))[-1].completion for n in range(len(answers))]
    assert len(playing.exchanges) == len(answers)
    for n, (was, now) in enumerate(zip(live, played, strict=True)):
        for what in ("message", "usage", "finish_reason", "native_finish_reason", "error", "warnings", "response_id"):
            assert getattr(now, what) == getattr(was, what), f"answer {n} differs in its {what}"
    assert len({completion.text for completion in live}) > 5

"""Every recorded Gemini and Code Assist answer: nothing lost, one terminal event, however it is cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rein_nb.dialects.base import Target
from rein_nb.dialects.framing import SSEParser, parse_event
from rein_nb.dialects.google import GoogleCodec
from rein_nb.dialects.google_code_assist import CodeAssistCodec
from rein_nb.ir import (
    Completion,
    MediaPart,
    Message,
    Request,
    ServerToolPart,
    StreamDone,
    StreamError,
    StreamEvent,
    TextPart,
    ThinkingPart,
    ToolCall,
)
from rein_nb.ir.base import loads
from rein_nb.stream import Accumulator
from tests.support import load_recording, recordings

CODECS = {"google": GoogleCodec(), "google-code-assist": CodeAssistCodec()}
GENERATE = ("generateContent", "streamGenerateContent")


def exchanges() -> list[Any]:
    found = []
    for path in recordings("google", "google-code-assist"):
        for n, exchange in enumerate(load_recording(path)["exchanges"]):
            method = exchange["request"]["path"].split("?")[0].rsplit(":", 1)[-1]
            if method in GENERATE and exchange["response"]["status"] == 200:
                found.append(pytest.param(path, n, id=f"{path.stem[:50]}-{n}"))
    return found


def target_of(path: Path, exchange: dict[str, Any]) -> Target:
    dialect = path.parent.name
    model = load_recording(path)["model"] or "gemini-x"
    return Target(provider="antigravity" if "assist" in dialect else "google", dialect=dialect, model=model)


def wire_events(exchange: dict[str, Any]) -> list[Any]:
    body = exchange["response"]["body"]
    if not exchange["response"]["stream"] or body.lstrip().startswith("["):
        try:
            parsed = loads(body)
        except ValueError:
            return [body]
        return parsed if isinstance(parsed, list) else [parsed]
    parser = SSEParser()
    frames = [*parser.feed(body.encode()), *parser.close()]
    return [parse_event(data) for _, data in frames]


def run(codec: Any, target: Target, events: list[Any], *, ended: bool = True) -> tuple[list[StreamEvent], Accumulator]:
    accumulator = Accumulator(target.origin)
    decoder = codec.decoder(target)
    out: list[StreamEvent] = []
    for event in events:
        for delta in decoder.feed(event):
            out.extend(accumulator.feed(delta))
    if ended:
        for delta in decoder.close():
            out.extend(accumulator.feed(delta))
        out.extend(accumulator.end())
    return out, accumulator


def answer(path: Path, n: int) -> tuple[Completion, list[StreamEvent], Target, Any]:
    exchange = load_recording(path)["exchanges"][n]
    target = target_of(path, exchange)
    codec = CODECS[path.parent.name]
    if exchange["response"]["stream"]:
        events, accumulator = run(codec, target, wire_events(exchange))
        return accumulator.completion, events, target, exchange
    accumulator = Accumulator(target.origin)
    events = []
    for delta in codec.deltas(parse_event(exchange["response"]["body"]), target):
        events.extend(accumulator.feed(delta))
    events.extend(accumulator.end())
    return accumulator.completion, events, target, exchange


def wire_parts(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """All parts of the first candidate, read without the code under test."""
    parts: list[dict[str, Any]] = []
    for event in wire_events(exchange):
        if not isinstance(event, dict):
            continue
        inner = event.get("response", event)
        if inner.get("error"):
            break
        for n, candidate in enumerate(inner.get("candidates") or []):
            if candidate.get("index", n) == 0:
                parts.extend((candidate.get("content") or {}).get("parts") or [])
    return parts


def terminal(events: list[StreamEvent]) -> list[StreamEvent]:
    return [event for event in events if isinstance(event, StreamDone | StreamError)]


@pytest.mark.parametrize(("path", "n"), exchanges())
def test_everything_that_was_sent_is_in_the_completion(path: Path, n: int) -> None:
    completion, events, _, exchange = answer(path, n)
    assert len(terminal(events)) == 1
    assert terminal(events)[0] is events[-1]

    parts = wire_parts(exchange)
    message = completion.message
    assert message.text == "".join(p.get("text", "") for p in parts if not p.get("thought"))
    assert message.thinking == "".join(p.get("text", "") for p in parts if p.get("thought"))
    signatures = [p["thoughtSignature"] for p in parts if p.get("thoughtSignature")]
    kept = [
        part.payload.get("thoughtSignature")
        if isinstance(part, ServerToolPart) and part.payload
        else (part.extra.get("google", {}).get("thought_signature") or getattr(part, "signature", None))
        for part in message.parts
    ]
    assert [s for s in kept if s] == signatures
    calls = [p["functionCall"] for p in parts if "functionCall" in p and (p["functionCall"].get("name"))]
    assert [call.name for call in message.tool_calls] == [call["name"] for call in calls]
    for call, wire in zip(message.tool_calls, calls, strict=True):
        if "args" in wire:
            assert call.arguments == wire["args"]
        if wire.get("id"):
            assert call.id == wire["id"]
            assert "synthetic_id" not in call.extra.get("google", {})
    ids = [call.id for call in message.tool_calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)
    media = [part for part in message.parts if isinstance(part, MediaPart)]
    assert [part.base64 for part in media] == [p["inlineData"]["data"] for p in parts if "inlineData" in p]
    server = [part.payload for part in message.parts if isinstance(part, ServerToolPart)]
    assert server == [
        p for p in parts if {"executableCode", "codeExecutionResult", "toolCall", "toolResponse"} & p.keys()
    ]

    chunks = [e.get("response", e) for e in wire_events(exchange) if isinstance(e, dict)]
    usages = [c["usageMetadata"] for c in chunks if c.get("usageMetadata")]
    if usages and completion.error is None:
        last = usages[-1]
        if "totalTokenCount" in last and "promptTokenCount" in last:
            assert completion.usage.total_tokens == last["totalTokenCount"] or "Tokens" not in str(last), last
        assert completion.usage.input_tokens == last.get("promptTokenCount", 0) + last.get(
            "toolUsePromptTokenCount", 0
        ) or ("promptTokenCount" not in last)
        assert completion.usage.cache_read_tokens == last.get("cachedContentTokenCount")
        assert completion.usage.reasoning_tokens == last.get("thoughtsTokenCount")
        assert completion.usage.raw == last or len(usages) > 1
    reasons = [
        c["finishReason"] for chunk in chunks for k, c in enumerate(chunk.get("candidates") or [])
        if c.get("index", k) == 0 and c.get("finishReason")
    ]  # fmt: skip
    if reasons and not any(chunk.get("error") for chunk in chunks):
        assert completion.native_finish_reason == str(reasons[-1])
    for name in (
        "groundingMetadata",
        "citationMetadata",
        "urlContextMetadata",
        "logprobsResult",
        "safetyRatings",
        "finishMessage",
    ):
        sent = [
            c[name] for chunk in chunks for c in chunk.get("candidates") or [] if c.get("index", 0) == 0 and name in c
        ]
        if sent and completion.error is None:
            assert completion.extra["google"][name] == sent[-1]


@pytest.mark.parametrize(("path", "n"), exchanges())
def test_an_answer_survives_json_and_goes_back_as_it_came(path: Path, n: int) -> None:
    completion, _, target, exchange = answer(path, n)
    stored = Message.model_validate_json(completion.message.model_dump_json())
    assert stored == completion.message
    if completion.error is not None or not stored.parts:
        return
    history = [Message(role="user", content="go"), stored]
    call = CODECS[path.parent.name].encode(Request.make(history), target, stream=True)
    body = call.body.get("request", call.body)
    sent = body["contents"][1]["parts"]
    want = []
    for part in wire_parts(exchange):
        plain = {k: v for k, v in part.items() if v not in (None,)}
        if "functionCall" in plain and not plain["functionCall"].get("name"):
            continue
        if "text" in plain and not plain["text"] and "thoughtSignature" not in plain:
            continue
        if "text" in plain and "thoughtSignature" not in plain and want and "text" in want[-1]:
            last = want[-1]
            if "thoughtSignature" not in last and bool(last.get("thought")) == bool(plain.get("thought")):
                last["text"] += plain["text"]
                continue
        want.append(dict(plain))
    assert len(sent) == len(want)
    for got, expected in zip(sent, want, strict=True):
        if "functionCall" in expected:
            assert got["functionCall"]["name"] == expected["functionCall"]["name"]
            assert got["functionCall"].get("id") == (expected["functionCall"].get("id") or None)
            if "args" in expected["functionCall"]:
                assert got["functionCall"]["args"] == expected["functionCall"]["args"]
            if "thoughtSignature" in expected:
                assert got["thoughtSignature"] == expected["thoughtSignature"]
        elif "inlineData" in expected:
            assert got["inlineData"] == expected["inlineData"]
        else:
            assert got == expected


@pytest.mark.parametrize(("path", "n"), exchanges())
def test_a_stream_cut_at_any_event_keeps_what_came_and_ends_once(path: Path, n: int) -> None:
    exchange = load_recording(path)["exchanges"][n]
    if not exchange["response"]["stream"]:
        pytest.skip("not a stream")
    target = target_of(path, exchange)
    codec = CODECS[path.parent.name]
    events = wire_events(exchange)
    for cut in range(len(events)):
        seen, accumulator = run(codec, target, events[:cut])
        assert len(terminal(seen)) == 1
        completion = accumulator.completion
        whole = "".join(
            p.get("text", "")
            for p in wire_parts({"response": {"stream": True, "body": sse(events[:cut])}})
            if not p.get("thought")
        )
        assert completion.text == whole
        finished = any(
            isinstance(e, dict) and any(c.get("finishReason") for c in e.get("response", e).get("candidates") or [])
            for e in events[:cut]
        )
        if not finished and completion.native_finish_reason is None:
            assert completion.error is not None
            assert completion.runnable_tool_calls == []

        seen, accumulator = run(codec, target, events[:cut], ended=False)
        seen.extend(accumulator.cancel())
        assert len(terminal(seen)) == 1
        if not any(isinstance(e, str) or (isinstance(e, dict) and e.get("error")) for e in events[:cut]):
            assert accumulator.completion.finish_reason == "cancelled"
        kept = accumulator.completion.message
        if kept.parts:
            again = codec.encode(
                Request.make([Message(role="user", content="go"), kept, Message(role="user", content="on")]),
                target,
                stream=True,
            )
            body = again.body.get("request", again.body)
            calls = [p for c in body["contents"] for p in c["parts"] if "functionCall" in p]
            results = [p for c in body["contents"] for p in c["parts"] if "functionResponse" in p]
            assert len(calls) == len(results)


def sse(events: list[Any]) -> str:
    return "".join(f"data: {json.dumps(e) if not isinstance(e, str) else e}\n\n" for e in events)


def test_parts_have_their_kinds(shared: Path) -> None:
    """The corpus holds each kind of part, so that the tests above say something about each."""
    kinds = {type(part) for parameters in exchanges() for part in answer(*parameters.values)[0].message.parts}
    assert kinds == {TextPart, ThinkingPart, ToolCall, MediaPart, ServerToolPart}

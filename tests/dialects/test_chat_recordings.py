"""Every recorded Chat exchange: decoded, cut, replayed, and compared with what its raw JSON says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from rein_nb.dialects.base import Quirks, Target, decode
from rein_nb.dialects.chat import ChatCodec
from rein_nb.ir import Message, Options, Request, StreamDone, StreamError, TextPart
from tests.dialects.chat_facts import Facts, chunks, leaves
from tests.dialects.wire_replay import Exchange, comparable, exchanges, frames, outcome, replay, stored
from tests.support import load_recording, recordings

FOLDERS = ("openai-chat", "deepseek", "openai-compatible")
CODEC = ChatCodec()
ANSWERS = [e for e in exchanges(FOLDERS, "/chat/completions") if e.status == 200]
STREAMS = [e for e in ANSWERS if e.is_sse]
WHOLE = [e for e in ANSWERS if not e.streamed]

pytestmark = pytest.mark.usefixtures("shared")


def provider_of(exchange: Exchange) -> str:
    return str(load_recording(_path(exchange))["provider"])


def _path(exchange: Exchange) -> Path:
    return next(p for p in recordings(exchange.name.split("/")[0]) if p.stem == exchange.name.split("/")[1])


def target_of(exchange: Exchange, **quirks: Any) -> Target:
    asked = exchange.request or {}
    return Target(
        provider=provider_of(exchange), dialect="openai-chat", model=asked.get("model", "m"), quirks=Quirks(**quirks)
    )


def named(items: list[Exchange]) -> dict[str, Any]:
    return {"argvalues": items, "ids": [f"{e.name}-{e.n}" for e in items]}


def events_of(exchange: Exchange) -> list[tuple[str | None, Any]]:
    """The events, parsed by the standard library: halves of a surrogate pair stay halves, which the accumulator joins."""
    return [(name, _parsed(data)) for name, data in frames(exchange.body)]


def _parsed(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


def test_the_corpus_is_there() -> None:
    assert len(STREAMS) > 70
    assert len(WHOLE) > 60


def check(completion: Any, facts: Facts, raw: list[dict[str, Any]]) -> None:
    """That everything the raw JSON says is in the completion."""
    message = completion.message
    assert completion.text == facts.text
    assert completion.thinking == facts.thinking
    assert message.refusal == facts.refusal
    assert completion.native_finish_reason == facts.finish
    assert len(completion.tool_calls) == len(facts.calls)
    for call, (id, name, arguments) in zip(completion.tool_calls, facts.calls, strict=True):
        assert call.id == id if id else call.id.startswith("call_")
        assert call.name == name
        assert (call.arguments == arguments and call.error is None) if arguments is not None else call.error is not None
    cited = [c.source for part in message.parts if isinstance(part, TextPart) for c in part.citations]
    assert set(facts.sources) <= set(cited)
    if facts.usage is None:
        assert completion.usage.input_tokens is None
        assert completion.usage.output_tokens is None
    else:
        assert completion.usage.raw == {**completion.usage.raw, **facts.usage}
        asked, total = facts.usage["prompt_tokens"], facts.usage["total_tokens"]
        cached = (facts.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        beside = cached if cached > asked else 0  # one recording counts its cached tokens beside the prompt's
        assert completion.usage.input_tokens == asked + beside
        assert completion.usage.total_tokens == total + beside or total is None
    assert {p.name for p in message.parts if p.type == "server_tool"} == facts.executed
    logprobs = completion.extra.get(completion.provider, {}).get("logprobs", {})
    assert len(logprobs.get("content") or []) + len(logprobs.get("refusal") or []) == facts.logprobs
    _nothing_lost(completion, raw)


def _nothing_lost(completion: Any, raw: list[dict[str, Any]]) -> None:
    dump = json.loads(completion.model_dump_json())
    hay = "\0".join([*_strings(dump), completion.text, completion.thinking, completion.message.refusal])
    first_id = next((chunk["id"] for chunk in raw if chunk.get("id")), None)
    last_created = [chunk.get("id") for chunk in raw]
    for chunk in raw:
        for text in leaves({k: v for k, v in chunk.items() if k not in ("id", "created")}):
            if text in ("function", "custom", "text", "thinking", "image_url"):
                continue
            assert text in hay, f"lost: {text[:80]!r}"
    assert first_id is None or completion.response_id == first_id, last_created


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for k, v in value.items() for s in (k, *_strings(v))]
    if isinstance(value, list):
        return [s for v in value for s in _strings(v)]
    return []


@pytest.mark.parametrize("exchange", **named(STREAMS))
def test_a_recorded_stream_gives_all_that_it_says(exchange: Exchange) -> None:
    events = replay(CODEC, events_of(exchange), target_of(exchange))
    completion = outcome(events)
    raw, done = chunks(exchange.body)
    facts = Facts(raw)
    faulty = any(chunk.get("error") for chunk in raw)
    ended = done or facts.finish is not None
    if faulty:
        assert isinstance(events[-1], StreamError)
        assert completion.error is not None
        assert completion.text == facts.text
    elif ended:
        assert isinstance(events[-1], StreamDone), completion.error
        check(completion, facts, raw)
    else:
        assert completion.error is not None
        assert completion.error.kind == "stream_cut"
        assert (completion.text, completion.thinking) == (facts.text, facts.thinking)
        assert completion.runnable_tool_calls == []


@pytest.mark.parametrize("exchange", **named(WHOLE))
def test_a_recorded_answer_gives_all_that_it_says(exchange: Exchange) -> None:
    raw = json.loads(exchange.body)
    completion = decode(CODEC, raw, target_of(exchange))
    if raw.get("error"):
        assert completion.error is not None
        return
    assert completion.error is None
    facts = Facts([raw])
    facts.finish = facts.finish or None
    check(completion, facts, [raw])
    assert stored(completion.message) == completion.message


@pytest.mark.parametrize("exchange", **named(STREAMS))
def test_a_stream_cut_at_any_event_ends_as_an_error_that_keeps_its_text(exchange: Exchange) -> None:
    target = target_of(exchange)
    events = events_of(exchange)
    boundaries = range(len(events)) if len(events) <= 150 else range(0, len(events), len(events) // 100)
    for n in boundaries:
        kept = events[:n]
        raw = [data for _, data in kept if isinstance(data, dict)]
        facts = Facts(raw)
        if facts.finish is not None or any(data == "[DONE]" for _, data in kept) or any(c.get("error") for c in raw):
            continue
        last = replay(CODEC, kept, target)[-1]
        assert isinstance(last, StreamError)
        assert last.completion.error is not None
        assert last.completion.error.kind == "stream_cut"
        assert last.completion.text == facts.text
        assert last.completion.thinking == facts.thinking
        assert last.completion.runnable_tool_calls == []


@pytest.mark.parametrize(
    "exchange", **named([e for e in STREAMS if "truncated" not in e.name and "error" not in e.name])
)
def test_streamed_and_whole_forms_of_one_answer_agree(exchange: Exchange) -> None:
    raw, _ = chunks(exchange.body)
    whole = _merged(raw)
    target = target_of(exchange)
    streamed = comparable(outcome(replay(CODEC, events_of(exchange), target)))
    at_once = comparable(decode(CODEC, whole, target))
    for both in (streamed, at_once):
        # The response's own facts may change during a stream, and a whole answer has the last of each.
        both.pop("extra")
        both["message"].pop("extra")
        both["warnings"] = []
        both["message"]["parts"].sort(key=lambda part: part["type"])
    assert streamed == at_once


def _merged(raw: list[dict[str, Any]]) -> dict[str, Any]:
    """A whole response from a stream's chunks."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in raw:
        whole.update({k: v for k, v in chunk.items() if v is not None and not (k == "id" and whole.get("id"))})
        for position, piece in enumerate(chunk.get("choices") or []):
            n = piece.get("index", position)
            choice = choices.setdefault(n, {"index": n, "message": {}})
            choice.update({k: v for k, v in piece.items() if k not in ("delta", "message", "index") and v is not None})
            _join(choice["message"], piece.get("delta") or piece.get("message") or {})
    whole["choices"] = [choices[n] for n in sorted(choices)]
    return whole


def _join(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if value is None or key == "role":
            continue
        if key == "tool_calls":
            calls = message.setdefault("tool_calls", [])
            for position, fragment in enumerate(value):
                n = fragment.get("index", position)
                call = next((c for c in calls if c["index"] == n), None)
                function = fragment.get("function") or {}
                if call is None:
                    calls.append({"index": n, "id": fragment.get("id"), "type": "function", "function": {**function}})
                    calls[-1]["function"]["arguments"] = function.get("arguments") or ""
                else:
                    call["function"]["arguments"] += function.get("arguments") or ""
        elif key == "executed_tools":
            known = {tool["index"]: tool for tool in message.get(key, [])}
            message[key] = list({**known, **{tool["index"]: tool for tool in value}}.values())
        elif isinstance(value, list) and key == "content":
            have = message.get("content") or []
            message["content"] = [
                *([{"type": "text", "text": have}] if isinstance(have, str) and have else have),
                *value,
            ]
        elif isinstance(value, list):
            message.setdefault(key, []).extend(value)
        elif isinstance(value, str) and isinstance(message.get(key), list):
            message[key].append({"type": "text", "text": value})
        elif isinstance(value, str) and key in ("content", "refusal", "reasoning", "reasoning_content"):
            message[key] = (message.get(key) or "") + value
        else:
            message[key] = value


# -- replay -------------------------------------------------------------------------------------------

REPLAY = {
    "deepseek": {"reasoning_replay": "tool_turns", "reasoning_field": "reasoning_content"},
    "crusoe": {"reasoning_replay": "always"},
    "snowflake": {"reasoning_replay": "always"},
}


def pairs() -> list[tuple[Exchange, dict[str, Any]]]:
    """Answers of which the recording shows what the client sent back: (exchange, the assistant message in the next request)."""
    found = []
    by_file: dict[str, list[Exchange]] = {}
    for exchange in ANSWERS:
        by_file.setdefault(exchange.name, []).append(exchange)
    for items in by_file.values():
        for one, two in itertools.pairwise(items):
            if not (one.request and two.request) or two.n != one.n + 1:
                continue
            before, after = one.request["messages"], two.request["messages"]
            if (
                len(after) > len(before)
                and after[len(before)]["role"] == "assistant"
                and _unchanged(one, after[len(before)])
            ):
                found.append((one, after[len(before)]))
    return found


def _unchanged(exchange: Exchange, sent_back: dict[str, Any]) -> bool:
    """Whether the recording client sent the answer back as it was, and not in a shape of its own making."""
    facts = Facts(chunks(exchange.body)[0] if exchange.is_sse else [json.loads(exchange.body)])
    content = sent_back.get("content")
    text = "".join(part["text"] for part in content) if isinstance(content, list) else content or ""
    names = [call["function"]["name"] for call in sent_back.get("tool_calls") or []]
    return text.strip() in ("", facts.text.strip()) and names == [name for _, name, _ in facts.calls]


PAIRS = pairs()


def test_there_are_recorded_replays() -> None:
    assert len(PAIRS) > 20


@pytest.mark.parametrize(("exchange", "sent_back"), PAIRS, ids=[f"{e.name}-{e.n}" for e, _ in PAIRS])
def test_an_answer_goes_back_to_its_origin_as_the_recorded_client_sent_it(
    exchange: Exchange, sent_back: dict[str, Any]
) -> None:
    target = target_of(exchange, **REPLAY.get(provider_of(exchange), {}))
    if exchange.is_sse:
        completion = outcome(replay(CODEC, events_of(exchange), target))
    else:
        completion = decode(CODEC, json.loads(exchange.body), target)
    message = stored(completion.message)
    request = Request(messages=[Message(role="user", content="go"), message], options=Options())
    wire = CODEC.encode(request, target, stream=False).body["messages"][1]

    ours, theirs = wire.get("tool_calls") or [], sent_back.get("tool_calls") or []
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        if not other["id"].startswith("pyd_ai_"):  # made up by that client, as we make up ours
            assert mine["id"] == other["id"]
        assert mine["function"]["name"] == other["function"]["name"]
        assert json.loads(mine["function"]["arguments"]) == json.loads(other["function"]["arguments"] or "{}")
    content = sent_back.get("content")
    if isinstance(content, list):
        content = "".join(part["text"] for part in content)
    if content:
        assert (wire["content"] or "").strip() == content.strip()
    if theirs or target.quirks.reasoning_replay == "always":
        for field in ("reasoning_content", "reasoning", "reasoning_details"):
            assert (wire.get(field) or None) == (sent_back.get(field) or None)

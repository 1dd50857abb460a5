"""Writes the recordings that the tutorials play: samples by hand, real answers of the embedded model by asking it.

``python notebooks/recordings/make.py [name ...]`` runs the code of the tutorial with recording in place of playing. For samples, the answers below come from a server
on this machine, in the form of each vendor's own stream; no vendor was asked, and every text in them was written here. The tutorials say so.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rein_nb as rn
from rein_nb.testing import serve_recording

HERE = Path(__file__).resolve().parent
NOTEBOOKS = HERE.parent
SAMPLE = "hand-written-sample"
"""The model's name in samples, so that it stands wherever a model's name stands."""


def sse(*events: dict[str, Any], named: bool = False, done: bool = False) -> dict[str, Any]:
    """A streamed answer."""
    lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events]
    body = "".join(lines) + ("data: [DONE]\n\n" if done else "")
    return {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": body}


def pieces(text: str, size: int = 12) -> list[str]:
    """Text as it would come: a few words at a time."""
    words, out = text.split(" "), [""]
    for n, word in enumerate(words):
        out[-1] += word + (" " if n < len(words) - 1 else "")
        if len(out[-1]) >= size and n < len(words) - 1:
            out.append("")
    return out


# -- Anthropic Messages -------------------------------------------------------------------------------


def anthropic(*blocks: dict[str, Any], stop: str, usage: dict[str, int], message: str) -> dict[str, Any]:
    """Blocks: ``{"thinking": ..., "signature": ...}``, ``{"text": ...}``, ``{"tool": name, "id": ..., "input": {...}}``."""
    start = {
        "id": message, "type": "message", "role": "assistant", "model": SAMPLE, "content": [], "stop_reason": None,
        "usage": usage | {"output_tokens": 1},
    }  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(blocks):
        deltas: list[dict[str, Any]]
        if "thinking" in block:
            opened: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif "text" in block:
            opened = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        else:
            opened = {"type": "tool_use", "id": block["id"], "name": block["tool"], "input": {}}
            deltas = [
                {"type": "input_json_delta", "partial_json": piece} for piece in pieces(json.dumps(block["input"]), 6)
            ]
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": usage["output_tokens"]}}
    )
    events.append({"type": "message_stop"})
    return sse(*events, named=True)


# -- OpenAI Responses ---------------------------------------------------------------------------------


def responses(*items: dict[str, Any], usage: dict[str, Any], response: str) -> dict[str, Any]:
    """Items: ``{"summary": ..., "encrypted": ...}``, ``{"text": ...}``, ``{"call": name, "id": ..., "arguments": {...}}``."""
    frame = {"id": response, "object": "response", "model": SAMPLE, "status": "in_progress", "output": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": frame}]
    output: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": f"{response}_{index}"}
        if "summary" in item:
            part = {"type": "summary_text", "text": item["summary"]}
            whole = {
                "id": at["item_id"],
                "type": "reasoning",
                "summary": [part],
                "encrypted_content": item["encrypted"],
            }
            opened = whole | {"summary": [], "encrypted_content": ""}
            middle = [
                {"type": "response.reasoning_summary_part.added", "summary_index": 0, "part": part | {"text": ""}, **at},
                *({"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": piece, **at} for piece in pieces(item["summary"])),
                {"type": "response.reasoning_summary_part.done", "summary_index": 0, "part": part, **at},
            ]  # fmt: skip
        elif "text" in item:
            part = {"type": "output_text", "text": item["text"], "annotations": []}
            whole = {
                "id": at["item_id"],
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
            opened = whole | {"content": [], "status": "in_progress"}
            middle = [
                {"type": "response.content_part.added", "content_index": 0, "part": part | {"text": ""}, **at},
                *({"type": "response.output_text.delta", "content_index": 0, "delta": piece, **at} for piece in pieces(item["text"])),
                {"type": "response.output_text.done", "content_index": 0, "text": item["text"], **at},
            ]  # fmt: skip
        else:
            text = json.dumps(item["arguments"])
            whole = {
                "id": at["item_id"],
                "type": "function_call",
                "call_id": item["id"],
                "name": item["call"],
                "arguments": text,
            }
            opened = whole | {"arguments": ""}
            middle = [
                *({"type": "response.function_call_arguments.delta", "delta": piece, **at} for piece in pieces(text, 6)),
                {"type": "response.function_call_arguments.done", "arguments": text, **at},
            ]  # fmt: skip
        events.append({"type": "response.output_item.added", "output_index": index, "item": opened})
        events += middle
        events.append({"type": "response.output_item.done", "output_index": index, "item": whole})
        output.append(whole)
    ended = frame | {"status": "completed", "output": output, "usage": usage}
    events.append({"type": "response.completed", "response": ended})
    return sse(*({**event, "sequence_number": n} for n, event in enumerate(events)), named=True)


# -- Google generateContent ---------------------------------------------------------------------------


def google(*parts: dict[str, Any], usage: dict[str, int], response: str) -> dict[str, Any]:
    """Parts as the wire has them; text in several."""
    events = []
    for part in parts:
        cut = [part] if "text" not in part else [part | {"text": piece} for piece in pieces(part["text"])]
        events += [{"candidates": [{"index": 0, "content": {"role": "model", "parts": [piece]}}]} for piece in cut]
    events[-1]["candidates"][0]["finishReason"] = "STOP"
    events[-1]["usageMetadata"] = usage
    return sse(*({**event, "modelVersion": SAMPLE, "responseId": response} for event in events))


# -- the samples --------------------------------------------------------------------------------------

OSLO = {"city": "Oslo"}
NAIROBI = {"city": "Nairobi"}

WEATHER: dict[str, list[dict[str, Any]]] = {
    "anthropic": [
        anthropic(
            {"thinking": "Two cities, so two look-ups. They do not depend on each other: I can ask for both at once.", "signature": "c2FtcGxlLXNpZ25hdHVyZQ=="},
            {"text": "I will look up both cities."},
            {"tool": "get_weather", "id": "toolu_sample_1", "input": OSLO},
            {"tool": "get_weather", "id": "toolu_sample_2", "input": NAIROBI},
            stop="tool_use", usage={"input_tokens": 40, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 0, "output_tokens": 96}, message="msg_sample_1",
        ),
        anthropic(
            {"text": "**Nairobi** is warmer, by **17 degrees**: 24 °C against 7 °C in Oslo."},
            stop="end_turn", usage={"input_tokens": 150, "cache_read_input_tokens": 600, "cache_creation_input_tokens": 0, "output_tokens": 31}, message="msg_sample_2",
        ),
    ],
    "openai": [
        responses(
            {"summary": "**Planning the look-ups**\n\nI need the temperature in both cities.", "encrypted": "c2FtcGxlLWVuY3J5cHRlZA=="},
            {"call": "get_weather", "id": "call_sample_1", "arguments": OSLO},
            {"call": "get_weather", "id": "call_sample_2", "arguments": NAIROBI},
            usage={"input_tokens": 120, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 210, "output_tokens_details": {"reasoning_tokens": 160}, "total_tokens": 330},
            response="resp_sample_1",
        ),
        responses(
            {"text": "Nairobi: 24 °C. Oslo: 7 °C. Nairobi is 17 °C warmer."},
            usage={"input_tokens": 190, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 24, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 214},
            response="resp_sample_2",
        ),
    ],
    "google": [
        google(
            {"text": "I will begin with Oslo.", "thought": True},
            {"functionCall": {"name": "get_weather", "args": OSLO}, "thoughtSignature": "c2FtcGxlLXRob3VnaHQ="},
            usage={"promptTokenCount": 98, "candidatesTokenCount": 14, "thoughtsTokenCount": 40, "totalTokenCount": 152}, response="sample_1",
        ),
        google(
            {"functionCall": {"name": "get_weather", "args": NAIROBI}},
            usage={"promptTokenCount": 170, "candidatesTokenCount": 14, "totalTokenCount": 184}, response="sample_2",
        ),
        google(
            {"text": "It is 24 °C in Nairobi and 7 °C in Oslo, so Nairobi is the warmer one by 17 °C."},
            usage={"promptTokenCount": 215, "candidatesTokenCount": 28, "totalTokenCount": 243}, response="sample_3",
        ),
    ],
}  # fmt: skip
"""One question, asked of three vendors: two of them call both tools at once, one after the other."""

MOVED = responses(
    {"text": "Nairobi lies at 1,795 metres; without that it would be warmer still."},
    usage={"input_tokens": 260, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 22, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 282},
    response="resp_sample_3",
)  # fmt: skip

THINKING = [
    anthropic(
        {"thinking": "17 times 23. 17 times 20 is 340, 17 times 3 is 51. Together 391. I have a tool that multiplies; I will check with it.", "signature": "c2FtcGxlLXNpZ25hdHVyZQ=="},
        {"text": "I make it 391. Let me check."},
        {"tool": "multiply", "id": "toolu_sample_1", "input": {"a": 17, "b": 23}},
        stop="tool_use", usage={"input_tokens": 61, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 88}, message="msg_sample_1",
    ),
    anthropic(
        {"text": "Checked: 17 x 23 = **391**."},
        stop="end_turn", usage={"input_tokens": 180, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 17}, message="msg_sample_2",
    ),
]  # fmt: skip

SAMPLES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "06_thinking_and_streaming": {"anthropic": THINKING},
    "07_providers_side_by_side": {**WEATHER, "openai": [*WEATHER["openai"], MOVED]},
}
"""By tutorial and provider: what the server answers, in order."""

REAL = ("08_structured_answers", "10_a_study")
"""Tutorials that play what the embedded model really answered."""

BASE_URLS = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL", "google": "REIN_NB_GOOGLE_BASE_URL"}


# -- recording ----------------------------------------------------------------------------------------


def code_of(name: str) -> Iterator[str]:
    """The code of a tutorial's cells, without magics and without what is asked live."""
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and not source.startswith(("%%", "# live")):
            yield "\n".join("" if line.startswith("%") else line for line in source.split("\n"))


def run(name: str) -> None:
    """Run a tutorial's code in its folder, as cells would."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(code_of(name)):
        tree = compile(source, f"{name}[{number}]", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if tree.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(tree, names))  # noqa: S307 - our own tutorials
        else:
            exec(tree, names)  # noqa: S102 - the same


def make(name: str) -> Path:
    """Record one tutorial anew."""
    path = HERE / f"{name}.jsonl"
    path.unlink(missing_ok=True)
    # A tutorial opens its recording several times and plays it from the start; what is there already is played here too.
    played = rn.replay
    rn.replay = lambda path, **options: rn.record(path, mode="auto")  # type: ignore[assignment]
    try:
        with contextlib.ExitStack() as stack:
            for provider, answers in SAMPLES.get(name, {}).items():
                server = stack.enter_context(serve_recording(answers))
                suffix = "/v1" if provider == "openai" else ""
                os.environ[BASE_URLS[provider]] = server.base_url + suffix
                os.environ[f"REIN_NB_{provider.upper()}_API_KEY"] = "not-a-real-key-0000"
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.chdir(NOTEBOOKS))
            stack.enter_context(warnings.catch_warnings())
            run(name)
    finally:
        rn.replay = played
    return path


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*SAMPLES, *REAL]:
        print("recorded", make(chosen).relative_to(NOTEBOOKS.parent))

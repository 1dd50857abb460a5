"""One small answer in each dialect, streamed and whole: the text 'Hello \\u6d77', 12 input and 3 output tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rein_nb.llm import LLM, Config
from rein_nb.testing.server import RecordingServer

KEY = "sk-test-000000000000"
TEXT = "Hello \u6d77"


def sse(*events: dict[str, Any], named: bool = False, done: bool = False) -> str:
    lines = [
        (f"event: {event['type']}\n" if named else "") + "data: " + json.dumps(event, ensure_ascii=False) + "\n\n"
        for event in events
    ]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


@dataclass(frozen=True)
class Wire:
    provider: str
    model: str
    path: str
    stream: str
    whole: str
    prefix: str = ""

    def llm(self, server: RecordingServer, **config: Any) -> LLM:
        config.setdefault("max_retries", 0)
        extra = {"opt_in": True} if self.provider == "antigravity" else {}
        return LLM(
            Config(
                provider=self.provider,
                model=self.model,
                api_key=KEY,
                base_url=server.base_url + self.prefix,
                extra=extra,
                **config,
            )
        )


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-4o-2024-08-06",
        "choices": [choice],
    }


_CHAT_USAGE = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
CHAT = Wire(
    "openai-chat", "gpt-4o", "/v1/chat/completions",
    sse(
        _chunk({"role": "assistant", "content": ""}), _chunk({"content": "Hello "}), _chunk({"content": "\u6d77"}), _chunk({}, "stop"),
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-2024-08-06", "choices": [], "usage": _CHAT_USAGE},
        done=True,
    ),
    json.dumps({
        "id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}], "usage": _CHAT_USAGE,
    }),
    "/v1",
)  # fmt: skip

_ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": TEXT, "annotations": []}]}  # fmt: skip
_RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5.1", "output": [_ITEM], "error": None,
             "usage": {"input_tokens": 12, "output_tokens": 3, "total_tokens": 15}}  # fmt: skip
_AT = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
RESPONSES = Wire(
    "openai", "gpt-5.1", "/v1/responses",
    sse(
        {"type": "response.created", "response": {**_RESPONSE, "status": "in_progress", "output": [], "usage": None}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**_ITEM, "content": [], "status": "in_progress"}},
        {"type": "response.content_part.added", **_AT, "part": {"type": "output_text", "text": "", "annotations": []}},
        {"type": "response.output_text.delta", **_AT, "delta": "Hello "},
        {"type": "response.output_text.delta", **_AT, "delta": "\u6d77"},
        {"type": "response.output_text.done", **_AT, "text": TEXT},
        {"type": "response.content_part.done", **_AT, "part": _ITEM["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": _ITEM},
        {"type": "response.completed", "response": _RESPONSE},
        named=True,
    ),
    json.dumps(_RESPONSE),
    "/v1",
)  # fmt: skip

_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 12, "output_tokens": 1}}  # fmt: skip
MESSAGES = Wire(
    "anthropic", "claude-sonnet-4-5", "/v1/messages",
    sse(
        {"type": "message_start", "message": _MESSAGE},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\u6d77"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
        named=True,
    ),
    json.dumps({**_MESSAGE, "content": [{"type": "text", "text": TEXT}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 12, "output_tokens": 3}}),
)  # fmt: skip


def _candidate(text: str, finish: str | None = None) -> dict[str, Any]:
    out = {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}], "modelVersion": "gemini-2.5-flash",
           "responseId": "r1", "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 3, "totalTokenCount": 15}}  # fmt: skip
    if finish:
        out["candidates"][0]["finishReason"] = finish
    return out


GOOGLE = Wire(
    "google", "gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
    sse(_candidate("Hello "), _candidate("\u6d77", "STOP")).replace("\n", "\r\n"), json.dumps(_candidate(TEXT, "STOP")),
)  # fmt: skip
CODE_ASSIST = Wire(
    "antigravity", "gemini-2.5-flash", "/v1internal:streamGenerateContent",
    sse({"response": _candidate("Hello ")}, {"response": _candidate("\u6d77", "STOP")}),
    json.dumps({"response": _candidate(TEXT, "STOP")}),
)  # fmt: skip


def _ollama(text: str, **more: Any) -> dict[str, Any]:
    return {
        "model": "qwen3",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": text},
        "done": False,
        **more,
    }


_OLLAMA_DONE = {"done": True, "done_reason": "stop", "prompt_eval_count": 12, "eval_count": 3}
OLLAMA = Wire(
    "ollama", "qwen3", "/api/chat",
    "".join(json.dumps(x) + "\n" for x in (_ollama("Hello "), _ollama("\u6d77"), _ollama("", **_OLLAMA_DONE))),
    json.dumps(_ollama(TEXT, **_OLLAMA_DONE)),
)  # fmt: skip

WIRES = [CHAT, RESPONSES, MESSAGES, GOOGLE, CODE_ASSIST, OLLAMA]
SDK_WIRES = [CHAT, RESPONSES, MESSAGES]

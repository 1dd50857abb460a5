"""A loopback server in a process of its own: streams of any length in three dialects, one HTTP chunk an event.

The path says what to send: ``/n<chunks>/i<ms between chunks>/t<tool calls>/m<turns>/...``; the rest of the path says in which dialect. Tool
calls (of a sync and an async tool, in turn) are made while the request holds no result; with ``m``, a call of ``lookup`` while it holds fewer
than that many. Chat only, but for ``m``. Bytes are rendered once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

WORDS = (" the", " of", " data", " model", "ing", " caf\u00e9", ",", "\n- ", ' "quoted"', " run")
_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\ncache-control: no-cache\r\n"
    b"x-request-id: req_0123456789abcdef\r\nx-ratelimit-remaining-requests: 9999\r\n\r\n"
)


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def chat_events(n: int, calls: int = 0, key: str = "") -> list[bytes]:
    base = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-4.1",
        "system_fingerprint": "fp",
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + _dump({**base, "choices": [choice], "usage": None}) + b"\n\n"

    usage = {"prompt_tokens": 12, "completion_tokens": n, "total_tokens": 12 + n}
    return [
        chunk({"role": "assistant", "content": "", "refusal": None}),
        *(chunk({"content": WORDS[i % len(WORDS)]}) for i in range(n)),
        *(
            chunk(
                {
                    "tool_calls": [
                        {
                            "index": i,
                            "id": f"call_{key}{i}",
                            "type": "function",
                            "function": {
                                "name": "lookup" if key else ("in_loop", "in_thread")[i % 2],
                                "arguments": _dump({"key": key}).decode() if key else "{}",
                            },
                        }
                    ]
                }
            )
            for i in range(calls)
        ),
        chunk({}, "tool_calls" if calls else "stop"),
        b"data: " + _dump({**base, "choices": [], "usage": usage}) + b"\n\n",
        b"data: [DONE]\n\n",
    ]


def message_events(n: int, key: str = "") -> list[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        return b"event: " + kind.encode() + b"\ndata: " + _dump({"type": kind, **fields}) + b"\n\n"

    start = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 12, "output_tokens": 1},
    }  # fmt: skip
    return [
        event("message_start", message=start),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": WORDS[i % len(WORDS)]})
            for i in range(n)
        ),
        event("content_block_stop", index=0),
        *(message_call(event, key) if key else ()),
        event(
            "message_delta",
            delta={"stop_reason": "tool_use" if key else "end_turn", "stop_sequence": None},
            usage={"output_tokens": n},
        ),
        event("message_stop"),
    ]


def message_call(event: Callable[..., bytes], key: str) -> list[bytes]:
    call = {"type": "tool_use", "id": f"toolu_{key}", "name": "lookup", "input": {}}
    arguments = {"type": "input_json_delta", "partial_json": _dump({"key": key}).decode()}
    return [
        event("content_block_start", index=1, content_block=call),
        event("content_block_delta", index=1, delta=arguments),
        event("content_block_stop", index=1),
    ]


@functools.lru_cache(maxsize=512)
def rendered(dialect: str, n: int, calls: int = 0, key: str = "") -> tuple[bytes, ...]:
    events = message_events(n, key) if dialect == "messages" else chat_events(n, calls, key)
    return tuple(b"%x\r\n%b\r\n" % (len(e), e) for e in events)


WHOLE = {
    "chat": _dump({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4.1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "A short answer.", "refusal": None}, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16},
    }),
    "messages": _dump({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [{"type": "text", "text": "A short answer."}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 4},
    }),
}  # fmt: skip


_RESULT = re.compile(rb'"role": ?"tool"|"type": ?"tool_result"')
"""What a request holds once for each tool result."""


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            path = head.split(b" ", 2)[1].decode()
            n = int((re.search(r"/n(\d+)", path) or [0, 20])[1])
            pause = float((re.search(r"/i([\d.]+)", path) or [0, 0])[1]) / 1000
            dialect = "messages" if path.endswith("/messages") else "chat"
            if b'"stream":true' not in body.replace(b" ", b""):
                answer = WHOLE[dialect]
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(answer), answer)
                )
                await writer.drain()
                continue
            writer.write(_HEAD % b"text/event-stream; charset=utf-8")
            calls = (
                0 if b'"role":"tool"' in body.replace(b" ", b"") else int((re.search(r"/t(\d+)", path) or [0, 0])[1])
            )
            turns = int((re.search(r"/m(\d+)", path) or [0, 0])[1])
            done = len(_RESULT.findall(body)) if turns else 0
            chunks = rendered(dialect, n, 1, f"k{done}") if done < turns else rendered(dialect, n, calls)
            if not pause:
                for i in range(0, len(chunks), 64):
                    writer.write(b"".join(chunks[i : i + 64]))
                    await writer.drain()
            else:
                due = asyncio.get_running_loop().time()
                for chunk in chunks:
                    if writer.is_closing():
                        break
                    writer.write(chunk)
                    due += pause
                    await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
    writer.close()


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Ends with whoever started it: its end of the pipe closes.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def running() -> Iterator[str]:
    """The server, running; gives its root URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.stdin.close()
        process.wait(10)


if __name__ == "__main__":
    asyncio.run(_main())

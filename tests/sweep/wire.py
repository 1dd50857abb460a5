"""A loopback server that speaks just enough of a chat API for a sweep, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Wire:
    """What the server was asked.

    Attributes
    ----------
    asked
        How often each prompt came.
    at_once, most_at_once
        Requests that are, and at most were, being answered.
    authorizations
        Every key that came.
    """

    delay_s: float = 0.0
    headers: str = ""
    port: int = 0
    asked: collections.Counter[str] = field(default_factory=collections.Counter)
    at_once: int = 0
    most_at_once: int = 0
    authorizations: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = re.search(r"(?i)content-length: (\d+)", head)
                body = json.loads(await reader.readexactly(int(length[1]) if length else 0))
                key = re.search(r"(?i)authorization: *bearer (\S+)", head)
                self.authorizations.add(key[1] if key else "")
                prompt = body["messages"][-1]["content"]
                self.asked[prompt if isinstance(prompt, str) else prompt[0]["text"]] += 1
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    await asyncio.sleep(self.delay_s)
                finally:
                    self.at_once -= 1
                writer.write(self.answer())
                await writer.drain()
        writer.close()

    def answer(self) -> bytes:
        message = {"role": "assistant", "content": "fine"}
        body = {
            "id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
        }  # fmt: skip
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{self.headers}content-length: {len(data)}\r\n\r\n"
        return head.encode() + data


@contextlib.contextmanager
def wire(delay_s: float = 0.0, headers: str = "") -> Iterator[Wire]:
    """The server, in a thread of its own."""
    found = Wire(delay_s, headers)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def main(stop: asyncio.Event) -> None:
        server = await asyncio.start_server(found.serve, "127.0.0.1", 0, limit=2**22)
        found.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(main(stop)), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


if __name__ == "__main__":
    # Answers until its standard input ends; the argument is the delay in seconds.
    with wire(float(sys.argv[1])) as served:
        print(served.url, flush=True)
        sys.stdin.read()

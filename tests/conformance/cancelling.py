"""How soon a cancelled call ends while its socket is silent."""

from __future__ import annotations

import asyncio
import time

from rein_nb import LLM, CancellationToken
from rein_nb.testing.server import serve_recording

BODY = 'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"some"}}]}\n\n'
TRIES = 40


async def _once(llm: LLM) -> float:
    token = CancellationToken()
    pressed = 0.0

    def press() -> None:
        nonlocal pressed
        pressed = time.perf_counter()
        token.cancel()

    last = None
    async for event in llm.astream_events("go", signal=token):
        last = event
        if event.type == "text_delta":
            asyncio.get_running_loop().call_later(0.02, press)
    ended = time.perf_counter()
    assert last is not None
    assert last.type == "error"
    assert last.completion.finish_reason == "cancelled"
    assert last.completion.text == "some"
    return (ended - pressed) * 1e3


async def cancel_latency_ms(tries: int = TRIES) -> float:
    """95th percentile, in milliseconds, from `cancel` to the terminal event."""
    async with serve_recording({"body": BODY}, cuts=[len(BODY)], hang_after=1, repeat=True) as server:
        llm = LLM.named("openai-chat/m", api_key="sk-benchmark-0000", base_url=server.base_url + "/v1", max_retries=0)
        times = sorted([await _once(llm) for _ in range(tries)])
        await llm.aclose()
    return times[int(len(times) * 0.95)]

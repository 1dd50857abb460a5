"""200 streams of 200 chunks at 5 ms a chunk on one event loop: wall time over ideal."""

from __future__ import annotations

import asyncio
import time

from rein_nb import LLM
from tests.benchmarks.server import running

STREAMS, CHUNKS, PAUSE_MS = 200, 200, 5


async def _measure(url: str) -> float:
    llm = LLM.named("openai-chat/gpt-4.1", api_key="sk-benchmark-0000", base_url=f"{url}/n{CHUNKS}/i{PAUSE_MS}/v1")

    async def one() -> None:
        last = None
        async for event in llm.astream_events("go"):
            last = event
        assert last is not None
        assert last.type == "done", last

    await LLM.named("openai-chat/gpt-4.1", api_key="sk-benchmark-0000", base_url=f"{url}/n5/v1").achat("go")
    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(STREAMS)))
    wall = time.perf_counter() - start
    await llm.aclose()
    return wall / (CHUNKS * PAUSE_MS / 1000)


def measure() -> dict[str, float]:
    """Wall time over ideal."""
    with running() as url:
        return {"200 streams x 200 chunks at 5 ms, wall / ideal": asyncio.run(_measure(url))}


if __name__ == "__main__":
    for name, ratio in measure().items():
        print(f"{name}: {ratio:.2f}")

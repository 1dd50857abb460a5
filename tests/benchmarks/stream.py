"""CPU per chunk of a whole streamed call, beside the SDKs' typed streams, both transports.

Each client runs in a process of its own, on a core of its own where there are two, in interleaved rounds; the figure is the lowest.
"""

from __future__ import annotations

import os
import time

from tests.benchmarks.server import running
from tests.benchmarks.workers import answer, lowest, main

CHUNKS = 10_000
ROUNDS = 12
CLIENTS = (
    "rein_nb chat",
    "rein_nb messages",
    "rein_nb-fast chat",
    "rein_nb-fast messages",
    "openai chat",
    "anthropic messages",
)


async def _rein(dialect: str, url: str) -> int:
    from rein_nb import LLM

    name = {"chat": "openai-chat/gpt-4.1", "messages": "anthropic/claude-sonnet-4-5"}[dialect]
    llm = LLM.named(name, api_key="sk-benchmark-0000", base_url=url + ("/v1" if dialect == "chat" else ""))
    size = 0
    async for event in llm.astream_events("go"):
        if event.type == "text_delta":
            size += len(event.delta)
    return size


async def _openai(url: str) -> int:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key="x", base_url=url + "/v1")
    size = 0
    stream = await client.chat.completions.create(
        model="gpt-4.1",
        messages=[{"role": "user", "content": "go"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            size += len(chunk.choices[0].delta.content)
    return size


async def _anthropic(url: str) -> int:
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(api_key="x", base_url=url)
    size = 0
    stream = await client.messages.create(
        model="claude-sonnet-4-5", messages=[{"role": "user", "content": "go"}], max_tokens=64_000, stream=True
    )
    async for event in stream:
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            size += len(event.delta.text)
    return size


async def _client(name: str, url: str) -> None:
    kind, dialect = name.split()
    os.environ["REIN_NB_TRANSPORT"] = "default" if kind == "rein_nb" else "fast"

    async def run(n: int) -> float:
        at = f"{url}/n{n}"
        start = time.process_time()
        size = await (
            _openai(at) if kind == "openai" else _anthropic(at) if kind == "anthropic" else _rein(dialect, at)
        )
        assert size > n
        return time.process_time() - start

    await run(200)

    async def us_a_chunk(n: int) -> float:
        return await run(n) / n * 1e6

    await answer(us_a_chunk)


def measure() -> dict[str, float]:
    """CPU ratios to the SDKs' typed streams."""
    with running() as url:
        cost = lowest("tests.benchmarks.stream", CLIENTS, url, n=CHUNKS, rounds=ROUNDS)
    for name, us in cost.items():
        print(f"{name}: {us:.1f} us a chunk")
    return {
        "default transport / openai typed stream": cost["rein_nb chat"] / cost["openai chat"],
        "default transport / anthropic typed stream": cost["rein_nb messages"] / cost["anthropic messages"],
        "aiohttp transport / openai typed stream": cost["rein_nb-fast chat"] / cost["openai chat"],
        "aiohttp transport / anthropic typed stream": cost["rein_nb-fast messages"] / cost["anthropic messages"],
    }


if __name__ == "__main__":
    main(_client, measure)

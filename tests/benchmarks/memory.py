"""Memory growth, in MiB, over a stream of 50,000 chunks whose events are not kept."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys

from tests.benchmarks.server import running

CHUNKS = 50_000


def _rss_mib() -> float:
    with open("/proc/self/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) / 1024


async def _growth(url: str) -> float:
    from rein_nb import LLM

    async def run(n: int) -> float:
        llm = LLM.named("openai-chat/gpt-4.1", api_key="sk-benchmark-0000", base_url=f"{url}/n{n}/v1")
        gc.collect()
        before = peak = _rss_mib()
        seen = 0
        async for event in llm.astream_events("go"):
            seen += 1
            if seen % 1000 == 0:
                peak = max(peak, _rss_mib())
            del event
        peak = max(peak, _rss_mib())
        await llm.aclose()
        return peak - before

    await run(1000)
    return await run(CHUNKS)


def measure() -> dict[str, float]:
    """Growth in MiB, in a process of its own."""
    with running() as url:
        out = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.memory", url], capture_output=True, text=True, check=True
        ).stdout
    return {"memory growth over 50,000 chunks, MiB": float(out)}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(asyncio.run(_growth(sys.argv[1])))
    else:
        print(measure())

"""Runs cancelled at random moments over real HTTP streams and real tools: what of them is left.

``python -m tests.benchmarks.cancels [count]``, at least 1,000 without a count. Four ways to cancel in turn: a token, the task, leaving the stream, a
handle of a background run. Each run streams, calls an async and a sync tool at once, which take their time, and would stream again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rein_nb import LLM, Agent, aio
from rein_nb.stream import CancellationToken
from tests.benchmarks.server import running

AT_ONCE = 20
LONGEST_S = 0.25
SETTLE_S = 10.0


async def in_loop() -> str:
    """Wait."""
    await asyncio.sleep(0.1)
    return "done"


def in_thread() -> str:
    """Wait in small steps, as a computation does."""
    for _ in range(10):
        time.sleep(0.01)
    return "done"


def _handles() -> dict[str, int]:
    """Open file handles of this process, connections and others."""
    found = {"connections": 0, "handles": 0}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the folder's own handle is closed by now
            found["connections" if os.readlink(entry).startswith("socket:") else "handles"] += 1
    return found


def _left() -> dict[str, int]:
    # The background loop's own tasks are read in its thread: its set of tasks changes under anybody else.
    async def count() -> int:
        return len(asyncio.all_tasks()) - 1

    tasks = len(asyncio.all_tasks()) - 1
    return {
        "tasks": tasks + aio.submit(count()).result(10),
        "threads": threading.active_count(),
        **_handles(),
    }


async def _cancelled(agent: Agent, way: int, after_s: float) -> bool:
    """One run, cancelled after a while; whether it was still going."""
    if way == 0:
        token = CancellationToken()
        asyncio.get_running_loop().call_later(after_s, token.cancel)
        return (await agent.arun("go", signal=token)).stop_reason == "cancelled"
    if way == 1:
        task = asyncio.ensure_future(agent.arun("go"))
        await asyncio.wait((task,), timeout=after_s)
        going = not task.done()
        task.cancel()
        await asyncio.wait((task,))
        return going
    if way == 2:
        end = time.monotonic() + after_s
        async for event in agent.events("go"):
            if time.monotonic() > end:
                return event.type != "agent_end"
        return False
    handle = agent.start("go")
    await asyncio.sleep(after_s)
    going = not handle.done
    handle.cancel()
    await handle
    return going


async def _measure(url: str, count: int) -> dict[str, int]:
    draw = random.Random(7)
    llm = LLM.named("openai-chat/gpt-4.1", api_key="sk-benchmark-0000", base_url=f"{url}/n20/i2/t2/v1", max_retries=0)

    def fresh() -> Agent:
        return Agent(llm, [in_loop, in_thread])

    for way in range(4):  # what is made once a process is not what a cancel leaves
        await _cancelled(fresh(), way, 60.0 if way != 3 else 1.0)
    await _fill_pools()
    await _settled(llm)
    before = _left()
    runs = stopped = 0
    while stopped < count:  # some were done before it was their turn
        group = range(runs, runs + AT_ONCE)
        going = await asyncio.gather(*(_cancelled(fresh(), n % 4, draw.uniform(0, LONGEST_S)) for n in group))
        runs += AT_ONCE
        stopped += sum(going)
    end = time.monotonic() + SETTLE_S
    while True:
        await _settled(llm)
        left = {name: number - before[name] for name, number in _left().items()}
        if not any(left.values()) or time.monotonic() > end:
            return {"cancelled": stopped, **left}
        await asyncio.sleep(0.1)


async def _fill_pools() -> None:
    """Have both event loops start all threads of their pools for name look-ups: they come one by one, and stay."""

    async def fill() -> None:
        size = min(32, (os.cpu_count() or 1) + 4)
        await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.2) for _ in range(size)))

    await fill()
    await asyncio.wrap_future(aio.submit(fill()))


async def _settled(llm: LLM) -> None:
    """Close what a pool keeps open on purpose, on both loops."""
    await llm.aclose()
    await asyncio.wrap_future(aio.submit(llm.aclose()))
    gc.collect()


def measure(count: int) -> dict[str, Any]:
    """How many runs were cancelled while they were going, `count` or a few more, and how many tasks, threads, connections and other handles are left of them."""
    with running() as url:
        return asyncio.run(_measure(url, count))


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for name, number in measure(asked).items():
        print(f"{name}{'' if name == 'cancelled' else ' left'}: {number}")

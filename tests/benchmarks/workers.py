"""Clients that are compared, each in a process of its own, asked in turn."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any


def lowest(module: str, clients: Sequence[str], url: str, *, n: int, rounds: int) -> dict[str, float]:
    """The lowest figure of each client over interleaved rounds: what others run on the machine only adds.

    Parameters
    ----------
    module
        Run as ``python -m module client url``; it must call `answer`.
    clients
        Their names.
    url
        Of the server that they all ask.
    n
        What each is asked for in a round.
    rounds
        How often.
    """
    workers = {
        name: subprocess.Popen(
            [sys.executable, "-m", module, name, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in clients
    }
    samples: dict[str, list[float]] = {name: [] for name in clients}
    for _ in range(rounds):
        for name, worker in workers.items():
            samples[name].append(_ask(worker, n))
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait(20)
    return {name: min(values) for name, values in samples.items()}


def _ask(worker: subprocess.Popen[str], n: int) -> float:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{n}\n")
    worker.stdin.flush()
    return float(json.loads(worker.stdout.readline()))


def main(client: Callable[[str, str], Coroutine[Any, Any, None]], measure: Callable[[], dict[str, float]]) -> None:
    """A benchmark's own main: with a name and a URL a worker, else the measuring, printed."""
    if len(sys.argv) > 2:
        asyncio.run(client(sys.argv[1], sys.argv[2]))
        return
    for name, ratio in measure().items():
        print(f"{name}: {ratio:.3f}")


async def answer(measure: Callable[[int], Awaitable[float]]) -> None:
    """In a worker: a figure for each number that is asked for, until nobody asks any more."""
    for line in sys.stdin:
        print(json.dumps(await measure(int(line))), flush=True)

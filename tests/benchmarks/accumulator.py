"""CPU microseconds per delta of the accumulator, events kept: how it grows with the stream and with the number of parts."""

from __future__ import annotations

import time
from typing import Any

from rein_nb.ir import deltas as d
from rein_nb.stream import Accumulator

SIZES = (1_000, 2_000, 16_000, 64_000)


def cost_us(n: int, parts: int) -> float:
    """CPU microseconds per delta for `n` deltas spread over `parts` parts, one after another."""
    per_part = max(1, n // parts)
    feed = [d.Text("abcd ", i // per_part) for i in range(n)]
    best = float("inf")
    for _ in range(5):
        acc = Accumulator()
        kept: list[Any] = []
        start = time.process_time()
        for delta in feed:
            kept += acc.feed(delta)
        kept += acc.feed(d.Finish("stop"))
        kept += acc.end()
        best = min(best, time.process_time() - start)
    return best / n * 1e6


def measure() -> dict[str, float]:
    """Growth from the smallest to the largest size, for one part and for 1,600."""
    small_to_large = {"accumulator growth, 1 part": 1, "accumulator growth, 1,600 parts": 1600}
    out = {}
    for name, parts in small_to_large.items():
        costs = [cost_us(n, min(parts, n)) for n in SIZES]
        out[name] = costs[-1] / costs[0]
        print(f"{name}: {' '.join(f'{c:.2f}' for c in costs)} us a delta at {SIZES}")
    return out


if __name__ == "__main__":
    measure()

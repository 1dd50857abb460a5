"""Events to frames: CPU seconds for 10,000, 100,000 and 1,000,000 events, and how they grow. ``python -m tests.benchmarks.frames``."""

from __future__ import annotations

import time

from rein_nb.agent.events import Event, MessageUpdate
from rein_nb.frames import frame
from rein_nb.ir import deltas
from rein_nb.stream import Accumulator

SIZES = (10_000, 100_000, 1_000_000)


def events(n: int) -> list[Event]:
    """`n` text deltas of one run."""
    acc = Accumulator()
    acc.start()
    return [
        MessageUpdate(
            run_id="r", seq=seq, time=1774748700.0 + seq / 1000, turn=1, event=acc.feed(deltas.Text("word "))[0]
        )
        for seq in range(n)
    ]


def main() -> None:
    """Print the table."""
    frame("events", events(1000))  # pandas is loaded
    before = 0.0
    print(f"{'events':>10}  {'CPU s':>8}  {'us an event':>12}  {'growth for ten times as many':>28}")
    for n in SIZES:
        found = events(n)
        begun = time.process_time()
        made = frame("events", found)
        took = time.process_time() - begun
        assert len(made) == n
        growth = f"{took / before:.1f}" if before else ""
        print(f"{n:>10,}  {took:>8.2f}  {took / n * 1e6:>12.2f}  {growth:>28}")
        before = took


if __name__ == "__main__":
    main()

"""A session of 100,000 entries: opening it and listing the newest 50, and what an append costs beside one to a session of 1,000.

Wall time, since it is the disk that is asked. Opening is that of a process that has nothing open: a fresh `Store` each time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from rein_nb import Message, Session
from rein_nb.store import Store

FEW, MANY = 1_000, 100_000
APPENDS = 200
ROUNDS = 7


def _filled(path: Path, count: int) -> str:
    with Store(path) as store:
        session = store.create("benchmark")
        for first in range(0, count, 1_000):
            session.extend(f"message {n}, of the usual length of a short question" for n in range(first, first + 1_000))
        return session.id


def _open_ms(path: Path, id: str) -> float:
    start = time.perf_counter()
    with Store(path) as store:
        newest = store.open(id).entries(50)
    spent = time.perf_counter() - start
    assert len(newest) == 50
    return spent * 1e3


def _append_ms(session: Session) -> float:
    samples = []
    for n in range(APPENDS):
        start = time.perf_counter()
        session.append(Message(role="user", content=f"one more, number {n}"))
        samples.append(time.perf_counter() - start)
    return statistics.median(samples) * 1e3


def measure() -> dict[str, float]:
    """Milliseconds to open and list; milliseconds an append at either size (the medians of interleaved rounds), and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {count: Path(folder) / f"{count}.db" for count in (FEW, MANY)}
        ids = {count: _filled(path, count) for count, path in paths.items()}
        opened = statistics.median(_open_ms(paths[MANY], ids[MANY]) for _ in range(ROUNDS))
        rounds: dict[int, list[float]] = {FEW: [], MANY: []}
        with Store(paths[FEW]) as few, Store(paths[MANY]) as many:
            sessions = {FEW: few.open(ids[FEW]), MANY: many.open(ids[MANY])}
            for _ in range(ROUNDS):
                for count, session in sessions.items():
                    rounds[count].append(_append_ms(session))
        appended = {count: statistics.median(found) for count, found in rounds.items()}
    return {
        "open, and list the newest 50 of 100,000, ms": opened,
        "append at 1,000, ms": appended[FEW],
        "append at 100,000, ms": appended[MANY],
        "append at 100,000 over 1,000": appended[MANY] / appended[FEW],
    }


if __name__ == "__main__":
    for name, figure in measure().items():
        print(f"{name}: {figure:.3g}")

"""A sweeping process is killed at random moments and the sweep called again: nothing is lost, nothing answered is asked twice.

``REIN_NB_KILLS`` sets how many moments (6 by default), ``REIN_NB_CELLS`` how many cells (160), ``REIN_NB_SEED`` which moments.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from rein_nb import aio
from rein_nb.compare.sweep import Sweep, sweep
from rein_nb.llm import LLM, Config
from rein_nb.store import Store
from tests.support import REPO
from tests.sweep.wire import wire

KILLS = int(os.environ.get("REIN_NB_KILLS", "6"))
CELLS = int(os.environ.get("REIN_NB_CELLS", "160"))
CONCURRENCY = 8

SWEEPER = """
    import contextlib
    import importlib
    import os
    import sys
    import openai
    import rein_nb.providers.wire
    for name in ("httpx2", "httpcore2", "h11", "truststore", "genai_prices.data_snapshot"):
        with contextlib.suppress(ImportError):  # only to save each child the time
            importlib.import_module(name)
    from rein_nb.compare.sweep import sweep
    from rein_nb.llm import LLM, Config

    store, url, cells = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def run():
        llm = LLM(Config(provider="openai-chat", model="gpt-4o-mini", api_key="not-a-key", base_url=url))
        sweep([f"p{n}" for n in range(cells)], llm, store=store, concurrency=8, progress=False)

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run()
            os._exit(0)
        os.write(1, f"{child}\\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"dead\\n")
"""
"""Forks a sweeping process for each line it reads, so that only the first has to import anything."""


@contextlib.contextmanager
def llm_of(url: str) -> Iterator[LLM]:
    llm = LLM(Config(provider="openai-chat", model="gpt-4o-mini", api_key="not-a-key", base_url=url))
    try:
        yield llm
    finally:
        aio.run_sync(llm.aclose())


def test_kill_at_any_moment_keeps_what_was_answered_and_repeats_only_what_was_under_way(tmp_path: Path) -> None:
    rng = random.Random(int(os.environ.get("REIN_NB_SEED", "11")))
    path = tmp_path / "k.sqlite3"
    broken_off: collections.Counter[str] = collections.Counter()
    kept: dict[str, int] = {}
    with wire(delay_s=0.01) as server:
        command = [sys.executable, "-c", textwrap.dedent(SWEEPER), str(path), server.url, str(CELLS)]
        environment = os.environ | {"PYTHONPATH": str(REPO)}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as nursery:
            assert nursery.stdin is not None
            assert nursery.stdout is not None
            for kill in range(KILLS):
                # Most are killed in the midst of asking, one in four perhaps before it has begun.
                enough = sum(server.asked.values()) + (rng.randrange(12, CELLS // KILLS + 13) if kill % 4 else 0)
                nursery.stdin.write("go\n")
                nursery.stdin.flush()
                pid = int(nursery.stdout.readline())
                deadline = time.monotonic() + 30
                while sum(server.asked.values()) < enough:
                    assert time.monotonic() < deadline
                    time.sleep(0.002)
                time.sleep(rng.random() * 0.02)
                os.kill(pid, signal.SIGKILL)
                assert nursery.stdout.readline() == "dead\n"
                if not path.exists():
                    continue
                with Store(path) as store:
                    assert store.database.read("PRAGMA integrity_check") == [("ok",)]
                    try:
                        found = Sweep.open(store=store).results
                    except KeyError:  # killed before it had planned anything
                        continue
                broken_off.update(cell.prompt for cell in found if cell.state == "running")
                for cell in found:
                    assert server.asked[cell.prompt] <= cell.attempts
                    if cell.state == "done":
                        kept.setdefault(cell.prompt, server.asked[cell.prompt])
            nursery.stdin.close()
        rows = [f"p{n}" for n in range(CELLS)]
        with llm_of(server.url) as llm:
            last = sweep(rows, llm, store=path, concurrency=CONCURRENCY, progress=False)
    results = last.results
    assert [cell.prompt for cell in results] == rows
    assert all(cell.state == "done" and cell.result is not None and cell.result.text == "fine" for cell in results)
    assert {prompt: server.asked[prompt] for prompt in kept} == kept, "an answered cell was asked again"
    for cell in results:
        assert server.asked[cell.prompt] <= cell.attempts
        assert cell.attempts <= 1 + broken_off[cell.prompt]
    repeats = sum(server.asked.values()) - CELLS
    print(
        f"{KILLS} kills, {CELLS} cells: {len(kept)} kept over kills, {sum(broken_off.values())} under way, {repeats} requests repeated"
    )
    assert repeats <= KILLS * CONCURRENCY
    assert kept
    assert broken_off


def test_rate_headers_of_a_wire_hold_the_next_requests_back(tmp_path: Path) -> None:
    with (
        wire(headers="x-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 200ms\r\n") as server,
        llm_of(server.url) as llm,
    ):
        began = time.perf_counter()
        sweep(["a", "b", "c", "d"], llm, store=tmp_path / "r.sqlite3", concurrency=1, progress=False)
        assert time.perf_counter() - began >= 0.6
    with wire(delay_s=0.05) as server, llm_of(server.url) as llm:
        sweep(
            [f"p{n}" for n in range(12)], llm, store=tmp_path / "c.sqlite3", concurrency={"openai-chat": 3}, progress=False
        )  # fmt: skip
        assert server.most_at_once == 3

"""Prints each figure of the provider layer beside what it must reach.

``python -m tests.conformance [section ...]``; sections: wire, replay, cuts, fuzz, handoff, options, speed. All by default; about half an hour
on two cores. Needs the shared corpus beside the checkout for the sections that replay recorded traffic.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import accumulator, calls, concurrency, first_request, imports, memory, stream
from tests.conformance import matrix
from tests.conformance.cancelling import cancel_latency_ms
from tests.conformance.corpus import cases
from tests.conformance.real_path import cut_case, stream_case, whole_case

TESTS = Path(__file__).resolve().parent.parent
Row = tuple[str, str, str, bool]


def _row(name: str, value: float, limit: float, form: str = "{:.3f}") -> Row:
    return name, form.format(value), f"<= {limit:g}", value <= limit


def wire(*, save: bool = False) -> list[Row]:
    """Recorded answers through the real path."""

    async def run() -> tuple[int, dict[str, str]]:
        count, wrong = 0, {}
        for case in cases():
            count += 1
            for problem in (
                await stream_case(case) if case.streamed or not case.ok else None,
                await whole_case(case) if not case.streamed else None,
            ):
                if problem:
                    wrong[case.name] = problem
        return count, wrong

    count, wrong = asyncio.run(run())
    for name, problem in wrong.items():
        print(f"   {name}: {problem}")
    if save:
        matrix.save(matrix.matrix(cases(), wrong))
        print(f"   saved {matrix.FILE.name}")
    return [
        (
            "recorded answers through the real path, all present, one terminal event",
            f"{count - len(wrong)}/{count}",
            "all",
            not wrong,
        )
    ]


def cuts() -> list[Row]:
    """Every stream cut, and cancelled, at every event boundary."""

    async def run() -> tuple[int, list[str]]:
        count, wrong = 0, []
        for case in cases():
            if case.streamed and case.ok:
                prefixes = case.prefixes()
                count += 2 * len(prefixes)
                wrong += await cut_case(case, prefixes)
        return count, wrong

    count, wrong = asyncio.run(run())
    for line in wrong:
        print("  ", line)
    latency = asyncio.run(cancel_latency_ms())
    return [
        ("cuts and cancellations at every event boundary", f"{count - len(wrong)}/{count}", "all", not wrong),
        _row("cancel on a silent socket to the terminal event, p95, ms", latency, 50, "{:.1f}"),
    ]


def _pytest(name: str, *args: str, **env: str) -> list[Row]:
    started = time.time()
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *args]
    done = subprocess.run(
        command, cwd=TESTS.parent, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    tail = [line for line in done.stdout.splitlines() if " passed" in line or " failed" in line or "error" in line]
    print("  ", *tail[-1:], f"({time.time() - started:.0f} s)")
    if done.returncode:
        print(done.stdout[-3000:])
    return [(name, tail[-1] if tail else "no result", "no failure", done.returncode == 0)]


def replay() -> list[Row]:
    """Facts against raw JSON; captured, stored, re-encoded; streamed equals whole."""
    recordings = sorted(str(path) for path in (TESTS / "dialects").glob("test_*recordings.py"))
    return _pytest("recordings: every fact present, replay value by value, both forms equal, cut anywhere", *recordings)


def fuzz() -> list[Row]:
    """Random, truncated, doubled and reordered events: 20,000 examples over all dialects."""
    return _pytest(
        "damaged streams, 20,000 examples: exceptions out of an iterator",
        str(TESTS / "dialects"), "-k", "damaged or any_events or server_sends or any_object or any_body or test_any",
        REIN_NB_EXAMPLES_TIMES="13",
    )  # fmt: skip


def handoff() -> list[Row]:
    """Every ordered pair of targets; idempotent and deterministic."""
    return _pytest(
        "hand-off: validator violations over all pairs; idempotent, deterministic (10,000 transcripts)",
        str(TESTS / "dialects" / "test_handoff.py"), str(TESTS / "test_validate.py"),
        REIN_NB_EXAMPLES_TIMES="34",
    )  # fmt: skip


def options() -> list[Row]:
    """Each option is on the wire or raises before I/O."""
    return _pytest("option x dialect matrix", str(TESTS / "dialects"), "-k", "option")


def speed() -> list[Row]:
    """Ratios in one run."""
    rows = [_row(name, value, 1.5) for name, value in accumulator.measure().items()]
    limits = {
        "default transport / openai typed stream": 0.16,
        "default transport / anthropic typed stream": 0.65,
        "aiohttp transport / openai typed stream": 0.07,
        "aiohttp transport / anthropic typed stream": 0.30,
        "one call / openai typed call": 0.6,
        "400 tool turns / openai typed call": 0.1,
        "first request, chat / its SDK's own": 1.15,
        "first request, messages / its SDK's own": 1.15,
        "longest stall of the loop, chat, ms": 50,
        "longest stall of the loop, messages, ms": 50,
        "200 streams x 200 chunks at 5 ms, wall / ideal": 1.5,
        "memory growth over 50,000 chunks, MiB": 6,
        "import rein_nb / import pydantic": 2.5,
        "import rein_nb, Message and LLM / import pydantic": 2.5,
    }
    for module in (stream, calls, first_request, concurrency, memory, imports):
        rows += [_row(name, value, limits[name]) for name, value in module.measure().items()]
    return rows


SECTIONS: dict[str, Callable[[], list[Row]]] = {
    "wire": wire, "replay": replay, "cuts": cuts, "fuzz": fuzz, "handoff": handoff, "options": options, "speed": speed,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("section", nargs="*", choices=[*SECTIONS, []], help="all by default")
    parser.add_argument("--save", action="store_true", help="keep what `wire` played for the documentation")
    given = parser.parse_args()
    rows: list[Row] = []
    for name in given.section or SECTIONS:
        print(f"== {name}")
        rows += wire(save=given.save) if name == "wire" else SECTIONS[name]()
    print()
    for what, value, limit, good in rows:
        print(f"{'ok  ' if good else 'MISS'}  {what}: {value}  (must be {limit})")
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())

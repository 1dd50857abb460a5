"""Cells a second of a sweep, against a bare asyncio client with the same concurrency: ``python -m tests.sweep.throughput [cells] [delay_s]``.

The bare client is the vendor's own asynchronous SDK client in a plain loop of tasks, which keeps nothing. The server answers in a process of its
own after ``delay_s``.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import openai

from rein_nb.compare.sweep import sweep
from rein_nb.llm import LLM, Config

CONCURRENCY = 32


def bare(url: str, cells: int) -> float:
    """Seconds for the bare client."""

    async def main() -> float:
        client = openai.AsyncOpenAI(api_key="not-a-key", base_url=url, max_retries=0)
        prompts = iter([f"p{n}" for n in range(cells)])

        async def worker() -> None:
            for prompt in prompts:
                answer = await client.chat.completions.create(
                    model="gpt-4o-mini", messages=[{"role": "user", "content": prompt}]
                )
                assert answer.choices[0].message.content == "fine"

        began = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
        took = time.perf_counter() - began
        await client.close()
        return took

    return asyncio.run(main())


def swept(llm: LLM, cells: int) -> float:
    """Seconds for the sweep."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        found = sweep([f"p{n}" for n in range(cells)], llm, store=Path(folder), concurrency=CONCURRENCY, progress=False)
        took = time.perf_counter() - began
        assert found.counts == {"done": cells}
        return took


def main() -> None:
    """Print both, and their ratio; the best of three each, in turns."""
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    delay_s = sys.argv[2] if len(sys.argv) > 2 else "0.25"
    command = [sys.executable, "-m", "tests.sweep.wire", delay_s]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        llm = LLM(Config(provider="openai-chat", model="gpt-4o-mini", api_key="not-a-key", base_url=url))
        bare(url, 20), swept(llm, 20)
        pairs = [(bare(url, cells), swept(llm, cells)) for _ in range(3)]
        server.stdin.close()
    one, two = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    print(
        f"{cells} cells, {CONCURRENCY} at once, answers after {delay_s} s: bare {cells / one:.0f}/s, sweep {cells / two:.0f}/s, ratio {one / two:.2f}"
    )


if __name__ == "__main__":
    main()

"""CPU before and in the first request of a fresh process, beside the same SDK's own, and the longest stall of the event loop."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from tests.benchmarks.server import running

ROUNDS = 5


async def _rein(dialect: str, url: str) -> float:
    from rein_nb import LLM

    name = {"chat": "openai-chat/gpt-4.1", "messages": "anthropic/claude-sonnet-4-5"}[dialect]
    llm = LLM.named(name, api_key="sk-benchmark-0000", base_url=url + ("/v1" if dialect == "chat" else ""))
    return await _stall(llm.achat("go"))


async def _sdk(dialect: str, url: str) -> float:
    if dialect == "chat":
        from openai import AsyncOpenAI

        message = {"role": "user", "content": "go"}
        await AsyncOpenAI(api_key="x", base_url=url + "/v1").chat.completions.create(
            model="gpt-4.1", messages=[message]
        )
    else:
        from anthropic import AsyncAnthropic

        message = {"role": "user", "content": "go"}
        await AsyncAnthropic(api_key="x", base_url=url).messages.create(
            model="claude-sonnet-4-5", messages=[message], max_tokens=100
        )
    return 0.0


async def _stall(work: object) -> float:
    """The longest time in seconds that the loop did not come round while `work` ran."""
    task = asyncio.ensure_future(work)  # type: ignore[call-overload]
    longest, last = 0.0, time.perf_counter()
    while not task.done():
        await asyncio.sleep(0.002)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    await task
    return longest


def measure() -> dict[str, float]:
    """CPU ratios (interpreter start and imports included), and stalls in milliseconds."""
    out: dict[str, float] = {}
    with running() as url, tempfile.TemporaryDirectory() as cache:
        # Bytecode is there, as in every process but the very first, wherever this machine keeps it or not.
        env = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
        for dialect in ("chat", "messages"):
            samples: dict[str, list[tuple[float, float]]] = {"rein": [], "sdk": []}
            for round_ in range(1 + ROUNDS):
                for kind in samples:
                    got = subprocess.run(
                        [sys.executable, "-m", "tests.benchmarks.first_request", kind, dialect, url],
                        capture_output=True, text=True, check=True, env=env,
                    )  # fmt: skip
                    if round_:
                        samples[kind].append(tuple(json.loads(got.stdout)))
            cpu = {kind: min(s[0] for s in values) for kind, values in samples.items()}  # what others run only adds
            print(f"{dialect}: {cpu['rein'] * 1e3:.0f} ms, the SDK's own {cpu['sdk'] * 1e3:.0f} ms")
            out[f"first request, {dialect} / its SDK's own"] = cpu["rein"] / cpu["sdk"]
            out[f"longest stall of the loop, {dialect}, ms"] = statistics.median(s[1] for s in samples["rein"]) * 1e3
    return out


if __name__ == "__main__":
    if len(sys.argv) > 3:
        stall = asyncio.run((_rein if sys.argv[1] == "rein" else _sdk)(sys.argv[2], sys.argv[3]))
        print(json.dumps([time.process_time(), stall]))
    else:
        for name, ratio in measure().items():
            print(f"{name}: {ratio:.2f}")

"""CPU a turn of a tool loop of 20 turns, beside pydantic-ai's in the same run where that is installed; and with 160 turns.

``uv run --with 'pydantic-ai-slim[openai,anthropic]' python -m tests.benchmarks.loop`` has it installed for this run alone. Each client runs
in a process of its own, in interleaved rounds; the figure is the lowest. A turn sends the whole history, so what a turn of a longer loop costs
more should be no more than what it sends more.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import time
from typing import Any

from rein_nb import LLM, Agent
from tests.benchmarks.server import running
from tests.benchmarks.workers import answer, lowest, main

TURNS, LONG = 20, 160
ROUNDS = 10
MODELS = {"chat": "gpt-4.1", "messages": "claude-sonnet-4-5"}
SYSTEM = "You are a careful assistant."
PROMPT = "Keep a note with the lookup tool."


def lookup(key: str) -> str:
    """Look a key up."""
    return f"what is known of {key}"


@functools.cache
def _llm(dialect: str, url: str) -> LLM:
    provider, base_url = ("openai-chat", url + "/v1") if dialect == "chat" else ("anthropic", url)
    return LLM.named(f"{provider}/{MODELS[dialect]}", api_key="sk-benchmark-0000", base_url=base_url)


async def _rein(dialect: str, url: str) -> int:
    agent = Agent(_llm(dialect, url), [lookup], SYSTEM, limits={"turns": 2 * LONG})
    return len((await agent.arun(PROMPT)).tool_runs)


async def _pydantic_ai(dialect: str, url: str) -> int:
    from pydantic_ai.usage import UsageLimits

    calls = 0
    unlimited = UsageLimits(request_limit=None)
    async with _peer(dialect, url).run_stream_events(PROMPT, usage_limits=unlimited) as events:
        async for event in events:
            calls += event.event_kind == "function_tool_result"
    return calls


@functools.cache
def _peer(dialect: str, url: str) -> Any:
    import pydantic_ai

    return pydantic_ai.Agent(_model(dialect, url), instructions=SYSTEM, tools=[lookup])


def _model(dialect: str, url: str) -> Any:
    if dialect == "chat":
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(MODELS[dialect], provider=OpenAIProvider(api_key="x", base_url=url + "/v1"))
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    return AnthropicModel(MODELS[dialect], provider=AnthropicProvider(api_key="x", base_url=url))


async def _client(name: str, url: str) -> None:
    kind, dialect = name.split()
    os.environ["REIN_NB_TRANSPORT"] = "default" if kind == "rein_nb" else "fast"
    run = _pydantic_ai if kind == "pydantic_ai" else _rein

    async def ms_a_turn(turns: int) -> float:
        at = f"{url}/n20/m{turns}"
        start = time.process_time()
        calls = await run(dialect, at)
        spent = time.process_time() - start
        assert calls == turns, f"{name} made {calls} calls of {turns}"
        return spent / (turns + 1) * 1e3

    await ms_a_turn(2)
    await answer(ms_a_turn)


def measure() -> dict[str, float]:
    """CPU ratios."""
    installed = importlib.util.find_spec("pydantic_ai") is not None
    clients = [
        f"{kind} {dialect}"
        for kind in ("rein_nb", "rein_nb-fast", *(["pydantic_ai"] if installed else []))
        for dialect in MODELS
    ]
    with running() as url:
        cost = lowest("tests.benchmarks.loop", clients, url, n=TURNS, rounds=ROUNDS)
        long = lowest("tests.benchmarks.loop", [f"rein_nb-fast {d}" for d in MODELS], url, n=LONG, rounds=3)
    for name, ms in cost.items():
        print(f"{name}, {TURNS} turns: {ms:.2f} ms a turn")
    ratios = {}
    for dialect in MODELS:
        fast = cost[f"rein_nb-fast {dialect}"]
        if installed:
            ratios[f"aiohttp transport / pydantic-ai, {dialect}"] = fast / cost[f"pydantic_ai {dialect}"]
            ratios[f"default transport / pydantic-ai, {dialect}"] = (
                cost[f"rein_nb {dialect}"] / cost[f"pydantic_ai {dialect}"]
            )
        ratios[f"a turn of {LONG} / a turn of {TURNS}, {dialect}"] = long[f"rein_nb-fast {dialect}"] / fast
    return ratios


if __name__ == "__main__":
    main(_client, measure)

"""CPU of one call that is not streamed, and of one with 400 tool turns of history, beside the openai SDK's typed call."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from rein_nb import LLM, Message, ToolCall, ToolSpec
from tests.benchmarks.server import running

CALLS = 60
TURNS = 400
PARAMETERS = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


def history(turns: int) -> list[Message]:
    out = [Message(role="user", content="go")]
    for n in range(turns):
        out.append(
            Message(
                role="assistant",
                content="",
                tool_calls=[ToolCall(id=f"call_{n}", name="lookup", arguments={"key": f"k{n}"})],
            )
        )
        out.append(Message(role="tool", tool_call_id=f"call_{n}", content="ok"))
    return out


def wire_history(turns: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for n in range(turns):
        call = {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "lookup", "arguments": json.dumps({"key": f"k{n}"})},
        }
        out.append({"role": "assistant", "content": None, "tool_calls": [call]})
        out.append({"role": "tool", "tool_call_id": f"call_{n}", "content": "ok"})
    return out


async def _cost_ms(call: Callable[[], Awaitable[Any]], n: int) -> float:
    for _ in range(3):
        await call()
    samples = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(n):
            await call()
        samples.append((time.process_time() - start) / n * 1e3)
    return statistics.median(samples)


async def _measure(url: str) -> dict[str, float]:
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key="x", base_url=url + "/v1")
    llm = LLM.named("openai-chat/gpt-4.1", api_key="sk-benchmark-0000", base_url=url + "/v1")
    spec = ToolSpec(name="lookup", description="Look a key up.", parameters=PARAMETERS)
    wire_spec = {
        "type": "function",
        "function": {"name": "lookup", "description": "Look a key up.", "parameters": PARAMETERS},
    }
    out = {}
    for name, turns, n in (
        ("one call / openai typed call", 0, CALLS),
        ("400 tool turns / openai typed call", TURNS, 5),
    ):
        ours, theirs = history(turns), wire_history(turns)
        a = await _cost_ms(lambda ours=ours: llm.achat(ours, tools=[spec]), n)
        b = await _cost_ms(
            lambda theirs=theirs: client.chat.completions.create(model="gpt-4.1", messages=theirs, tools=[wire_spec]), n
        )
        print(f"{name}: {a:.2f} ms / {b:.2f} ms")
        out[name] = a / b
    await llm.aclose()
    await client.close()
    return out


def measure() -> dict[str, float]:
    """CPU ratios to the openai SDK's typed call."""
    with running() as url:
        return asyncio.run(_measure(url))


if __name__ == "__main__":
    for name, ratio in measure().items():
        print(f"{name}: {ratio:.3f}")

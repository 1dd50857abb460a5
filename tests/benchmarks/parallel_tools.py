"""Eight parallel tools of 0.2 s beside one: wall time of the turn, async and sync."""

from __future__ import annotations

import asyncio
import time

from rein_nb import Agent
from rein_nb.ir import ToolCall
from rein_nb.testing import ScriptedProvider

NAP_S = 0.2


async def in_loop(i: int) -> int:
    """Wait."""
    await asyncio.sleep(NAP_S)
    return i


def in_thread(i: int) -> int:
    """Wait."""
    time.sleep(NAP_S)
    return i


async def _turn_s(name: str, calls: int) -> float:
    made = [ToolCall(id=str(i), name=name, arguments={"i": i}) for i in range(calls)]
    result = await Agent(ScriptedProvider.llm(made, "ok"), [in_loop, in_thread]).arun("go")
    assert [tool.result.text for tool in result.tool_runs] == [str(i) for i in range(calls)]
    return result.turns[0].duration_s or 0.0


async def _ratio(name: str) -> float:
    # The least of three: a busy machine can only make it longer.
    one = min([await _turn_s(name, 1) for _ in range(3)])
    return min([await _turn_s(name, 8) for _ in range(3)]) / one


def measure() -> dict[str, float]:
    """Eight over one, by kind of tool."""
    return {name: asyncio.run(_ratio(name)) for name in ("in_loop", "in_thread")}


if __name__ == "__main__":
    for name, ratio in measure().items():
        print(f"eight parallel tools of {NAP_S:g} s over one, {name}: {ratio:.2f}")

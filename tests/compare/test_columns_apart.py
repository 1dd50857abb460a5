"""Columns against real loopback servers: what one of them does to its own column never reaches another."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import Any

from rein_nb.compare import Comparison, compare
from rein_nb.llm import LLM
from rein_nb.providers import Timeouts
from rein_nb.testing.server import serve_recording

PIECES = 30
STEP_S = 0.02


def answer(pieces: int = PIECES) -> dict[str, Any]:
    """A streamed Chat Completions answer."""
    chunks = [
        {"id": "r", "model": "m", "choices": [{"index": 0, "delta": {"content": "word "}}]} for _ in range(pieces)
    ]
    chunks.append({"id": "r", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return {"body": "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"}


REFUSAL = {"status": 401, "json": {"error": {"message": "no such key"}}}


def at(server: Any, idle_s: float = 60.0) -> LLM:
    return LLM.named(
        "openai-compatible/m",
        base_url=server.base_url + "/v1",
        api_key="k",
        max_retries=0,
        timeouts=Timeouts(idle_s=idle_s),
    )


def seconds(made: Comparison, labels: list[str]) -> float:
    return max(made.result(label).duration_s or 0.0 for label in labels)


def test_six_columns_with_one_failing_one_hanging_and_one_slow_leave_the_others_as_fast_as_alone() -> None:
    good = ["one", "two", "three"]
    with ExitStack() as stack:

        def serve(source: Any, **how: Any) -> Any:
            return stack.enter_context(serve_recording(source, repeat=True, cuts="events", **how))

        paced = {label: at(serve(answer(), delay_s=STEP_S)) for label in good}
        models = {
            **paced,
            "fails": at(serve(REFUSAL)),
            "hangs": at(serve(answer(), hang_after=3), idle_s=0.5),
            "slow": at(serve(answer(10), delay_s=0.1)),
        }
        compare("warm up", models)
        alone = min(seconds(compare("go", paced), good) for _ in range(2))
        start = time.perf_counter()
        made = compare("go", models)
        whole = time.perf_counter() - start
        together = min(seconds(made, good), seconds(compare("go", models), good))
    assert together <= 1.25 * alone
    assert [made.result(label).text for label in good] == ["word " * PIECES] * 3
    assert made.result("slow").text == "word " * 10
    fails, hangs = made.result("fails").error, made.result("hangs").error
    assert fails is not None
    assert fails.kind == "authentication"
    assert hangs is not None
    assert (hangs.kind, hangs.phase) == ("timed_out", "idle")
    assert made.result("hangs").text == "word " * 3
    assert whole < 6
    print(f"three good columns: {alone:.3f} s alone, {together:.3f} s among six ({together / alone:.2f}x)")

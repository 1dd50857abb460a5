"""Interrupted in any way at any moment: the events end with `AgentEnd`, and every provider accepts what is asked next.

A sample of all interruptions of the thirty runs; ``REIN_NB_INTERRUPTIONS=all`` makes every one of them, another number that many of
each kind and run.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any

import pytest

from rein_nb import aio
from tests.agent.interruptions import KINDS, SCRIPTS, check

WANTED = os.environ.get("REIN_NB_INTERRUPTIONS", "4")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(SCRIPTS))
def test_after_any_interruption_the_next_request_is_valid(
    number: int, kind: str, record_property: Any, recwarn: pytest.WarningsRecorder
) -> None:
    problems: list[Any] = []

    def hear(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "listener" not in context["message"]:  # which is told so, and is what one kind is about
            problems.append(context)

    with asyncio.Runner() as runner:
        for loop in (runner.get_loop(), aio.background_loop()):
            loop.set_exception_handler(hear)
        attempts = list(KINDS[kind](number, runner))
        if WANTED != "all":
            attempts = random.Random(number).sample(attempts, min(int(WANTED), len(attempts)))
        for attempt in attempts:
            try:
                check(*attempt.make(runner), runner)
            except BaseException as exc:
                exc.add_note(f"run {number}: {attempt.name}")
                raise
    record_property("interruptions", len(attempts))
    assert attempts
    assert problems == []
    assert not [warning for warning in recwarn if "never" in str(warning.message)]

"""Results without the machine's times, by ``REIN_NB_STEADY``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import rein_nb as rn
from rein_nb.agent.result import AgentResult
from rein_nb.ir import ToolCall
from rein_nb.notebook import transcript_markdown
from rein_nb.testing import ScriptedProvider
from tests.support import REPO


@rn.tool
def look() -> str:
    """Look."""
    return "seen"


def run_once() -> AgentResult:
    return rn.Agent(ScriptedProvider.llm([ToolCall(id="c1", name="look")], "done"), tools=[look]).run("go")


TIMES = ("started_at", "duration_s")

SHOWN = r"\d m?s\b"


def times_in(result: AgentResult) -> list[object]:
    things = [result, *result.turns, *result.tool_runs]
    timings = [turn.completion.timing for turn in result.turns]
    measured = [getattr(thing, name) for thing in things for name in TIMES]
    return measured + [value for timing in timings for name, value in timing if name != "retries"]


def test_results_have_times_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "0"):
        monkeypatch.setenv("REIN_NB_STEADY", value)
        result = run_once()
        assert None not in [getattr(result, name) for name in TIMES]
        assert re.search(SHOWN, transcript_markdown(result))


def test_a_steady_run_has_no_times_and_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REIN_NB_STEADY", "1")
    result = run_once()
    assert set(times_in(result)) == {None}
    assert re.search(SHOWN, transcript_markdown(result)) is None
    for frame in (result.to_frame("runs"), result.to_frame("turns"), result.to_frame("tool_calls")):
        for column in frame.columns:
            if column.endswith("_s") or column == "started_at":
                assert frame[column].isna().all(), column


def test_equal_runs_of_two_processes_are_equal() -> None:
    code = (
        "from tests.agent.test_steady import run_once\n"
        "a, b = run_once(), run_once()\n"
        "assert a.run_id != b.run_id\n"
        "print(a.model_dump_json(), b.model_dump_json())\n"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPO,
            env={"REIN_NB_STEADY": "1", "PYTHONPATH": str(REPO)},
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert told[0] == told[1]
    assert '"done"' in told[0]


def test_what_failed_and_what_was_swept_have_no_times_either(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REIN_NB_STEADY", "1")
    comparison = rn.compare(
        "go", models={"a": rn.Agent(ScriptedProvider.llm("yes")), "b": rn.Agent("local/no-such-model")}, show=False
    )
    assert comparison.runs["error_kind"].notna().tolist() == [False, True]
    assert comparison.runs["duration_s"].isna().all()
    rows = rn.sweep(
        pd.DataFrame({"q": ["x"]}), models=[ScriptedProvider.llm("yes", repeat=True)], prompt="{q}",
        name="steady", store=tmp_path / "s.db", progress=False,
    ).frame()  # fmt: skip
    assert len(rows) == 1
    assert rows["duration_s"].isna().all()


def test_a_recording_that_is_played_keeps_its_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with rn.record(path):
        run_once()

    def played() -> AgentResult:
        with rn.replay(path):
            return run_once()

    before = played()
    monkeypatch.setenv("REIN_NB_STEADY", "1")
    assert played() == before
    assert before.duration_s is not None

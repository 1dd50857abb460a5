"""Recorded traffic through loopback HTTP, the SDKs' clients, our decoders and the accumulator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance import matrix
from tests.conformance.corpus import FOLDERS, cases
from tests.conformance.real_path import cut_case, stream_case, whole_case

SAMPLED_PREFIXES = 1
"""Cuts tried for each recording here; ``python -m tests.conformance`` tries them all."""


@pytest.mark.parametrize("folder", FOLDERS)
async def test_every_recorded_answer_gives_what_its_codec_gives(folder: str, shared: Path) -> None:
    problems = []
    found = 0
    for case in cases(folder):
        found += 1
        if case.streamed or not case.ok:
            problems.append((case.name, await stream_case(case)))
        if not case.streamed:
            problems.append((case.name, await whole_case(case)))
    assert found > 10
    assert [problem for problem in problems if problem[1]] == []


@pytest.mark.parametrize("folder", FOLDERS)
async def test_a_stream_cut_or_cancelled_between_events_ends_once_and_keeps_what_came(
    folder: str, shared: Path
) -> None:
    problems: list[str] = []
    for case in cases(folder):
        if case.streamed and case.ok:
            prefixes = case.prefixes()
            step = max(1, len(prefixes) // SAMPLED_PREFIXES)
            problems += await cut_case(case, prefixes[step // 2 :: step][:SAMPLED_PREFIXES])
    assert problems == []


def test_the_documented_matrix_is_what_is_played(shared: Path) -> None:
    saved = json.loads(matrix.FILE.read_text(encoding="utf-8"))
    assert saved == matrix.matrix(cases()), "run `python -m tests.conformance wire --save`"
    assert sum(row["right"] for row in saved) > 500

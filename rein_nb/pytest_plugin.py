"""For pytest: tests that talk to a model, played back from a recording.

A test marked ``@pytest.mark.rein_nb_recording`` gets its model calls from a file beside it (``recordings/<module>/<test>.jsonl``, or the path
that the marker names), with no key and no network. ``pytest --rein-nb=record`` asks the providers and writes the files anew,
``--rein-nb=auto`` asks only for what they lack. In a file that a marker names, which several tests may share, the answers to a test's own
requests are made anew. An answer is never replaced by a fault.
"""

from __future__ import annotations

import hashlib
import re
import uuid
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rein_nb.store import Recording

MARKER = "rein_nb_recording"
MODES = ("replay", "record", "auto")

_LONGEST_NAME = 240
"""Bytes. File systems take 255, and the ending is to follow, and that of what is set aside."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--rein-nb``."""
    group = parser.getgroup("rein_nb")
    group.addoption(
        "--rein-nb", choices=MODES, default="replay", help="play back, record anew, or record what is missing"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(path=None, mode=None, speed=None): model calls are played back from a recording (or recorded, see --rein-nb)",
    )


_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test came to its end, for what it recorded."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture(autouse=True)
def rein_nb_recording(request: pytest.FixtureRequest) -> Iterator[Recording | None]:
    """The open recording of a marked test; None for all other tests."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        yield None
        return
    given, mode, speed = _arguments(*marker.args, **marker.kwargs)
    mode = mode or request.config.getoption("--rein-nb")
    path = _default_path(request) if given is None else request.path.parent / given
    from rein_nb.store import Recording

    if mode != "record":
        with Recording(path, mode, speed=speed) as recording:
            yield recording
        return
    Recording(path, mode)  # what is no recording is not replaced by one
    # Until the test is over, the old answers stay where they are.
    half = path.with_name(f"{uuid.uuid4().hex}.part")
    try:
        with Recording(half, mode, speed=speed) as recording:
            recording.path = path
            yield recording
        from rein_nb.store.recording_anew import put_in_place

        passed = request.node.stash.get(_PASSED, False)
        kept = put_in_place(recording.exchanges, recording.created_at, path, shared=given is not None, whole=passed)
        if kept is not None:
            warnings.warn(kept, pytest.PytestWarning, stacklevel=1)
    finally:
        half.unlink(missing_ok=True)


def _arguments(
    path: str | None = None, mode: str | None = None, speed: float | None = None
) -> tuple[str | None, Any, float | None]:
    if mode is not None and mode not in MODES:
        raise ValueError(f"the marker {MARKER} takes mode= {', '.join(MODES)}, not {mode!r}")
    return path, mode, speed


def _default_path(request: pytest.FixtureRequest) -> Path:
    """One for each test: where the name had to be changed for the file system, a hash of it tells alike ones apart."""
    name = request.node.nodeid.partition("::")[2]
    safe = re.sub(r"[^\w.-]+", "_", name).strip("_")
    if safe != name or len(safe.encode()) > _LONGEST_NAME:
        start = safe[:100].encode()[: _LONGEST_NAME - 9].decode(errors="ignore")
        safe = f"{start}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return request.path.parent / "recordings" / request.path.stem / f"{safe}.jsonl"

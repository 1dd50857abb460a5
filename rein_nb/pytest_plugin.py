"""For pytest: tests that talk to a model, played back from a recording.

A test marked ``@pytest.mark.rein_nb_recording`` gets its model calls from a file beside it (``recordings/<module>/<test>.jsonl``, or the path
that the marker names), with no key and no network. ``pytest --rein-nb=record`` asks the providers and writes the files anew,
``--rein-nb=auto`` asks only for what they lack.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rein_nb.store import Recording

MARKER = "rein_nb_recording"
MODES = ("replay", "record", "auto")


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

    before = path.with_name(f"{path.name}.before")
    if mode == "record" and path.exists():
        path.replace(before)
    try:
        with Recording(path, mode, speed=speed) as recording:
            yield recording
    finally:
        if mode == "record" and before.exists():
            if path.exists():
                before.unlink()
            else:
                before.replace(path)  # nothing was asked: the test failed before


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
    if safe != name:
        safe = f"{safe[:100]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return request.path.parent / "recordings" / request.path.stem / f"{safe}.jsonl"

"""Fixtures for the whole suite."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.support import SHARED


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared corpora; the test is skipped, loudly, where a checkout has none."""
    if not SHARED.exists():
        warnings.warn("no shared corpus beside this checkout: recorded-traffic tests are skipped", stacklevel=1)
        pytest.skip("no shared corpus beside this checkout")
    return SHARED

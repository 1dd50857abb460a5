"""Fixtures for the whole suite."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support import SHARED

# A busy machine is no fault of the code: examples have no deadline.
settings.register_profile("rein_nb", deadline=None, print_blob=True)
settings.load_profile("rein_nb")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared corpora; the test is skipped, loudly, where a checkout has none."""
    if not SHARED.exists():
        warnings.warn("no shared corpus beside this checkout: recorded-traffic tests are skipped", stacklevel=1)
        pytest.skip("no shared corpus beside this checkout")
    return SHARED

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


LONG = (
    "tests/browser/test_hostile.py", "tests/browser/test_lab.py", "tests/test_notebooks_saved.py", "tests/local/test_three_dialects.py",
    "notebooks/01_first_light.ipynb", "tests/test_cli.py", "notebooks/02_compare.ipynb", "tests/browser/", "tests/test_readme.py",
    "notebooks/", "tests/agent/test_interruptions.py", "tests/test_wheel.py", "tests/test_docs.py", "tests/local/", "tests/notebook/",
    "tests/sweep/", "tests/store/", "tests/tools/", "tests/dialects/",
)  # fmt: skip
"""What takes long, the longest first: begun last, it would keep one process busy when the others are done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first. Within a file the order stays."""

    def rank(item: pytest.Item) -> int:
        return next((n for n, start in enumerate(LONG) if item.nodeid.startswith(start)), len(LONG))

    items.sort(key=rank)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared corpora; the test is skipped, loudly, where a checkout has none."""
    if not SHARED.exists():
        warnings.warn("no shared corpus beside this checkout: recorded-traffic tests are skipped", stacklevel=1)
        pytest.skip("no shared corpus beside this checkout")
    return SHARED

"""The tutorials that ask the embedded model are executed without the machine's times, as they are saved."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

STEADY = "REIN_NB_STEADY"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """For the kernel, which has this process's environment; other tests want their times."""
    if item.path.suffix != ".ipynb" or "local/smollm2-135m" not in item.path.read_text(encoding="utf-8"):
        return (yield)
    before = os.environ.get(STEADY)
    os.environ[STEADY] = "1" if before is None else before
    try:
        return (yield)
    finally:
        if before is None:
            del os.environ[STEADY]

"""The examples in the docstrings of the hand-off, the schemas, Google's dialect and the validators are true."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

MODULES = [
    "rein_nb.dialects.handoff",
    "rein_nb.dialects.handoff_rules",
    "rein_nb.dialects.schema",
    "rein_nb.dialects.google_args",
    "rein_nb.dialects.google_usage",
    "rein_nb.testing.validate",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    results = doctest.testmod(import_module(name))
    assert results.attempted > 0
    assert results.failed == 0

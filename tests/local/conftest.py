"""The embedded model for the tests of this folder: started once, shared."""

from __future__ import annotations

import importlib.util

import pytest

from rein_nb.providers import local


@pytest.fixture(scope="session")
def endpoint() -> local.LocalEndpoint:
    """The running embedded server. The weights are fetched when this machine has none."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip('the runtime of the embedded models is not installed (extra "local")')
    return local.ensure("local/smollm2-135m")

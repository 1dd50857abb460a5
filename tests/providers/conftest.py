"""Every test here runs without the keys, addresses and files of the machine it runs on."""

from __future__ import annotations

import os

import pytest

from rein_nb.providers import transport


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL", "_AUTH_TOKEN")) or name.startswith(
            ("REIN_NB_", "AZURE_", "OLLAMA_")
        ):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=["aiohttp", "httpx2"])
def http(request, monkeypatch):
    """Both of the SDKs' HTTP backends, one after the other."""
    if request.param == "aiohttp":
        pytest.importorskip("aiohttp")
    monkeypatch.setattr(transport, "uses_aiohttp", lambda base_url: request.param == "aiohttp")
    return request.param

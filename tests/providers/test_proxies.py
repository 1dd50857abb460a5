"""Proxies that the environment names, with both of the SDKs' HTTP backends."""

from __future__ import annotations

import http.server
import importlib.util
import json
import threading
from collections.abc import Iterator

import pytest

from rein_nb import LLM
from rein_nb.ir import InvalidRequest
from rein_nb.providers import transport

ANSWER = {"id": "x", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}]}  # fmt: skip


class Proxy(http.server.ThreadingHTTPServer):
    """Answers what it is asked to fetch, and remembers that."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append(self.requestline)
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with Proxy() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask() -> str:
    llm = LLM.named("openai-compatible/m", base_url="http://provider.invalid/v1", api_key="k", max_retries=0)
    return llm.chat("x").text


@pytest.mark.parametrize("name", ["HTTP_PROXY", "all_proxy"])
def test_an_http_proxy_is_used(name: str, proxy: Proxy, http: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
    assert ask() == "hi"
    assert proxy.asked == ["POST http://provider.invalid/v1/chat/completions HTTP/1.1"]


@pytest.mark.parametrize("name", ["ALL_PROXY", "http_proxy"])
@pytest.mark.parametrize("scheme", ["socks5", "SOCKS5h"])
def test_a_socks_proxy_is_not_asked_in_http(
    name: str, scheme: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, f"{scheme}://127.0.0.1:{proxy.server_port}")
    assert not transport.uses_aiohttp("http://provider.invalid/v1"), "which knows none"
    if importlib.util.find_spec("socksio") is None:
        with pytest.raises(InvalidRequest, match=r"a SOCKS proxy.*pip install socksio"):
            ask()
    assert proxy.asked == []


@pytest.mark.parametrize(
    "more", [{"NO_PROXY": "provider.invalid,localhost"}, {"http_proxy": "{here}"}, {"HTTP_PROXY": "{here}"}], ids=str
)
def test_a_socks_proxy_for_other_addresses_is_no_matter(
    more: dict[str, str], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    for name, value in more.items():
        monkeypatch.setenv(name, value.format(here=f"http://127.0.0.1:{proxy.server_port}"))
    assert transport.uses_aiohttp("http://provider.invalid/v1")
    if "NO_PROXY" not in more:
        assert ask() == "hi"
        return
    llm = LLM.named("openai-compatible/m", base_url=f"http://localhost:{proxy.server_port}/v1", max_retries=0)
    assert llm.chat("x").text == "hi"


def test_the_environment_chooses_the_backend(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert transport.uses_aiohttp("http://provider.invalid/v1"), "it comes with every installation"
    monkeypatch.setenv("REIN_NB_TRANSPORT", "default")
    assert not transport.uses_aiohttp("http://provider.invalid/v1")

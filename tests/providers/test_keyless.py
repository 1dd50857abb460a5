"""Servers that want no key get none."""

from __future__ import annotations

import pytest

from rein_nb.llm import LLM, Config
from rein_nb.testing.server import serve_recording

BODY = 'data: {"id":"c","model":"m","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize(
    "provider", ["openai-compatible", "vllm", "llamacpp", "lmstudio", "ollama-chat", "litellm-proxy"]
)
async def test_a_server_without_keys_is_asked_without_one(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "REIN_NB_API_KEY",
        "VLLM_API_KEY",
        "LLAMA_API_KEY",
        "LMSTUDIO_API_KEY",
        "OLLAMA_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
    async with serve_recording({"body": BODY}, repeat=True) as server:
        llm = LLM(Config(provider=provider, model="m", base_url=server.base_url + "/v1", max_retries=0))
        for _ in range(2):  # the second request is filled into the first one's template
            events = [event async for event in llm.astream_events("hi")]
            assert events[-1].completion.text == "hi", events[-1].completion.error
        await llm.aclose()
    assert len(server.requests) == 2
    assert all("authorization" not in request.headers for request in server.requests)

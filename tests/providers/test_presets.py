"""Every preset is asked once, streamed and whole: the address it goes to, the key it takes and shows, the answer it gives."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from rein_nb.llm import LLM, Config
from rein_nb.providers.presets import PRESETS
from rein_nb.testing.server import serve_recording
from tests.providers.wires import CHAT, CODE_ASSIST, GOOGLE, MESSAGES, OLLAMA, RESPONSES, TEXT

KEY = "sk-preset-0123456789"
WIRES = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": MESSAGES,
    "google": GOOGLE,
    "google-code-assist": CODE_ASSIST,
    "ollama": OLLAMA,
}
ENDS = {
    "openai-chat": r"/chat/completions",
    "openai-responses": r"/responses",
    "anthropic": r"/v1/messages",
    "google": r"(/v1beta)?/models/some-model:(streamG|g)enerateContent",
    "google-code-assist": r"/v1internal:(streamG|g)enerateContent",
    "ollama": r"/api/chat",
}
REMOTE = [spec for spec in PRESETS if spec.endpoint == "url"]


def test_every_dialect_has_its_wire() -> None:
    assert {spec.dialect for spec in REMOTE} == set(WIRES)
    assert len(REMOTE) > 40


@pytest.mark.parametrize("spec", REMOTE, ids=lambda spec: spec.name)
async def test_a_preset_is_asked_and_answers(spec, monkeypatch):
    wire = WIRES[spec.dialect]
    for other in PRESETS:
        for name in other.variables():
            monkeypatch.setenv(name, "sk-other-0123456789")
    for name in spec.variables():
        monkeypatch.setenv(name, KEY)
    address = re.sub(r"\{[A-Z_]+\}", "x", re.sub(r"^\{[A-Z_]+\}", "https://host", spec.base_url or ""))
    path = urlsplit(address).path.rstrip("/")
    headers = {"content-type": "text/event-stream"}
    async with serve_recording(
        [{"status": 200, "headers": headers, "body": wire.stream}, {"status": 200, "headers": {}, "body": wire.whole}]
    ) as server:
        llm = LLM(
            Config(
                provider=spec.name,
                model="some-model",
                base_url=server.base_url + path,
                extra={"opt_in": True} if spec.opt_in else {},
                max_retries=0,
            )
        )
        streamed = [event async for event in llm.astream_events("hi")][-1].completion
        whole = await llm.achat("hi")
        await llm.aclose()
    for completion in (streamed, whole):
        assert completion.error is None
        assert completion.text == TEXT
        assert (completion.usage.input_tokens, completion.usage.output_tokens) == (12, 3)
        assert completion.provider == spec.name
    for request in server.requests:
        assert re.fullmatch(re.escape(path) + ENDS[spec.dialect], request.path), request.path
        # Which header a key goes into, Anthropic's SDK decides.
        right = {"authorization" if spec.auth == "bearer" else spec.auth} | (
            {"authorization"} if spec.sdk == "anthropic" else set()
        )
        sent = [name for name, value in request.headers.items() if KEY in value]
        assert len(sent) == 1
        assert sent[0] in right
        assert "sk-other" not in str(request.headers)
        assert KEY not in str(request.query)

"""Keys show nowhere: not in reprs, tracebacks, dumps, pickles, logs or what is kept of a response."""

from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import traceback

import pytest

from rein_nb.ir import AuthenticationError
from rein_nb.llm import LLM, Config
from rein_nb.testing.server import serve_recording
from tests.providers.wires import CHAT, GOOGLE, MESSAGES, RESPONSES

KEY = "sk-live-ABCDEF123456"
HEADERS = {
    "x-api-key": "hdr-SECRET-9",
    "Authorization": "Bearer tok-SECRET",
    "cookie": "sid-SECRET",
    "api-key": "azure-SECRET",
}


def clean(text: str) -> None:
    assert "SECRET" not in text
    assert "sk-live-A" not in text
    assert "ABCDEF123456" not in text


def config(**fields):
    return Config(provider="openai-chat", model="gpt-4o", api_key=KEY, headers=HEADERS, **fields)


def test_C125_no_repr_shows_a_key():
    llm = LLM(config())
    for thing in (llm.config, llm, llm.backend, llm.backend._transport, llm.backend._transport.endpoint()):
        for form in (repr(thing), str(thing), str(getattr(thing, "__dict__", "")), repr(copy.deepcopy(llm.config))):
            clean(form)


def test_C125_no_export_shows_a_key():
    made = config()
    clean(made.model_dump_json())
    clean(str(made.model_dump()))
    with pytest.raises(ValueError, match="masked"):
        Config.model_validate_json(made.model_dump_json())


def test_C125_a_pickle_holds_no_key_and_finds_it_again_where_it_is_opened(monkeypatch):
    made = config(temperature=0.5)
    blob = pickle.dumps(made)
    clean(blob.decode("latin-1"))
    assert pickle.loads(blob).api_key is None
    monkeypatch.setenv("OPENAI_API_KEY", "sk-there-00000000000")
    again = pickle.loads(blob)
    assert again.api_key.get_secret_value() == "sk-there-00000000000"
    assert (again.provider, again.model, again.temperature) == ("openai-chat", "gpt-4o", 0.5)


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES, GOOGLE], ids=lambda wire: wire.provider)
@pytest.mark.parametrize("streamed", [True, False])
async def test_C125_a_traceback_with_local_variables_shows_no_key(wire, streamed):
    body = json.dumps(
        {"error": {"message": f"Incorrect API key provided: {KEY}. Also tok-SECRET.", "code": "invalid_api_key"}}
    )
    reply = {"status": 401, "headers": {"content-type": "application/json"}, "body": body}
    async with serve_recording(reply) as server:
        llm = LLM(Config(provider=wire.provider, model=wire.model, api_key=KEY, headers={**HEADERS}, max_retries=0,
                         base_url=server.base_url + wire.prefix))  # fmt: skip
        with pytest.raises(AuthenticationError) as caught:
            await (_streamed(llm) if streamed else llm.achat("hi"))
        await llm.aclose()
    assert server.requests, "the request was sent"
    own = [
        line
        for link in _chain(caught.value)
        for line in traceback.TracebackException.from_exception(link, capture_locals=True).format()
    ]
    # This test's own frame holds the key by its own name; no other frame may.
    clean("".join(block for block in own if "test_secrets.py" not in block))
    clean(str(caught.value) + repr(caught.value.info))


async def _streamed(llm):
    completion = [event async for event in llm.astream_events("hi")][-1].completion
    clean(repr(completion.error))
    clean(completion.model_dump_json())
    raise completion.error.to_exception(completion)


def _chain(exc):
    while exc is not None:
        yield exc
        exc = exc.__cause__ or exc.__context__


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, MESSAGES, GOOGLE], ids=lambda wire: wire.provider)
async def test_C127_debug_logs_show_no_key(wire, http):
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setLevel(logging.DEBUG)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        failing = {"status": 401, "headers": {"content-type": "application/json", "set-cookie": "s=sid-SECRET"},
                   "body": json.dumps({"error": {"message": f"bad key {KEY}"}})}  # fmt: skip
        fine = {
            "status": 200,
            "headers": {"content-type": "text/event-stream", "x-ratelimit-x": KEY},
            "body": wire.stream,
        }
        async with serve_recording([fine, failing]) as server:
            llm = LLM(Config(provider=wire.provider, model=wire.model, api_key=KEY, headers=HEADERS, max_retries=0,
                             base_url=server.base_url + wire.prefix))  # fmt: skip
            for _ in range(2):
                completion = [event async for event in llm.astream_events("hi")][-1].completion
                clean(completion.model_dump_json())
            await llm.aclose()
            assert len(server.requests) == 2
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    clean(text.getvalue())

"""Strict mode makes a model write null for what it leaves out; the tool is called as if it had left it out."""

from __future__ import annotations

import json

from rein_nb import LLM, Agent, Config, tool
from rein_nb.testing import serve_recording


@tool(strict=True)
def search(query: str, limit: int = 5) -> str:
    """Search."""
    return f"{query}:{limit}"


def _chunk(delta: dict, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return "data: " + json.dumps({"id": "c", "model": "gpt-4o", "choices": [choice]}) + "\n\n"


async def test_a_null_for_an_optional_parameter_is_its_default() -> None:
    call = {
        "index": 0,
        "id": "call_1",
        "function": {"name": "search", "arguments": '{"query": "tides", "limit": null}'},
    }
    first = _chunk({"tool_calls": [call]}) + _chunk({}, "tool_calls") + "data: [DONE]\n\n"
    second = _chunk({"content": "done"}) + _chunk({}, "stop") + "data: [DONE]\n\n"
    async with serve_recording([{"body": first}, {"body": second}]) as server:
        llm = LLM(
            Config(provider="openai-chat", model="gpt-4o", api_key="not-a-key-000000", base_url=server.base_url + "/v1")
        )
        result = await Agent(llm, tools=[search]).arun("go")
        await llm.aclose()
    assert result.tool_runs[0].result.text == "tides:5"
    assert server.requests[0].json["tools"][0]["function"]["strict"] is True
    # What the model wrote is what goes back.
    sent = server.requests[1].json["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"query": "tides", "limit": None}

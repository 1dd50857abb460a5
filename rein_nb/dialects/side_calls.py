"""The small calls beside generation: what an endpoint offers, and how many tokens a request has."""

from __future__ import annotations

from typing import Any

from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.counts import count
from rein_nb.ir.base import JSON

_ANTHROPIC_COUNTED = frozenset(
    # https://platform.claude.com/docs/en/api/messages-count-tokens
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "mcp_servers", "cache_control",
     "context_management"}
)  # fmt: skip
_RESPONSES_COUNTED = frozenset(
    # https://platform.openai.com/docs/api-reference/responses/input-tokens
    {"model", "input", "instructions", "tools", "tool_choice", "text", "reasoning", "truncation", "conversation",
     "previous_response_id", "parallel_tool_calls"}
)  # fmt: skip


def models_call(dialect: str) -> WireCall | None:
    """The call that lists an endpoint's models (a GET); None where the dialect has none."""
    paths = {
        "openai-chat": "/models",
        "openai-responses": "/models",
        "anthropic": "/v1/models",
        "google": "/v1beta/models",
        "ollama": "/api/tags",
    }
    if dialect not in paths:
        return None
    query = {"anthropic": {"limit": "1000"}, "google": {"pageSize": "1000"}}.get(dialect, {})
    return WireCall(path=paths[dialect], body={}, query=query)


def models_next(dialect: str, answer: JSON, call: WireCall) -> WireCall | None:
    """The call for the next page of a list; None at its end."""
    if not isinstance(answer, dict):
        return None
    if dialect == "anthropic" and answer.get("has_more") and answer.get("last_id"):
        return WireCall(path=call.path, body={}, query={**call.query, "after_id": str(answer["last_id"])})
    if dialect == "google" and answer.get("nextPageToken"):
        return WireCall(path=call.path, body={}, query={**call.query, "pageToken": str(answer["nextPageToken"])})
    return None


def models_list(dialect: str, answer: JSON) -> list[dict[str, Any]]:
    """The models in a list's answer: what the server says of each, with at least ``id``."""
    rows = answer
    if isinstance(answer, dict):
        rows = next(
            (answer[key] for key in ("data", "models", "publisherModels") if isinstance(answer.get(key), list)), []
        )
    models = []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, str):
            row = {"id": row}
        if not isinstance(row, dict):
            continue
        name = row.get("id") or row.get("name") or row.get("model")
        if isinstance(name, str) and name:
            models.append({**row, "id": name.removeprefix("models/") if dialect == "google" else name})
    return models


def count_call(dialect: str, call: WireCall, target: Target) -> WireCall | None:
    """The call that counts the input tokens of a generation call; None where the dialect has none."""
    if dialect == "anthropic":
        body = {name: value for name, value in call.body.items() if name in _ANTHROPIC_COUNTED}
        return WireCall(path="/v1/messages/count_tokens", body=body, headers=call.headers)
    if dialect == "openai-responses":
        body = {name: value for name, value in call.body.items() if name in _RESPONSES_COUNTED}
        return WireCall(path="/responses/input_tokens", body=body, headers=call.headers)
    if dialect == "google":
        path, _, _ = call.path.rpartition(":")
        model = path.rpartition("/models/")[2] or target.model
        return WireCall(
            path=f"{path}:countTokens",
            body={"generateContentRequest": {"model": f"models/{model}", **call.body}},
            headers=call.headers,
        )
    return None


def counted(answer: JSON) -> int | None:
    """The number of tokens that a counting call's answer states; None when it states none."""
    if not isinstance(answer, dict):
        return None
    for name in ("input_tokens", "totalTokens", "total_tokens"):
        if (tokens := count(answer.get(name))) is not None:
            return tokens
    return None

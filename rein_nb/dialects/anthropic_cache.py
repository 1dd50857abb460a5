"""Anthropic Messages: where cache marks go, and the budget of four.

The API refuses a request with more than four ``cache_control`` marks, counted over tools, system and messages together (C032). Marks
that a caller set by hand win over those that ``cache_control="auto"`` sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MAX_MARKS = 4
_UNMARKABLE = ("thinking", "redacted_thinking")

Block = dict[str, Any]


def mark(body: dict[str, Any]) -> list[Block]:
    """Set automatic marks: on the last tool, the last system block, and the ends of the last two user messages.

    Those are the places where the next request of a conversation shares its prefix with this one. Blocks that carry a mark already are
    left alone. Returns the blocks that were marked, the most expendable first.
    """
    _own_blocks(body)
    users = [turn["content"] for turn in body["messages"] if turn["role"] == "user"]
    system = body.get("system")
    places = [
        users[-2] if len(users) > 1 else None,
        body.get("tools"),
        system if isinstance(system, list) else None,
        users[-1] if users else None,
    ]
    marked: list[Block] = []
    for place in places:
        block = next((item for item in reversed(place or []) if item.get("type") not in _UNMARKABLE), None)
        if block is not None and "cache_control" not in block:
            block["cache_control"] = {"type": "ephemeral"}
            marked.append(block)
    return marked


def enforce(body: dict[str, Any], automatic: list[Block]) -> str | None:
    """Take marks off until four are left: automatic ones first, then those in messages (oldest first), in tools, in system.

    Returns the warning to give, if any mark was taken off.
    """
    marked = [block for block in _blocks(body) if block.get("cache_control") is not None]
    asked = len(marked) + (body.get("cache_control") is not None)
    if asked <= MAX_MARKS:
        return None
    if not automatic:
        _own_blocks(body)
        marked = [block for block in _blocks(body) if block.get("cache_control") is not None]
    own = {id(block) for block in automatic}
    victims = automatic + [block for block in marked if id(block) not in own]
    for block in victims[: asked - MAX_MARKS]:
        del block["cache_control"]
    dropped_by_hand = max(0, asked - MAX_MARKS - len(automatic))
    if not dropped_by_hand:
        return None
    return (
        f"{asked} cache marks were asked for and {MAX_MARKS} are allowed: {dropped_by_hand} of those set by hand were left out, "
        "the oldest in messages first"
    )


def _own_blocks(body: dict[str, Any]) -> None:
    """Give the body blocks of its own in its messages: other requests of the conversation hold the same ones."""
    body["messages"] = [{**turn, "content": [_copy(block) for block in turn["content"]]} for turn in body["messages"]]


def _copy(block: Block) -> Block:
    inner = block.get("content")
    return {**block, "content": [dict(item) for item in inner]} if isinstance(inner, list) else dict(block)


def _blocks(body: dict[str, Any]) -> Iterator[Block]:
    """All blocks that may carry a mark, the most expendable first."""
    for turn in body["messages"]:
        for block in turn["content"]:
            inner = block.get("content") if block.get("type") == "tool_result" else None
            if isinstance(inner, list):
                yield from (item for item in inner if isinstance(item, dict))
            yield block
    yield from body.get("tools") or []
    system = body.get("system")
    if isinstance(system, list):
        yield from system

"""Anthropic Messages.

Sources: https://docs.claude.com/en/api/messages and the guides on tool use, extended thinking, prompt caching and vision; field cases
C024, C026, C028, C032, C036. Two neighbours of one role are joined by Anthropic itself but refused by servers that speak
its dialect, so that they count as a violation here.
"""

from __future__ import annotations

import re
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.testing.violations import Report

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_RESULT_BLOCKS = {"text", "image", "document", "search_result", "tool_reference"}
_USER_BLOCKS = {"text", "image", "document", "search_result", "tool_result", "container_upload"}
_MARKS = 4


def check_anthropic(body: dict[str, Any], target: Target, report: Report) -> None:
    """Note what the Messages API would refuse."""
    messages = report.objects(body.get("messages"), "messages")
    if not messages:
        report.add("no-messages", "messages", "at least one message is needed")
        return
    if not isinstance(body.get("max_tokens"), int) or body["max_tokens"] < 1:
        report.add("bad-option", "max_tokens", "max_tokens is required, and at least 1")
    if messages[0].get("role") != "user":
        report.add("bad-role", "messages[0]", "the first message must be the user's")
    seen: set[str] = set()
    pending: list[str] = []
    before = None
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        role = message.get("role")
        roles = {"user", "assistant"} | ({"system"} if target.quirks.mid_system else set())
        if not report.one_of(role, roles, "bad-role", where):
            continue
        if role == before:
            report.add("alternation", where, f"two {role} messages in a row")
        before = role
        blocks = _blocks(message.get("content"), where, report)
        results = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        if role != "assistant" or pending:
            report.answers(pending, results, where)
            _results_first(blocks, where, report)
        pending = []
        if role == "assistant":
            pending = _assistant(blocks, where, seen, report)
        else:
            _user(blocks, where, report)
    report.answers(pending, [], f"messages[{len(messages) - 1}]")
    _end(messages[-1], report)
    _system(body.get("system"), report)
    _thinking_first(body, report)
    _tools(body, report)
    _cache_marks(body, report)


def _blocks(content: Any, where: str, report: Report) -> list[dict[str, Any]]:
    if isinstance(content, str):
        _text(content, where, report)
        return [{"type": "text", "text": content}] if content.strip() else []
    if not isinstance(content, list) or not content:
        report.add("empty-message", where, "content must be text or a list of blocks, and not empty")
        return []
    return report.objects(content, f"{where}.content")


def _text(text: Any, where: str, report: Report) -> None:
    if not isinstance(text, str) or not text.strip():
        report.add("empty-text", where, "text must hold something besides white space")


def _results_first(blocks: list[dict[str, Any]], where: str, report: Report) -> None:
    kinds = [block.get("type") == "tool_result" for block in blocks]
    if kinds != sorted(kinds, reverse=True):
        report.add("results-first", where, "tool_result blocks must come before all others")


def _assistant(blocks: list[dict[str, Any]], where: str, seen: set[str], report: Report) -> list[str]:
    calls: list[str] = []
    served: list[Any] = []
    for k, block in enumerate(blocks):
        place = f"{where}.content[{k}]"
        kind = str(block.get("type"))
        if kind == "text":
            _text(block.get("text"), place, report)
        elif kind == "thinking":
            if not isinstance(block.get("thinking"), str) or not block.get("signature"):
                report.add("unsigned-thinking", place, "a thinking block needs its text and its signature")
        elif kind == "redacted_thinking":
            if not block.get("data"):
                report.add("unsigned-thinking", place, "a redacted_thinking block needs its data")
        elif kind == "tool_use":
            report.id(block.get("id"), _ID, place, seen)
            report.name(block.get("name"), _NAME, place)
            if not isinstance(block.get("input"), dict):
                report.add("bad-arguments", place, "input must be an object")
            calls.append(str(block.get("id")))
        elif kind in ("server_tool_use", "mcp_tool_use"):
            if not isinstance(block.get("input"), dict):
                report.add("bad-arguments", place, "input must be an object")
            served.append(block.get("id"))
        elif kind.endswith("_tool_result") or kind == "mcp_tool_result":
            if block.get("tool_use_id") not in served:
                report.add("orphan-result", place, f"{kind} answers no server tool use before it")
        elif kind in ("tool_result", "image", "document"):
            report.add("bad-part", place, f"{kind!r} is not accepted from the assistant")
    if blocks and blocks[-1].get("type") in ("thinking", "redacted_thinking"):
        report.add("trailing-thinking", where, "the final block of an assistant message cannot be thinking")
    return calls


def _user(blocks: list[dict[str, Any]], where: str, report: Report) -> None:
    for k, block in enumerate(blocks):
        place = f"{where}.content[{k}]"
        kind = block.get("type")
        if not report.one_of(kind, _USER_BLOCKS, "bad-part", place):
            continue
        if kind == "text":
            _text(block.get("text"), place, report)
        elif kind == "tool_result":
            _result(block, place, report)
        elif kind in ("image", "document"):
            _media(block, place, report)


def _result(block: dict[str, Any], where: str, report: Report) -> None:
    content = block.get("content")
    if not isinstance(block.get("is_error", False), bool):
        report.add("bad-content", where, "is_error must be true or false")
    if content is None or isinstance(content, str):
        return
    for k, part in enumerate(report.objects(content, f"{where}.content")):
        place = f"{where}.content[{k}]"
        if not report.one_of(part.get("type"), _RESULT_BLOCKS, "bad-part", place):
            continue
        if part["type"] == "text":
            _text(part.get("text"), place, report)
        elif part["type"] in ("image", "document"):
            _media(part, place, report)


def _media(block: dict[str, Any], where: str, report: Report) -> None:
    source = block.get("source") or {}
    kind = source.get("type")
    needed = {"base64": "data", "url": "url", "file": "file_id", "text": "data", "content": "content"}
    if kind not in needed or not source.get(needed[kind]):
        report.add("bad-media", where, f"{block['type']} needs a source of a known type with something in it")
    elif kind == "base64":
        allowed = _IMAGES if block["type"] == "image" else ("application/pdf",)
        report.one_of(source.get("media_type"), allowed, "bad-media", where)


def _end(message: dict[str, Any], report: Report) -> None:
    content = message.get("content")
    last = content[-1] if isinstance(content, list) and content else {"type": "text", "text": content}
    if not isinstance(last, dict):
        return
    if (
        message.get("role") == "assistant"
        and last.get("type") == "text"
        and str(last.get("text", "")).rstrip() != last.get("text")
    ):
        report.add("trailing-space", "messages[-1]", "a final assistant message must not end with white space")


def _system(system: Any, report: Report) -> None:
    if isinstance(system, str):
        _text(system, "system", report)
    for k, block in enumerate(report.objects(system, "system") if isinstance(system, list) else ()):
        _text(block.get("text"), f"system[{k}]", report)


def _thinking_first(body: dict[str, Any], report: Report) -> None:
    """With a thinking budget, the calls that wait for results must still have the thinking that led to them."""
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    open_turn = None
    for n, message in enumerate(item for item in body["messages"] if isinstance(item, dict)):
        blocks = message.get("content")
        blocks = [item for item in blocks if isinstance(item, dict)] if isinstance(blocks, list) else []
        kinds = [block.get("type") for block in blocks]
        if message.get("role") == "assistant":
            open_turn = (n, kinds) if "tool_use" in kinds else None
        elif any(kind != "tool_result" for kind in kinds) or not kinds:
            open_turn = None
    if open_turn is not None and open_turn[1][0] not in ("thinking", "redacted_thinking"):
        report.add(
            "missing-thinking",
            f"messages[{open_turn[0]}]",
            "with thinking enabled, a tool turn must begin with thinking",
        )


def _tools(body: dict[str, Any], report: Report) -> None:
    tools = report.objects(body.get("tools") or [], "tools")
    names = [tool.get("name") for tool in tools if tool.get("name") is not None]
    report.tools(names, _NAME, "tools")
    for n, tool in enumerate(tools):
        if tool.get("type", "custom") == "custom" and (tool.get("input_schema") or {}).get("type") != "object":
            report.add("bad-schema", f"tools[{n}]", "input_schema must be an object schema")
    choice = body.get("tool_choice")
    if choice is None:
        return
    if not tools:
        report.add("bad-tool-choice", "tool_choice", "tool_choice is only accepted with tools")
    if report.one_of(choice.get("type"), ("auto", "any", "tool", "none"), "bad-tool-choice", "tool_choice"):
        if choice["type"] == "tool" and choice.get("name") not in names:
            report.add("bad-tool-choice", "tool_choice", f"it names {choice.get('name')!r}, which is not offered")
        thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
        if thinks and choice["type"] in ("any", "tool"):
            report.add("bad-tool-choice", "tool_choice", "no tool can be forced while thinking is on")


def _cache_marks(body: dict[str, Any], report: Report) -> None:
    marks = 0
    waiting: list[Any] = [body.get("system"), body.get("tools"), body.get("messages")]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += item
        elif isinstance(item, dict):
            if "cache_control" in item:
                marks += 1
                if item.get("type") in ("thinking", "redacted_thinking"):
                    report.add("cache-mark", "messages", "a thinking block cannot carry cache_control")
            waiting += [item.get("content"), item.get("source")]
    if marks > _MARKS:
        report.add("cache-mark", "body", f"{marks} cache_control marks; at most {_MARKS} are accepted")

"""OpenAI Chat Completions and DeepSeek's form of it.

Sources: https://platform.openai.com/docs/api-reference/chat/create, https://api-docs.deepseek.com/api/create-chat-completion and
https://api-docs.deepseek.com/guides/thinking_mode, https://docs.mistral.ai/api (nine-character ids); field cases C060, C062.
"""

from __future__ import annotations

import re
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.testing.violations import Report

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IDS = {
    "openai": re.compile(r".{1,40}", re.DOTALL),
    "openai-chat": re.compile(r".{1,40}", re.DOTALL),
    "mistral": re.compile(r"[a-zA-Z0-9]{9}"),
}
_ANY_ID = re.compile(r".+", re.DOTALL)
_OPENAI = ("openai", "openai-chat", "azure")
_ASSISTANT_FIELDS = {"role", "content", "name", "tool_calls", "refusal", "audio", "function_call"}
_USER_PARTS = {"text", "image_url", "input_audio", "file"}


def check_chat(body: dict[str, Any], target: Target, report: Report) -> None:
    """Note what Chat Completions would refuse."""
    messages = report.objects(body.get("messages"), "messages")
    if not messages:
        report.add("no-messages", "messages", "at least one message is needed")
        return
    seen: set[str] = set()
    pending: list[str] | None = None
    answered: list[str] = []
    opened = ""
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        role = message.get("role")
        if role == "tool":
            if pending is None:
                report.add("orphan-result", where, "a tool message must follow an assistant message with tool_calls")
            answered.append(str(message.get("tool_call_id")))
            _tool_content(message.get("content"), where, report)
            continue
        if pending is not None:
            report.answers(pending, answered, opened)
        pending, answered = None, []
        roles = {"system", "user", "assistant"} | ({"developer"} if target.provider != "deepseek" else set())
        if not report.one_of(role, roles, "bad-role", where):
            continue
        if role == "assistant":
            calls = _assistant(message, target, where, seen, report)
            if calls:
                pending, opened = calls, where
        else:
            _content(message.get("content"), str(role), target, where, report)
    if pending is not None:
        report.answers(pending, answered, opened)
    _tools(body, target, report)
    _deepseek_reasoning(body, target, report)


def _assistant(message: dict[str, Any], target: Target, where: str, seen: set[str], report: Report) -> list[str]:
    calls = message.get("tool_calls")
    content = message.get("content")
    if calls is not None and (not isinstance(calls, list) or not calls):
        report.add("empty-calls", where, "tool_calls must be left out or hold at least one call")
        calls = []
    if not (calls or content or message.get("audio") or message.get("refusal")):
        report.add("empty-message", where, "an assistant message needs content or tool_calls")
    if isinstance(content, list):
        for k, part in enumerate(report.objects(content, f"{where}.content")):
            if target.provider in _OPENAI and part.get("type") not in ("text", "refusal"):
                report.add(
                    "bad-part", f"{where}.content[{k}]", f"{part.get('type')!r} is not accepted from the assistant"
                )
            if part.get("type") == "text" and not part.get("text"):
                report.add("empty-text", f"{where}.content[{k}]", "an empty text part")
    if target.provider in _OPENAI and (odd := message.keys() - _ASSISTANT_FIELDS):
        report.add("unknown-field", where, f"OpenAI refuses further fields of a message: {', '.join(sorted(odd))}")
    ids: list[str] = []
    for k, call in enumerate(report.objects(calls or [], f"{where}.tool_calls")):
        place = f"{where}.tool_calls[{k}]"
        report.id(call.get("id"), _IDS.get(target.provider, _ANY_ID), place, seen)
        ids.append(str(call.get("id")))
        if call.get("type") == "custom":
            report.name((call.get("custom") or {}).get("name"), _NAME, place)
            continue
        if call.get("type", "function") != "function":
            report.add("bad-call", place, f"the type {call.get('type')!r} is not 'function' or 'custom'")
        function = call.get("function") or {}
        report.name(function.get("name"), _NAME, place)
        report.arguments(function.get("arguments"), place)
    return ids


def _tool_content(content: Any, where: str, report: Report) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        report.add("bad-content", where, "a tool message needs a string, or a list of text parts")
        return
    for k, part in enumerate(report.objects(content, f"{where}.content")):
        if part.get("type") != "text":
            report.add(
                "bad-media", f"{where}.content[{k}]", f"a tool message holds text only, not {part.get('type')!r}"
            )


def _content(content: Any, role: str, target: Target, where: str, report: Report) -> None:
    if isinstance(content, str):
        if not content:
            report.add("empty-text", where, "empty content")
        return
    if not isinstance(content, list) or not content:
        report.add("bad-content", where, "content must be a string or a list of parts with something in it")
        return
    for k, part in enumerate(report.objects(content, f"{where}.content")):
        place = f"{where}.content[{k}]"
        kind = part.get("type")
        if kind == "text":
            if not part.get("text"):
                report.add("empty-text", place, "an empty text part")
        elif role != "user" or target.provider == "deepseek":
            report.add("bad-media", place, f"{kind!r} is not accepted in a {role} message")
        elif target.provider in _OPENAI and report.one_of(kind, _USER_PARTS, "bad-part", place):
            _media(part, place, report)


def _media(part: dict[str, Any], where: str, report: Report) -> None:
    inner = part.get(part["type"])
    if not isinstance(inner, dict):
        report.add("bad-media", where, f"{part['type']} needs an object of that name")
    elif part["type"] == "image_url" and not str(inner.get("url", "")).startswith(
        ("http://", "https://", "data:image/")
    ):
        report.add("bad-media", where, "an image needs an http(s) address or a data URL of an image")
    elif part["type"] == "input_audio" and (inner.get("format") not in ("wav", "mp3") or not inner.get("data")):
        report.add("bad-media", where, "input_audio needs data, as wav or mp3")
    elif part["type"] == "file" and not (inner.get("file_id") or inner.get("file_data")):
        report.add("bad-media", where, "a file needs file_id or file_data")


def _tools(body: dict[str, Any], target: Target, report: Report) -> None:
    tools = None if body.get("tools") is None else report.objects(body["tools"], "tools")
    if tools is not None and not tools:
        report.add("empty-tools", "tools", "tools must be left out or hold at least one")
    names = [tool["function"].get("name") for tool in tools or () if isinstance(tool.get("function"), dict)]
    report.tools(names, _NAME, "tools")
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        report.add("bad-tool-choice", "tool_choice", "tool_choice is only accepted with tools")
    if (
        isinstance(choice, dict)
        and isinstance(choice.get("function"), dict)
        and choice["function"].get("name") not in names
    ):
        report.add(
            "bad-tool-choice", "tool_choice", f"it names {choice['function'].get('name')!r}, which is not offered"
        )
    if "parallel_tool_calls" in body and not tools:
        report.add("bad-tool-choice", "parallel_tool_calls", "it is only accepted with tools")


def _deepseek_reasoning(body: dict[str, Any], target: Target, report: Report) -> None:
    """In thinking mode every message with calls needs the field, also one that another provider made (C062)."""
    if target.provider != "deepseek":
        return
    thinking = (body.get("thinking") or {}).get("type")
    if thinking == "disabled" or (thinking != "enabled" and "reasoner" not in target.model):
        return
    for n, message in enumerate(item for item in body["messages"] if isinstance(item, dict)):
        called = message.get("role") == "assistant" and message.get("tool_calls")
        if called and not isinstance(message.get("reasoning_content"), str):
            report.add("missing-reasoning", f"messages[{n}]", "thinking mode needs reasoning_content beside tool_calls")

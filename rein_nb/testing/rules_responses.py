"""OpenAI Responses.

Sources: https://platform.openai.com/docs/api-reference/responses/create and the guide on reasoning (items that must travel together);
field cases C040, C041.
"""

from __future__ import annotations

import re
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.testing.violations import Report

_CALL_ID = re.compile(r".{1,64}", re.DOTALL)
_ITEM_ID = re.compile(r"[A-Za-z0-9_-]{1,}")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_HEADS = {"function_call": "fc", "reasoning": "rs", "message": "msg"}
_CLIENT_CALLS = {"function_call", "custom_tool_call", "computer_call", "apply_patch_call"}
_USER_PARTS = {"input_text", "input_image", "input_file", "input_audio"}
_ASSISTANT_PARTS = {"output_text", "refusal"}
_OUTPUT_PARTS = {"input_text", "input_image", "input_file"}


def check_responses(body: dict[str, Any], target: Target, report: Report) -> None:
    """Note what the Responses API would refuse."""
    items = body.get("input")
    if isinstance(items, str):
        if not items:
            report.add("empty-text", "input", "input is empty")
        items = []
    items = report.objects(items, "input")
    if not items and not isinstance(body.get("input"), str) and not body.get("previous_response_id"):
        report.add("no-messages", "input", "input must be text or at least one item")
        return
    calls: dict[str, str] = {}
    answered: dict[str, int] = {}
    seen_calls: set[str] = set()
    seen_items: set[str] = set()
    for n, item in enumerate(items):
        where = f"input[{n}]"
        kind = str(item.get("type") or "message")
        if item.get("id") is not None and kind != "item_reference":
            report.id(item["id"], _ITEM_ID, where, seen_items)
            if kind in _HEADS and not str(item["id"]).startswith(_HEADS[kind]):
                report.add("bad-id", where, f"the id of a {kind} must begin with {_HEADS[kind]!r}, not {item['id']!r}")
        if kind == "message":
            _message(item, where, report)
        elif kind == "reasoning":
            _reasoning(items, n, body, report)
        elif kind.endswith("_call_output"):
            id = str(item.get("call_id"))
            answered[id] = answered.get(id, 0) + 1
            known = id in calls or kind.removesuffix("_output") not in _CLIENT_CALLS
            if not known and not body.get("previous_response_id"):
                report.add("orphan-result", where, f"the output for {id!r} answers no call before it")
            if answered[id] > 1:
                report.add("repeated-result", where, f"the call {id!r} has {answered[id]} outputs, and needs one")
            _output(item, where, report)
        elif kind in _CLIENT_CALLS:
            report.id(item.get("call_id"), _CALL_ID, where, seen_calls)
            calls[str(item.get("call_id"))] = where
            if kind == "function_call":
                report.arguments(item.get("arguments"), where)
            if kind in ("function_call", "custom_tool_call"):
                report.name(item.get("name"), _NAME, where)
    for id, where in calls.items():
        if id not in answered:
            report.add("unanswered-call", where, f"the call {id!r} has no output")
    order = [id for id in calls if id in answered]
    if order != [id for id in answered if id in calls]:
        report.add("result-order", "input", f"outputs come as {list(answered)}, and their calls as {order}")
    _tools(body, report)


def _message(item: dict[str, Any], where: str, report: Report) -> None:
    role = item.get("role")
    if not report.one_of(role, ("user", "assistant", "system", "developer"), "bad-role", where):
        return
    content = item.get("content")
    if isinstance(content, str):
        if not content:
            report.add("empty-text", where, "empty content")
        return
    if not isinstance(content, list) or not content:
        report.add("empty-message", where, "content must be text or a list of parts, and not empty")
        return
    for k, part in enumerate(report.objects(content, f"{where}.content")):
        place = f"{where}.content[{k}]"
        allowed = _ASSISTANT_PARTS if role == "assistant" else _USER_PARTS
        if not report.one_of(part.get("type"), allowed, "bad-part", place):
            continue
        _part(part, place, report)


def _part(part: dict[str, Any], where: str, report: Report) -> None:
    kind = part["type"]
    if kind in ("input_text", "output_text") and not part.get("text"):
        report.add("empty-text", where, "an empty text part")
    elif kind == "input_image" and not (part.get("image_url") or part.get("file_id")):
        report.add("bad-media", where, "an image needs image_url or file_id")
    elif kind == "input_file" and not (part.get("file_id") or part.get("file_data") or part.get("file_url")):
        report.add("bad-media", where, "a file needs file_id, file_data or file_url")


def _reasoning(items: list[dict[str, Any]], n: int, body: dict[str, Any], report: Report) -> None:
    """A reasoning item needs content that the server can read, and the item that it led to (C040, C041)."""
    where = f"input[{n}]"
    item = items[n]
    if not isinstance(item.get("summary"), list):
        report.add("bad-content", where, "a reasoning item needs its summary, as a list")
    if body.get("store") is False and not (item.get("encrypted_content") or item.get("content")):
        report.add("lost-reasoning", where, "nothing is stored, so that reasoning needs its encrypted_content")
    following = items[n + 1] if n + 1 < len(items) else {}
    kind = str(following.get("type") or "message")
    led = (kind == "message" and following.get("role") == "assistant") or kind == "reasoning" or kind.endswith("_call")
    if not following or not (led or kind in ("mcp_list_tools", "mcp_approval_request", "compaction")):
        report.add("stray-reasoning", where, "a reasoning item must be followed by the item that it led to")


def _output(item: dict[str, Any], where: str, report: Report) -> None:
    output = item.get("output")
    if item["type"] != "function_call_output" or isinstance(output, str):
        return
    if not isinstance(output, list) or not output:
        report.add("bad-content", where, "an output must be text or a list of parts")
        return
    for k, part in enumerate(report.objects(output, f"{where}.output")):
        place = f"{where}.output[{k}]"
        if report.one_of(part.get("type"), _OUTPUT_PARTS, "bad-part", place):
            _part(part, place, report)


def _tools(body: dict[str, Any], report: Report) -> None:
    tools = report.objects(body.get("tools") or [], "tools")
    names = [tool.get("name") for tool in tools if tool.get("type") == "function"]
    report.tools(names, _NAME, "tools")
    choice = body.get("tool_choice")
    if choice is not None and choice not in ("auto", "none") and not tools:
        report.add("bad-tool-choice", "tool_choice", "tool_choice is only accepted with tools")
    if isinstance(choice, dict) and choice.get("type") == "function" and choice.get("name") not in names:
        report.add("bad-tool-choice", "tool_choice", f"it names {choice.get('name')!r}, which is not offered")

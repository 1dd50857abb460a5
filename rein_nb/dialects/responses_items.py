"""OpenAI Responses: what an output item is made of, read alike from a stream and from a whole answer.

What a part keeps in ``extra["openai"]``, so that its item can be put together again:

- ``item``: the item's fields beside those that the part itself holds (``id``, ``status``, ``phase``, ``summary``...);
- ``part``: the same for the content part of a message;
- ``after_reasoning``: that a reasoning item came before it in its response (C040);
- ``arguments``: a call's argument text, where writing the parsed arguments again would give another text.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from rein_nb.ir import Citation, MediaPart
from rein_nb.ir.base import JSON, loads

NAMESPACE = "openai"
"""Where this dialect's data lies in `extra`."""

_ITEM_FIELDS: dict[str, frozenset[str]] = {
    "message": frozenset({"type", "role", "content"}),
    "reasoning": frozenset({"type", "encrypted_content"}),
    "function_call": frozenset({"type", "call_id", "name", "arguments"}),
    "custom_tool_call": frozenset({"call_id", "name", "input"}),
}
_PART_FIELDS = frozenset({"type", "text", "refusal", "annotations"})

_INPUT_FIELDS = ("action", "operation", "queries", "arguments", "input")
_OUTPUT_FIELDS = ("outputs", "output", "results", "result", "tools", "error")
_CODE_FIELDS = ("code", "container_id")


def item_extra(item: dict[str, Any]) -> dict[str, Any]:
    """The item's fields that its part does not hold otherwise."""
    read = _ITEM_FIELDS[item["type"]]
    return {name: value for name, value in item.items() if name not in read and value is not None}


def part_extra(part: dict[str, Any]) -> dict[str, Any]:
    """A content part's fields that the IR part does not hold otherwise."""
    return {name: value for name, value in part.items() if name not in _PART_FIELDS and value not in (None, [])}


def dump_arguments(arguments: dict[str, Any]) -> str:
    """Arguments as the compact JSON text that the wire carries."""
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def odd_arguments(text: str) -> bool:
    """Whether argument text is an object that `dump_arguments` would write differently."""
    try:
        value = loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and dump_arguments(value) != text


def thinking_text(item: dict[str, Any]) -> str:
    """The visible reasoning of an item: its summary, else its content; parts are set apart by a blank line."""
    for name in ("summary", "content"):
        parts = item.get(name)
        texts = [part["text"] for part in parts if _has_text(part)] if isinstance(parts, list) else []
        if texts:
            return "\n\n".join(texts)
    return ""


def _has_text(part: JSON) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str) and part["text"] != ""


def citation(raw: dict[str, Any]) -> Citation:
    """An annotation in any of the wire's forms (url, file, container file, file path, and what is new)."""
    start, end = raw.get("start_index"), raw.get("end_index")
    source = next((raw[name] for name in ("url", "file_id") if isinstance(raw.get(name), str)), "")
    title = next((raw[name] for name in ("title", "filename") if isinstance(raw.get(name), str)), None)
    return Citation(
        source=source,
        title=title,
        start=start if type(start) is int else None,
        end=end if type(end) is int else None,
        extra={NAMESPACE: raw},
    )


# -- tools that the server runs, and items that nothing is known of -------------------------------------


def tool_name(item: dict[str, Any]) -> str:
    """``web_search`` for a ``web_search_call``; an MCP call goes by its tool's name."""
    name = item.get("name")
    if isinstance(name, str) and name:
        return name
    return str(item.get("type") or "").removesuffix("_call")


def tool_id(item: dict[str, Any]) -> str | None:
    """The id that a call and its result share, where there is one, else the item's."""
    return next((item[name] for name in ("call_id", "id") if isinstance(item.get(name), str)), None)


def tool_input(item: dict[str, Any]) -> JSON:
    """What the tool was given, as far as the item shows it."""
    if isinstance(item.get("code"), str):
        return {name: item[name] for name in _CODE_FIELDS if item.get(name) is not None}
    if isinstance(item.get("revised_prompt"), str):
        return {"prompt": item["revised_prompt"]}
    value = next((item[name] for name in _INPUT_FIELDS if item.get(name) is not None), None)
    if not isinstance(value, str):
        return value
    try:
        return loads(value)
    except (ValueError, RecursionError):
        return value


def tool_output(item: dict[str, Any]) -> JSON:
    """What the tool returned, as far as the item shows it."""
    if item.get("type") == "image_generation_call":
        return None
    return next((item[name] for name in _OUTPUT_FIELDS if item.get(name) is not None), None)


def generated_image(item: dict[str, Any]) -> MediaPart | None:
    """The image of an ``image_generation_call``, if it can be read and written again without a difference.

    The image is a part of its own, where everybody looks for one, and is taken out of the item's payload, where it would lie a
    second time. An image whose base64 is damaged stays in the payload only.
    """
    result, id = item.get("result"), item.get("id")
    if (
        item.get("type") != "image_generation_call"
        or not isinstance(result, str)
        or not result
        or not isinstance(id, str)
    ):
        return None
    try:
        data = base64.b64decode(result, validate=True)
    except (binascii.Error, ValueError):
        return None
    if base64.b64encode(data).decode("ascii") != result:
        return None
    form = item.get("output_format")
    return MediaPart(
        kind="image",
        mime_type=f"image/{form if isinstance(form, str) and form else 'png'}",
        data=data,
        extra={NAMESPACE: {"result_of": id}},
    )

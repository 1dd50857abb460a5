"""What a recorded Chat exchange says, read straight from its raw JSON, for tests that compare a codec with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rein_nb.ir.base import clean_text

REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
# Constants of the protocol, random padding, and what is checked by its own comparison.
_SKIPPED = frozenset({"object", "role", "obfuscation", "p", "padding", "arguments", "index", "data", "content"})


def chunks(body: str) -> tuple[list[dict[str, Any]], bool]:
    """The JSON objects of a body, by a reader of its own (no framing code of ours), and whether ``[DONE]`` was among them."""
    found: list[dict[str, Any]] = []
    done = False
    for line in body.replace("\r\n", "\n").split("\n"):
        if not line.startswith("data:"):
            continue
        text = line[5:].strip()
        if text == "[DONE]":
            done = True
            continue
        try:
            found.append(json.loads(text))
        except ValueError:
            continue  # cut off
    return found, done


def pieces(chunk: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """(choice index, its message or delta, the choice) for each choice of a chunk."""
    for choice in chunk.get("choices") or []:
        body = choice.get("delta") or choice.get("message") or {}
        yield choice.get("index", 0), body, choice


def text_of(body: dict[str, Any]) -> str:
    content = body.get("content")
    if isinstance(content, list):
        return "".join(p.get("text", "") for p in content if p.get("type") == "text")
    return (content or "") + ((body.get("audio") or {}).get("transcript") or "")


def thinking_of(body: dict[str, Any]) -> str:
    given = list(dict.fromkeys(body[name] for name in REASONING if body.get(name)))
    if given:
        return "".join(given)
    content = body.get("content")
    if isinstance(content, list):
        return "".join(
            piece.get("text", "") for p in content if p.get("type") == "thinking" for piece in p.get("thinking", [])
        )
    return "".join(d.get("text") or d.get("summary") or "" for d in body.get("reasoning_details") or [])


class Facts:
    """What all chunks together say about the first choice and the response."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        texts: list[str] = []
        thoughts: list[str] = []
        refusals: list[str] = []
        calls: dict[Any, dict[str, str]] = {}
        self.sources: list[str] = []
        self.usage: dict[str, Any] | None = None
        self.finish: str | None = None
        self.logprobs = 0
        self.executed: set[str] = set()
        for chunk in objects:
            self.usage = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage") or self.usage
            for n, body, choice in pieces(chunk):
                if n != 0:
                    continue
                texts.append(text_of(body))
                thoughts.append(thinking_of(body))
                refusals.append(body.get("refusal") or "")
                self.finish = choice.get("finish_reason") or self.finish
                self.logprobs += len((choice.get("logprobs") or {}).get("content") or [])
                self.logprobs += len((choice.get("logprobs") or {}).get("refusal") or [])
                self.sources += [a["url_citation"]["url"] for a in body.get("annotations") or [] if "url_citation" in a]
                self.executed |= {tool["type"] for tool in body.get("executed_tools") or []}
                for position, call in enumerate(body.get("tool_calls") or []):
                    self._call(calls, call, call.get("index", position))
                legacy = body.get("function_call") or {}
                if legacy.get("name") or legacy.get("arguments"):
                    self._call(calls, {"function": legacy}, "legacy")
        for source in (objects[-1].get("citations") or []) if objects else []:
            self.sources.append(source)
        self.text = clean_text("".join(texts))
        self.thinking = "".join(thoughts)
        self.refusal = "".join(refusals)
        self.calls = [
            (call["id"], call["name"], json.loads(call["arguments"] or "{}") if _complete(call["arguments"]) else None)
            for call in calls.values()
        ]

    @staticmethod
    def _call(calls: dict[Any, dict[str, str]], call: dict[str, Any], key: Any) -> None:
        known = calls.setdefault(key, {"id": "", "name": "", "arguments": ""})
        function = call.get("function") or {}
        custom = call.get("custom") or {}
        known["id"] = known["id"] or call.get("id") or ""
        known["name"] = known["name"] or function.get("name") or custom.get("name") or ""
        if call.get("type") == "custom":
            known["arguments"] += json.dumps({"input": custom["input"]})
        else:
            known["arguments"] += function.get("arguments") or ""


def _complete(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except ValueError:
        return False
    return True


def leaves(value: Any, name: str = "") -> Iterator[str]:
    """All strings of a JSON value that must survive in a completion somewhere."""
    if isinstance(value, str):
        if value and name not in _SKIPPED:
            yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, name)

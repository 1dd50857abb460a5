"""A history as the ``messages`` of a Chat request."""

from __future__ import annotations

import json
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.dialects.chat_media import audio_format, data_url
from rein_nb.dialects.handoff import Handoff
from rein_nb.ir import (
    InvalidRequest,
    MediaPart,
    Message,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from rein_nb.ir.base import JSON, Extra

REPLAYED_FIELDS = ("extra_content", "thought_signature", "reasoning_opaque")
"""Fields of an assistant message that its origin wants back as they were: thought signatures of Gemini, opaque reasoning of Copilot."""

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode

_SAID = frozenset({"tool_calls", "audio", "images"})
"""What makes a message of the assistant's one that may have no content."""

_CALL_MARKS = frozenset({"type", "legacy", "function"})


def own_extra(extra: Extra, target: Target) -> dict[str, Any]:
    """The wire fields that were set for exactly this dialect or provider."""
    if not extra:
        return {}
    return {**extra.get(target.dialect, {}), **extra.get(target.provider, {})}


class ChatMessages:
    """One encoding of one history, which has been through the hand-off.

    Parameters
    ----------
    handed, target
        What to encode, and for whom.

    Attributes
    ----------
    warnings
        What had to be left out, in words.
    """

    def __init__(self, handed: Handoff, target: Target) -> None:
        self.handed = handed
        self.messages = handed.messages
        self.target = target
        self.warnings: dict[str, None] = {}
        self.out: list[dict[str, Any]] = []
        self.waiting: list[dict[str, Any]] = []
        self.replay = self._replay_from()

    def encode(self) -> list[dict[str, Any]]:
        """The wire messages, in order."""
        start, settled = self._known(), self.handed.settled
        for at in range(start, len(self.messages)):
            if at == settled:
                self._release()
                self._keep(at, start)
            message = self.messages[at]
            if message.role == "assistant":
                self._release()
                self._assistant(message, at)
                continue
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            for result in results:
                self._result(result)
            if len(results) == len(message.parts) and results:
                continue
            self._release()
            if message.role in ("system", "developer"):
                self._system(message)
            else:
                self._user(message)
        self._release()
        if settled == len(self.messages):
            self._keep(settled, start)
        return self.out

    def _known(self) -> int:
        """Take over what was made of the settled part before; how many messages that was."""
        # With "tool_turns", what comes later in a turn decides about the reasoning before it.
        wire = self.handed.wire
        if wire is None or self.target.quirks.reasoning_replay == "tool_turns":
            return 0
        at, out, warnings = wire.get("chat", (0, (), ()))
        self.out = [dict(item) for item in out]
        self.warnings = dict.fromkeys(warnings)
        return int(at)

    def _keep(self, at: int, start: int) -> None:
        if at > start and self.handed.wire is not None and self.target.quirks.reasoning_replay != "tool_turns":
            self.handed.wire["chat"] = (at, [dict(item) for item in self.out], tuple(self.warnings))

    def _release(self) -> None:
        """Put out the media of the tool results before; they must follow the last result of their group."""
        if self.waiting:
            self.out.append({"role": "user", "content": self.waiting})
            self.waiting = []

    def _replay_from(self) -> frozenset[int]:
        """Indices of the assistant messages whose reasoning goes back."""
        replay = self.target.quirks.reasoning_replay
        if replay == "never":
            return frozenset()
        at = [n for n, message in enumerate(self.messages) if message.role == "assistant"]
        if replay == "always":
            return frozenset(at)
        # "tool_turns": all answers between two user messages, if one of them called a tool. DeepSeek refuses a request that lacks them.
        chosen: set[int] = set()
        turn: list[int] = []
        for n, message in enumerate(self.messages):
            if message.role == "assistant":
                turn.append(n)
            elif message.role == "user" and not message.tool_results:
                chosen.update(self._called(turn))
                turn = []
        chosen.update(self._called(turn))
        return frozenset(chosen)

    def _called(self, turn: list[int]) -> list[int]:
        return turn if any(self.messages[n].tool_calls for n in turn) else []

    def _system(self, message: Message) -> None:
        texts = [part for part in message.parts if isinstance(part, TextPart) and part.text]
        role = "developer" if message.role == "developer" and self.target.quirks.developer_role else "system"
        own = [own_extra(part.extra, self.target) for part in texts]
        if any(own):
            blocks = [{"type": "text", "text": part.text, **extra} for part, extra in zip(texts, own, strict=True)]
            self._put(role, blocks, message)
        elif texts:
            self._put(role, "\n\n".join(part.text for part in texts), message)

    def _put(self, role: str, content: JSON, message: Message) -> None:
        own = own_extra(message.extra, self.target)
        self.out.append({"role": role, "content": content, **own})

    def _user(self, message: Message) -> None:
        blocks: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, TextPart | RefusalPart | ThinkingPart):
                if part.text:
                    blocks.append({"type": "text", "text": part.text, **own_extra(part.extra, self.target)})
            elif isinstance(part, MediaPart):
                blocks.append({**self._media(part), **own_extra(part.extra, self.target)})
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            self._put("user", blocks[0]["text"], message)
        elif blocks:
            self._put("user", blocks, message)

    def _result(self, result: ToolResult) -> None:
        texts = [part.text for part in result.content if isinstance(part, TextPart) and part.text]
        media = [part for part in result.content if isinstance(part, MediaPart)]
        text = "\n".join(texts)
        if media:
            what = ", ".join(dict.fromkeys(part.kind for part in media))
            text = text or f"({what} in the next user message)"
            self.waiting.append({"type": "text", "text": f"{what} from the tool result {result.tool_call_id}:"})
            self.waiting.extend(self._media(part) for part in media)
        if not text:
            text = f"({result.status})" if result.is_error else "(no output)"
        self.out.append(
            {
                "role": "tool",
                "tool_call_id": result.tool_call_id,
                "content": text,
                **own_extra(result.extra, self.target),
            }
        )

    # -- media --------------------------------------------------------------------------------------

    def _media(self, part: MediaPart) -> dict[str, Any]:
        if part.file_id is not None:
            return {"type": "file", "file": {"file_id": part.file_id}}
        if part.kind == "image":
            return {"type": "image_url", "image_url": {"url": part.url or data_url(part, "image/png")}}
        if part.kind == "video":
            return {"type": "video_url", "video_url": {"url": part.url or data_url(part, "video/mp4")}}
        if part.kind == "audio":
            if part.data is None:
                return self._placeholder(part)
            return {"type": "input_audio", "input_audio": {"data": part.base64, "format": audio_format(part.mime_type)}}
        name = part.name or "document.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": part.url or data_url(part, "application/pdf")}}

    def _placeholder(self, part: MediaPart) -> dict[str, Any]:
        self.warnings[f"{self.target.dialect} takes {part.kind} only inline: replaced by a placeholder"] = None
        return {"type": "text", "text": f"[{part.kind} left out: {part.name or part.url}]"}

    # -- what the model said ----------------------------------------------------------------------------

    def _assistant(self, message: Message, at: int) -> None:
        own = self._is_own(message)
        namespace = self.target.provider
        wire: dict[str, Any] = {"role": "assistant", "content": None}
        texts: list[str] = []
        thoughts: list[ThinkingPart] = []
        calls: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                calls.append(self._call(part, own))
            elif isinstance(part, TextPart):
                if not (own and part.extra and part.extra.get(namespace, {}).get("audio") == "transcript"):
                    texts.append(part.text)
            elif isinstance(part, ThinkingPart):
                thoughts.append(part)
            elif isinstance(part, RefusalPart):
                texts.append(part.text)
            elif isinstance(part, MediaPart):
                self._said_media(part, own, wire, texts)
            elif isinstance(part, ServerToolPart):
                self.warnings[
                    f"a {part.name or 'server tool'!r} block was left out: {self.target.dialect} has no place for it"
                ] = None
        text = "".join(texts)
        if text:
            wire["content"] = text
        if thoughts and at in self.replay:
            self._thoughts(message, thoughts, wire)
        if calls:
            wire["tool_calls"] = calls
            quirks = self.target.quirks
            if at in self.replay and quirks.reasoning_replay == "tool_turns" and quirks.reasoning_field:
                # DeepSeek wants the field in every turn that called tools, also in one that another provider made (C062).
                wire.setdefault(quirks.reasoning_field, "")
        if own and message.extra:
            kept = message.extra.get(namespace, {})
            wire.update({name: kept[name] for name in REPLAYED_FIELDS if name in kept})
        if wire["content"] is None and not wire.keys() & _SAID:
            # Reasoning alone is no message: what it led to was left out above.
            self.warnings["an empty assistant message was left out"] = None
            return
        self.out.append(wire)

    def _is_own(self, message: Message) -> bool:
        origin = message.origin
        return origin is not None and origin.provider == self.target.provider and origin.dialect == self.target.dialect

    def _said_media(self, part: MediaPart, own: bool, wire: dict[str, Any], texts: list[str]) -> None:
        facts = part.extra.get(self.target.provider, {})
        if own and part.kind == "audio" and facts.get("id"):
            wire["audio"] = {"id": facts["id"]}  # OpenAI: earlier sound is referred to by its id
        elif own and part.kind == "image":
            url = part.url or data_url(part, "image/png")
            wire.setdefault("images", []).append({"type": "image_url", "image_url": {"url": url}})  # OpenRouter
        else:
            self.warnings[f"{part.kind} in an assistant message was replaced by a placeholder"] = None
            texts.append(f"[{part.kind} left out]")

    def _thoughts(self, message: Message, thoughts: list[ThinkingPart], wire: dict[str, Any]) -> None:
        """Reasoning back to where it came from, in the field it came in. Others' reasoning was left out by the hand-off."""
        namespace = self.target.provider
        for part in thoughts:
            details = part.extra.get(namespace, {}).get("reasoning_details")
            if isinstance(details, list) and details:
                wire.setdefault("reasoning_details", []).extend(details)
        if "reasoning_details" in wire:
            return
        text = "".join(part.text for part in thoughts)
        field = self.target.quirks.reasoning_field or message.extra.get(namespace, {}).get("reasoning_field")
        if not text or field in (None, "think_tags"):
            return
        if field == "content":
            chunk = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
            said = wire["content"]
            wire["content"] = [chunk, {"type": "text", "text": said}] if said else [chunk]
        else:
            wire["reasoning" if field == "reasoning_details" else field] = text

    def _call(self, call: ToolCall, own: bool) -> dict[str, Any]:
        facts = call.extra.get(self.target.provider, {}) if own and call.extra else {}
        if facts.get("type") == "custom":
            return {
                "id": call.id,
                "type": "custom",
                "custom": {"name": call.name, "input": str(call.arguments.get("input", ""))},
            }
        function: dict[str, Any] = {
            "name": call.name,
            "arguments": self._arguments(call),
            **(facts.get("function") or {}),
        }
        wire = {"id": call.id, "type": "function", "function": function}
        if not facts:
            return wire
        wire.update({name: value for name, value in facts.items() if name not in _CALL_MARKS})
        return wire

    def _arguments(self, call: ToolCall) -> str:
        """The arguments as JSON text. Malformed ones go out as ``{}``, which every server parses; the record keeps the raw text (C078)."""
        if call.error is not None or call.raw_arguments is not None:
            self.warnings[f"the malformed arguments of a call of {call.name!r} went out as an empty object"] = None
            return "{}"
        try:
            return _JSON(call.arguments)
        except (TypeError, ValueError) as exc:
            raise InvalidRequest(f"the arguments of the call {call.id!r} of {call.name!r} are not JSON: {exc}") from exc

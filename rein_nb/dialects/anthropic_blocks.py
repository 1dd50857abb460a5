"""Anthropic Messages: a history as the wire's ``system`` and ``messages``.

The history comes from the hand-off, so calls have results, ids fit, and opaque state is only there where it may go back. What is left to do is
the wire's own order: roles alternate, a user message starts with the results of the calls before it (C028), no text block is
blank (C026), and a system message that comes late stays at its place (C030).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rein_nb.dialects.anthropic_decode import NAMESPACE
from rein_nb.dialects.base import Target
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

Block = dict[str, Any]
Turn = dict[str, Any]


def system_blocks(messages: Sequence[Message]) -> tuple[list[Block], Sequence[Message]]:
    """The text blocks of the leading system messages, and the messages after them."""
    n = 0
    blocks: list[Block] = []
    while n < len(messages) and messages[n].role in ("system", "developer"):
        blocks += _system_text(messages[n])
        n += 1
    return blocks, messages[n:]


def turns(
    messages: Sequence[Message], target: Target, settled: int = 0, wire: dict[Any, Any] | None = None
) -> list[Turn]:
    """The wire messages. Their ``content`` is always a list of blocks.

    Parameters
    ----------
    settled, wire
        How many messages go out alike next time, and where what was made of them is kept; see `rein_nb.dialects.handoff.Handoff`.
    """
    start, known = (wire or {}).get(NAMESPACE, (0, ()))
    out = _copies(known)

    def keep(at: int) -> None:
        if at == settled and at > start and wire is not None:
            wire[NAMESPACE] = (at, _copies(out))

    for at in range(start, len(messages)):
        keep(at)
        message = messages[at]
        if message.role == "assistant":
            _append(out, "assistant", [block for part in message.parts for block in _assistant_block(part)])
        elif message.role in ("system", "developer"):
            _append_system(out, message, target)
        else:
            blocks = [block for part in message.parts for block in _user_block(part)]
            _append(
                out,
                "user",
                [
                    _with_extra(block, message.extra) if n == len(blocks) - 1 else block
                    for n, block in enumerate(blocks)
                ],
            )
    keep(len(messages))
    return out


def _copies(turns: Sequence[Turn]) -> list[Turn]:
    """Turns to which blocks can be added. Their blocks are shared with other requests."""
    return [{"role": turn["role"], "content": list(turn["content"])} for turn in turns]


def _append(out: list[Turn], role: str, blocks: list[Block]) -> None:
    if not blocks:
        return
    if out and out[-1]["role"] == role:
        out[-1]["content"] += blocks
    else:
        out.append({"role": role, "content": blocks})


def _append_system(out: list[Turn], message: Message, target: Target) -> None:
    blocks = _system_text(message)
    if target.quirks.mid_system:
        _append(out, "system", blocks)
    else:
        _append(out, "user", [{**block, "text": f"<system>\n{block['text']}\n</system>"} for block in blocks])


def _system_text(message: Message) -> list[Block]:
    return [block for part in message.parts if isinstance(part, TextPart) for block in _text(part)]


def _text(part: TextPart) -> list[Block]:
    if not part.text.strip():
        return []
    block: Block = {"type": "text", "text": part.text}
    citations = [item.extra[NAMESPACE] for item in part.citations if NAMESPACE in item.extra]
    if citations:
        block["citations"] = citations
    return [_with_extra(block, part.extra)]


def _with_extra(block: Block, extra: dict[str, dict[str, Any]]) -> Block:
    own = extra.get(NAMESPACE)
    return {**block, **own} if own else block


# -- assistant ----------------------------------------------------------------------------------------


def _assistant_block(part: Any) -> list[Block]:
    kind = type(part)
    if kind is TextPart:
        return _text(part)
    if kind is ThinkingPart:
        return _thinking(part)
    if kind is ToolCall:
        # Arguments that were not an object are {} here: the wire takes nothing else.
        block = {"type": "tool_use", "id": part.id, "name": part.name, "input": part.arguments}
        return [_with_extra(block, part.extra)]
    if kind is ServerToolPart:
        return [_with_extra(dict(part.payload), part.extra)] if part.payload else []
    if kind is RefusalPart:
        return [{"type": "text", "text": part.text}] if part.text.strip() else []
    raise InvalidRequest(f"anthropic cannot express a {part.type!r} part in an assistant message")


def _thinking(part: ThinkingPart) -> list[Block]:
    if part.redacted or (part.opaque is not None and part.signature is None):
        block: Block = {"type": "redacted_thinking", "data": part.opaque or ""}
    elif part.signature is not None:
        block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
    else:
        return []
    return [_with_extra(block, part.extra)]


# -- user ---------------------------------------------------------------------------------------------


def _user_block(part: Any) -> list[Block]:
    kind = type(part)
    if kind is TextPart:
        return _text(part)
    if kind is ToolResult:
        return [_result(part)]
    if kind is MediaPart:
        return [media_block(part)]
    if kind is ServerToolPart:
        return [dict(part.payload)] if part.payload else []
    raise InvalidRequest(f"anthropic cannot express a {part.type!r} part in a user message")


def _result(part: ToolResult) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": part.tool_call_id}
    content: list[Block] = []
    for item in part.content:
        content += [media_block(item)] if isinstance(item, MediaPart) else _text(item)
    if len(content) == 1 and content[0].keys() == {"type", "text"}:
        block["content"] = content[0]["text"]
    elif content:
        block["content"] = content
    if part.is_error:
        block["is_error"] = True
    return _with_extra(block, part.extra)


_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def mime_of(part: MediaPart) -> str | None:
    """The part's mime type: as given, else as its first bytes tell."""
    if part.mime_type or part.data is None:
        return part.mime_type
    if part.data[:4] == b"RIFF" and part.data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for head, mime in _MAGIC if part.data.startswith(head)), None)


def media_block(part: MediaPart) -> Block:
    """An image or document block.

    Raises
    ------
    InvalidRequest
        For a kind that the wire does not have, and for bytes of an unknown mime type.
    """
    if part.kind not in ("image", "document"):
        raise InvalidRequest(f"anthropic takes images and documents, not {part.kind}")
    if part.file_id is not None:
        source: Block = {"type": "file", "file_id": part.file_id}
    elif part.url is not None:
        source = _data_url(part.url) or {"type": "url", "url": part.url}
    else:
        mime = mime_of(part)
        if mime is None:
            raise InvalidRequest(
                f"anthropic needs the mime_type of {part.kind} bytes{f' ({part.name})' if part.name else ''}"
            )
        if part.kind == "document" and mime.startswith("text/"):
            source = {"type": "text", "media_type": "text/plain", "data": (part.data or b"").decode("utf-8", "replace")}
        else:
            mime = "image/jpeg" if mime == "image/jpg" else mime
            source = {"type": "base64", "media_type": mime, "data": part.base64}
    block: Block = {"type": part.kind, "source": source}
    if part.kind == "document" and part.name:
        block["title"] = part.name
    return _with_extra(block, part.extra)


def _data_url(url: str) -> Block | None:
    head, found, data = url.partition(";base64,")
    if not found or not head.startswith("data:"):
        return None
    return {"type": "base64", "media_type": head.removeprefix("data:").partition(";")[0], "data": data}

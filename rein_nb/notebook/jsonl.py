"""Transcripts as JSON lines, for keeping and for other programs: a header, then one line a message, one a turn. What goes out comes back.

========================  =========================================================================================
``{"type": "transcript"``  first line: ``of`` (``"result"``, ``"completion"`` or ``"messages"``), ``version``, and the facts of a result
``{"type": "message"``     a `Message`
``{"type": "turn"``        a `Turn` of a result; its completion's ``message`` is the number of a message line, counted from 0
``{"type": "completion"``  a `Completion`
========================  =========================================================================================

Secrets are masked on the way out, so a transcript that held one comes back with the mask in its place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rein_nb.agent.result import AgentResult, Turn
from rein_nb.ir import Completion, Message
from rein_nb.notebook.sanitize import masked

VERSION = 1


def transcript_jsonl(source: Any) -> str:
    """The transcript as JSON lines. Secrets are masked.

    Parameters
    ----------
    source
        An `AgentResult`, `Completion`, `Message`, list of messages, session or agent.

    Raises
    ------
    TypeError
        For anything else.
    """
    lines = _lines(source)
    return "".join(json.dumps(masked(line), ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)


def _lines(source: Any) -> list[dict[str, Any]]:
    if isinstance(source, AgentResult):
        facts = source.model_dump(mode="json", fallback=str, exclude={"messages", "turns"})
        return [_head("result", **facts), *map(_message, source.messages), *_turns(source)]
    if isinstance(source, Completion):
        return [_head("completion"), {"type": "completion", **source.model_dump(mode="json", fallback=str)}]
    messages = [source] if isinstance(source, Message) else getattr(source, "messages", source)
    if isinstance(messages, Sequence) and all(isinstance(message, Message) for message in messages):
        return [_head("messages"), *map(_message, messages)]
    raise TypeError(
        f"cannot write a {type(source).__name__}: expected an AgentResult, Completion, Message, list of messages, session or agent"
    )


def _head(of: str, **facts: Any) -> dict[str, Any]:
    return {"type": "transcript", "of": of, "version": VERSION, **facts}


def _message(message: Message) -> dict[str, Any]:
    return {"type": "message", **message.model_dump(mode="json", fallback=str)}


def _turns(result: AgentResult) -> list[dict[str, Any]]:
    out = []
    for turn in result.turns:
        line = {"type": "turn", **turn.model_dump(mode="json", fallback=str)}
        message = turn.completion.message
        where = next((n for n, known in enumerate(result.messages) if known is message or known == message), None)
        if where is not None:
            line["completion"]["message"] = where
        out.append(line)
    return out


def from_jsonl(text: str) -> AgentResult | Completion | list[Message]:
    """What `transcript_jsonl` (or ``.to_jsonl()``) wrote: the result, the completion or the messages.

    Raises
    ------
    ValueError
        When the text is no such transcript; the message names the line.

    Examples
    --------
    >>> from_jsonl(transcript_jsonl(Message(role="user", content="hi")))[0].text
    'hi'
    """
    # Not splitlines: a string may hold U+2028 and its like.
    lines = [_parsed(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines or lines[0].get("type") != "transcript":
        raise ValueError('line 1: a transcript begins with {"type": "transcript", ...}')
    head = dict(lines[0])
    if head.pop("version", None) != VERSION:
        raise ValueError(f"line 1: this reads version {VERSION} of transcripts, not {lines[0].get('version')!r}")
    del head["type"]
    of = head.pop("of", None)
    try:
        if of == "completion":
            (found,) = _of_kind(lines, "completion")
            return Completion.model_validate(found)
        messages = [Message.model_validate(line) for line in _of_kind(lines, "message")]
        if of == "messages":
            return messages
        if of == "result":
            turns = [_turn(line, messages) for line in _of_kind(lines, "turn")]
            return AgentResult.model_validate({**head, "messages": messages, "turns": turns})
    except (ValueError, IndexError, KeyError, TypeError) as exc:
        raise ValueError(f"the transcript is damaged: {exc}") from exc
    raise ValueError(f"line 1: a transcript is of a result, a completion or messages, not {of!r}")


def _parsed(number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as exc:
        raise ValueError(f"line {number}: {exc}") from None
    if not isinstance(value, dict):
        raise ValueError(f"line {number}: expected an object, not a {type(value).__name__}")
    return value


def _of_kind(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if key != "type"} for line in lines[1:] if line.get("type") == kind
    ]


def _turn(line: dict[str, Any], messages: list[Message]) -> Turn:
    completion = line["completion"]
    if isinstance(completion["message"], int):
        completion = {**completion, "message": messages[completion["message"]]}
    return Turn.model_validate({**line, "completion": completion})

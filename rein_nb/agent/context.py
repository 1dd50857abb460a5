"""The context window: how full it is, and what is left out when it is full.

The whole transcript is always kept. What is *sent* is a view of it: a `Compaction` says that everything before a turn boundary is
replaced by a few messages. A boundary never lies between a call and its result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from rein_nb.agent.asking import ask
from rein_nb.ir import (
    InvalidRequest,
    MediaPart,
    Message,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
)
from rein_nb.ir.base import own_copy

_CHARS_PER_TOKEN = 3.5
"""A low guess, so that the estimate is rather too high than too low."""

_MEDIA_TOKENS = 1_600
_MESSAGE_TOKENS = 5

Strategy: TypeAlias = (
    Literal["drop", "summary"] | Callable[[list[Message]], Sequence[Message] | Awaitable[Sequence[Message]]]
)
"""What becomes of the older part: left out, summarised by the model, or whatever a function makes of it."""


@dataclass(frozen=True, slots=True)
class Context:
    """When and how a long conversation is shortened for the model.

    Attributes
    ----------
    strategy
        ``"drop"``, ``"summary"``, or a function from the older messages to the few that stand in for them (plain or async).
    max_tokens
        Input tokens that a request may have; None takes the model's context window, where it is known.
    fill
        Share of `max_tokens` at which the conversation is shortened before the next request, 0..1.
    keep
        Share of `max_tokens` that the newest turns may keep when it is shortened, 0..1.
    """

    strategy: Strategy = "drop"
    max_tokens: int | None = None
    fill: float = 0.85
    keep: float = 0.4

    def __post_init__(self) -> None:
        if not (callable(self.strategy) or self.strategy in ("drop", "summary")):
            raise ValueError(
                f"strategy must be 'drop', 'summary' or a function of the older messages, not {self.strategy!r}"
            )
        for name in ("keep", "fill"):
            if not isinstance(getattr(self, name), int | float):
                raise ValueError(f"{name} must be a number between 0 and 1, not {getattr(self, name)!r}")
        if not 0 < self.keep < self.fill <= 1:
            raise ValueError(f"shares must satisfy 0 < keep < fill <= 1, got keep={self.keep}, fill={self.fill}")
        tokens = self.max_tokens
        if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1):
            raise ValueError(f"max_tokens must be a whole number, at least 1, or None, got {tokens!r}")


@dataclass(frozen=True, slots=True)
class Compaction:
    """Everything before index `upto` of the transcript is replaced by `instead`."""

    upto: int = 0
    instead: tuple[Message, ...] = ()

    def view(self, messages: Sequence[Message]) -> list[Message]:
        """What is sent of a transcript."""
        return [*self.instead, *messages[self.upto :]]


@dataclass(slots=True)
class Meter:
    """Tokens of the next request: what the provider reported for the last one, plus an estimate of what came since.

    Attributes
    ----------
    reported
        Input and output tokens of the last model call.
    at
        Length of the transcript that these cover.
    """

    reported: int | None = None
    at: int = 0

    def copy(self) -> Meter:
        """A meter of its own with the same reading."""
        return Meter(self.reported, self.at)

    def anchor(self, usage: Usage, length: int) -> None:
        """Take over what the provider reported for a transcript of `length` messages."""
        if usage.input_tokens is not None:
            self.reported = usage.input_tokens + (usage.output_tokens or 0)
            self.at = length

    def forget(self) -> None:
        """The transcript's view changed: the last report does not describe it."""
        self.reported = None
        self.at = 0

    def tokens(self, messages: Sequence[Message], compaction: Compaction) -> int:
        """Tokens that a request with this transcript would have."""
        if self.reported is not None:
            return self.reported + sum(map(estimate_tokens, messages[self.at :]))
        return sum(map(estimate_tokens, compaction.view(messages)))


def estimate_tokens(message: Message) -> int:
    """A cautious guess of a message's tokens."""
    chars = 0
    tokens = _MESSAGE_TOKENS
    for part in message.parts:
        if isinstance(part, ToolResult):
            for piece in part.content:
                if isinstance(piece, TextPart):
                    chars += len(piece.text)
                else:
                    tokens += _MEDIA_TOKENS
        elif isinstance(part, ToolCall):
            chars += len(part.name) + len(part.arguments_text)
        elif isinstance(part, MediaPart):
            tokens += _MEDIA_TOKENS
        elif isinstance(part, ServerToolPart):
            chars += len(str(part.payload or part.output or part.input or ""))
        elif isinstance(part, ThinkingPart):
            chars += len(part.text) + len(part.opaque or "")
        else:
            chars += len(part.text)
    return tokens + int(chars / _CHARS_PER_TOKEN)


def _checked(made: Any) -> list[Message]:
    if isinstance(made, str | Message) or not isinstance(made, Sequence):
        raise InvalidRequest(
            f"the compaction function must return a list of messages that stand for the older ones, not {type(made).__name__}"
        )
    wrong = next((item for item in made if not isinstance(item, Message)), None)
    if wrong is not None:
        raise InvalidRequest(f"the compaction function must return Message objects, not {type(wrong).__name__}")
    return list(made)


def boundaries(messages: Sequence[Message]) -> list[int]:
    """Indices at which a transcript may be cut: before a user's turn, and before an assistant message whose predecessors are answered."""
    return [
        index
        for index, message in enumerate(messages)
        if index and (message.role == "assistant" or (message.role == "user" and not message.tool_results))
    ]


def choose_cut(messages: Sequence[Message], done: Compaction, keep_tokens: int) -> int | None:
    """The earliest boundary whose rest fits into `keep_tokens`, a user's turn where one does; None when nothing can be cut."""
    rest = [0] * (len(messages) + 1)
    for index in range(len(messages) - 1, -1, -1):
        rest[index] = rest[index + 1] + estimate_tokens(messages[index])
    possible = [index for index in boundaries(messages) if index > done.upto]
    if not possible:
        return None
    fitting = [index for index in possible if rest[index] <= keep_tokens]
    if not fitting:
        return possible[-1]
    return next((index for index in fitting if messages[index].role == "user"), fitting[0])


async def compact(
    messages: Sequence[Message],
    done: Compaction,
    policy: Context,
    keep_tokens: int,
    summarise: Callable[[list[Message]], Awaitable[str | None]],
) -> Compaction | None:
    """A further compaction of a transcript; None when there is nothing to leave out.

    Parameters
    ----------
    messages
        The whole transcript.
    done
        The compaction in force.
    keep_tokens
        Estimated tokens that the newest turns may keep.
    summarise
        Asks a model for a summary of the older messages; None when there can be none, and they are to be left out all the same.
    """
    cut = choose_cut(messages, done, keep_tokens)
    if cut is None:
        return None
    older = [*done.instead, *messages[done.upto : cut]]
    summary = await summarise(older) if policy.strategy == "summary" else None
    if callable(policy.strategy):
        instead = _checked(await ask(policy.strategy, own_copy(older)))
    elif summary is not None:
        instead = [Message(role="user", content=f"[Summary of the conversation so far]\n{summary}")]
    else:
        note = f"[The earlier part of this conversation, {cut} messages, was left out because it no longer fits.]"
        # What an earlier summary holds is not lost with this one.
        earlier = done.instead if policy.strategy == "summary" else ()
        instead = [*earlier, Message(role="user", content=note)]
    if messages[cut].role == "assistant" and not callable(policy.strategy):
        # The cut lies inside a user's turn: what the user asked for must stay in sight.
        task = next((m for m in reversed(messages[:cut]) if m.role == "user" and not m.tool_results), None)
        if task is not None and task not in instead:
            instead.append(task)
    return Compaction(cut, tuple(instead))


SUMMARY_PROMPT = (
    "Summarise the conversation so far for yourself, so that you can go on with it without seeing it again: the task and its constraints, "
    "what was decided and why, what was done (with names, numbers, paths and ids exactly as they are), what is open. "
    "Write only the summary."
)

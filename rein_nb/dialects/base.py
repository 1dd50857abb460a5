"""What every codec is given and gives back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

from rein_nb.ir import Completion, ErrorInfo, Origin, Request, ToolChoice
from rein_nb.ir.base import JSON
from rein_nb.ir.deltas import Delta
from rein_nb.stream import Accumulator


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """How a server departs from its dialect, as data. The defaults are the smallest common set: an unknown server gets them.

    Chat Completions: `developer_role` (role ``developer`` is understood), `max_tokens_field`, `stream_usage` (``stream_options``),
    `parallel_tool_calls` (the field is accepted), `strict_tools`, `store` (the field is accepted), `reasoning_field` (where reasoning text
    goes back), `reasoning_replay` (when it does), `think_tags` (reasoning comes inline in tags), `named_tool_choice`,
    `top_k_field`, `seed_field`, `effort_field` (what the server calls these options, dots for nesting; None: it has no such option).

    Anthropic Messages: `mid_system` (role ``system`` is understood inside the conversation), `adaptive_thinking` (the model takes
    ``thinking: adaptive``, which a reasoning effort then turns on).

    Responses: `reasoning_summary` (the summary of its reasoning to ask a reasoning model for, where the request does not say).

    Hand-off: `call_ids` names a rule of `rein_nb.dialects.handoff.ID_RULES` for tool-call ids; None takes the dialect's.
    """

    developer_role: bool = False
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    parallel_tool_calls: bool = True
    strict_tools: bool = False
    store: bool = False
    reasoning_field: str | None = None
    reasoning_replay: Literal["never", "tool_turns", "always"] = "never"
    think_tags: bool = False
    named_tool_choice: bool = True
    top_k_field: str | None = None
    seed_field: str | None = "seed"
    effort_field: str | None = "reasoning_effort"
    framing: Literal["sse", "ndjson"] = "sse"
    path: str | None = None
    mid_system: bool = False
    adaptive_thinking: bool = False
    reasoning_summary: str | None = None
    call_ids: str | None = None
    default_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What is known of a model. None and empty mean unknown: nothing is forbidden and no limit is invented.

    Attributes
    ----------
    context_window, max_output_tokens
        Tokens.
    media_in
        Kinds of media the model reads.
    unsupported_options
        Names of `Options` fields that the model refuses.
    reasoning_efforts
        The model's own words for its thinking levels.
    structured_output, tools
        Whether the model has native JSON-schema output, and tools.
    """

    context_window: int | None = None
    max_output_tokens: int | None = None
    media_in: frozenset[str] | None = None
    unsupported_options: frozenset[str] = frozenset()
    reasoning_efforts: tuple[str, ...] | None = None
    structured_output: bool | None = None
    tools: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Who a request is encoded for.

    Attributes
    ----------
    provider, dialect, model
        ``"openai"``, ``"openai-chat"``, ``"gpt-..."``.
    quirks, capabilities
        Data about the server and the model.
    """

    provider: str
    dialect: str
    model: str
    quirks: Quirks = field(default_factory=Quirks)
    capabilities: Capabilities = field(default_factory=Capabilities)

    @property
    def origin(self) -> Origin:
        """The origin that this target's answers carry, before the wire names model and response."""
        return Origin(provider=self.provider, dialect=self.dialect, model=self.model, requested_model=self.model)


@dataclass(slots=True, kw_only=True)
class WireCall:
    """What is to be sent.

    Attributes
    ----------
    path
        Relative to the endpoint's base URL, with a leading slash.
    body
        The JSON body.
    headers, query
        Further headers and query parameters that the dialect needs (no credentials).
    warnings
        What was left out or changed, in words.
    tool_names
        Wire name to our name, for tools whose name had to be changed.
    """

    path: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    tool_names: dict[str, str] = field(default_factory=dict)


class Decoder(Protocol):
    """Turns wire events of one streamed response into deltas. Keeps ids and positions, never text."""

    def feed(self, data: JSON, event: str | None = None) -> Sequence[Delta]:
        """Deltas for one wire event: its parsed JSON (or the raw text, where it was not JSON) and its SSE event name."""

    def close(self) -> Sequence[Delta]:
        """Deltas for the end of the bytes, when no terminal marker was seen before."""


def not_told(target: Target, choice: ToolChoice) -> str:
    """The warning where a server cannot be told how many tools to call at a time: the one wish that is left out and not refused.

    The loop holds to it all the same, by running the calls of a turn one after another (C047).
    """
    how = "one tool at a time" if choice.parallel == "single" else "several tools at a time"
    return f"{target.provider}/{target.model} cannot be told to call {how}: parallel={choice.parallel!r} was not sent"


class Codec(Protocol):
    """A wire dialect."""

    name: ClassVar[str]

    def encode(self, request: Request, target: Target, *, stream: bool) -> WireCall:
        """The wire request.

        Raises
        ------
        UnsupportedOption, InvalidRequest
            For what this dialect or model cannot express; nothing is dropped.
        """

    def decoder(self, target: Target, call: WireCall | None = None) -> Decoder:
        """A fresh decoder for one streamed response to `call`."""

    def deltas(self, response: JSON, target: Target, call: WireCall | None = None) -> Iterable[Delta]:
        """Deltas for a whole, non-streamed response."""

    def error(self, status: int | None, headers: Mapping[str, str], body: JSON, target: Target) -> ErrorInfo:
        """The fault that an error answer describes. `body` is parsed JSON, or text where it was none."""


def decode(codec: Codec, response: JSON, target: Target, call: WireCall | None = None) -> Completion:
    """A whole response as a `Completion`, through the same accumulator as a stream, so that both forms agree."""
    accumulator = Accumulator(target.origin)
    for delta in codec.deltas(response, target, call):
        accumulator.feed(delta)
    accumulator.end()
    return accumulator.completion

"""The seven frames as data: each a list of columns over the rows of `rein_nb.frames.rows`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from rein_nb.agent.events import AgentEvent
from rein_nb.agent.result import StopReason
from rein_nb.frames import rows as r
from rein_nb.frames.columns import Column, require_pandas
from rein_nb.frames.sources import Sources, collect
from rein_nb.ir import Completion, MediaPart, TextPart, ThinkingPart, ToolCall, ToolResult, ToolStatus, Usage
from rein_nb.ir.errors import ErrorInfo, ErrorKind
from rein_nb.ir.events import StreamEvent
from rein_nb.ir.finish import FinishReason
from rein_nb.ir.messages import Message

if TYPE_CHECKING:
    import pandas as pd

Read = Callable[[Any], Any]

FINISH_REASONS: tuple[str, ...] = get_args(FinishReason)
STOP_REASONS: tuple[str, ...] = get_args(StopReason)
ERROR_KINDS: tuple[str, ...] = get_args(ErrorKind)
STATUSES: tuple[str, ...] = get_args(ToolStatus)
ROLES: tuple[str, ...] = get_args(Message.model_fields["role"].annotation)
MEDIA_KINDS: tuple[str, ...] = get_args(MediaPart.model_fields["kind"].annotation)
PART_TYPES = ("text", "thinking", "tool_call", "tool_result", "media", "refusal", "server_tool")
EVENT_TYPES: tuple[str, ...] = tuple(cls.type for cls in get_args(AgentEvent))
STREAM_TYPES: tuple[str, ...] = tuple(cls.type for cls in get_args(StreamEvent))


def _word(words: tuple[str, ...], read: Read) -> Read:
    """`read`, with a word outside the categories as missing rather than a failure of the whole frame."""
    known = frozenset(words)
    return lambda row: value if (value := read(row)) in known else None


def _usage_columns(usage: Callable[[Any], Usage]) -> list[Column]:
    return [
        Column("input_tokens", "Int64", lambda row: usage(row).input_tokens, "tokens, cached included"),
        Column("output_tokens", "Int64", lambda row: usage(row).output_tokens, "tokens, reasoning included"),
        Column("reasoning_tokens", "Int64", lambda row: usage(row).reasoning_tokens, "tokens"),
        Column("cache_read_tokens", "Int64", lambda row: usage(row).cache_read_tokens, "tokens"),
        Column("cache_write_tokens", "Int64", lambda row: usage(row).cache_write_tokens, "tokens"),
        Column("cost_usd", "Float64", lambda row: usage(row).cost_usd, "US dollars; missing when the price is unknown"),
        Column("usage_complete", "boolean", lambda row: usage(row).complete, "False: counts are lower bounds"),
    ]


def _error_columns(error: Callable[[Any], ErrorInfo | None]) -> list[Column]:
    def field(name: str) -> Read:
        return lambda row: None if (info := error(row)) is None else getattr(info, name)

    return [
        Column("error_kind", ERROR_KINDS, _word(ERROR_KINDS, field("kind"))),
        Column("error", "string", field("message")),
        Column("error_status", "Int64", field("status"), "HTTP status"),
    ]


def output_tokens_per_s(completion: Completion) -> float | None:
    """Speed of the visible output: output tokens a second between the first token and the end of the stream.

    Reasoning tokens that were not streamed were written before the first token, and are left out. None when the call was
    not streamed, or reported no output tokens.
    """
    timing, tokens = completion.timing, completion.usage.output_tokens
    if tokens is None or timing.first_token_s is None or timing.total_s is None:
        return None
    seconds = timing.total_s - timing.first_token_s
    if not any(isinstance(part, ThinkingPart) and part.text for part in completion.message.parts):
        tokens -= completion.usage.reasoning_tokens or 0
    return tokens / seconds if seconds > 0 and tokens > 0 and timing.inter_token_p50_s is not None else None


def _timing_columns(completion: Callable[[Any], Completion | None]) -> list[Column]:
    def field(name: str) -> Read:
        return lambda row: None if (c := completion(row)) is None else getattr(c.timing, name)

    return [
        Column("time_to_first_byte_s", "Float64", field("first_byte_s"), "seconds"),
        Column("time_to_first_token_s", "Float64", field("first_token_s"), "seconds, thinking and tool calls count"),
        Column("time_to_first_text_s", "Float64", field("first_text_s"), "seconds, visible text only"),
        Column("inter_token_p50_s", "Float64", field("inter_token_p50_s"), "seconds"),
        Column("inter_token_p95_s", "Float64", field("inter_token_p95_s"), "seconds"),
        Column(
            "output_tokens_per_s", "Float64",
            lambda row: None if (c := completion(row)) is None else output_tokens_per_s(c), "tokens a second",
        ),
    ]  # fmt: skip


def _first_completion(row: r.RunRow) -> Completion | None:
    return row.result.turns[0].completion if row.result.turns else None


def _prompt(row: r.RunRow) -> str | None:
    return next((m.text for m in row.result.new_messages if m.role == "user"), None)


def _output(row: r.RunRow) -> Any:
    output = row.result.output
    return None if isinstance(output, str) and output == row.result.text else output


def _retries(row: r.RunRow) -> int:
    return sum(turn.completion.timing.retries for turn in row.result.turns)


def _or_none(text: str | None) -> str | None:
    return text or None


RUNS = [
    Column("run_id", "string", lambda row: row.result.run_id),
    Column("label", "string", lambda row: row.label),
    Column("provider", "string", lambda row: _or_none(row.result.provider)),
    Column("model", "string", lambda row: _or_none(row.result.model)),
    Column("prompt_index", "Int64", lambda row: row.source.prompt_index, "from 0, in a comparison"),
    Column("repeat", "Int64", lambda row: row.source.repeat, "from 0, in a comparison"),
    Column("system", "string", lambda row: row.result.system),
    Column("prompt", "string", _prompt),
    Column("text", "string", lambda row: row.result.text),
    Column("output", "json", _output, "the validated value, where a type was asked for"),
    Column("finish_reason", FINISH_REASONS, lambda row: row.result.finish_reason),
    Column("stop_reason", STOP_REASONS, _word(STOP_REASONS, lambda row: row.result.stop_reason)),
    Column("ok", "boolean", lambda row: row.result.ok),
    *_error_columns(lambda row: row.result.error),
    Column("turns", "Int64", lambda row: len(row.result.turns), "model calls"),
    Column("tool_calls", "Int64", lambda row: sum(len(t.completion.tool_calls) for t in row.result.turns)),
    Column("tool_errors", "Int64", lambda row: sum(t.result.is_error for t in row.result.tool_runs)),
    *_usage_columns(lambda row: row.result.usage),
    *_timing_columns(_first_completion),
    Column("retries", "Int64", _retries, "requests beyond the first of each turn"),
    Column("started_at", "time", lambda row: row.result.started_at),
    Column("duration_s", "Float64", lambda row: row.result.duration_s, "seconds"),
]

TURNS = [
    Column("run_id", "string", lambda row: row.run_id),
    Column("label", "string", lambda row: row.label),
    Column("turn", "Int64", lambda row: row.turn.number, "from 1"),
    Column("message_index", "Int64", lambda row: row.message_index),
    Column("provider", "string", lambda row: row.turn.completion.provider),
    Column("model", "string", lambda row: row.turn.completion.model),
    Column("dialect", "string", lambda row: (o := row.turn.completion.message.origin) and o.dialect),
    Column("response_id", "string", lambda row: row.turn.completion.response_id),
    Column("text", "string", lambda row: row.turn.completion.text),
    Column("thinking", "string", lambda row: _or_none(row.turn.completion.thinking)),
    Column("tool_calls", "Int64", lambda row: len(row.turn.completion.tool_calls)),
    Column("finish_reason", FINISH_REASONS, lambda row: row.turn.completion.finish_reason),
    Column("native_finish_reason", "string", lambda row: row.turn.completion.native_finish_reason),
    *_error_columns(lambda row: row.turn.completion.error),
    *_usage_columns(lambda row: row.turn.completion.usage),
    *_timing_columns(lambda row: row.turn.completion),
    Column("model_s", "Float64", lambda row: row.turn.completion.timing.total_s, "seconds of the model call alone"),
    Column("retries", "Int64", lambda row: row.turn.completion.timing.retries, "requests beyond the first"),
    Column("warnings", "json", lambda row: row.turn.completion.warnings or None),
    Column("started_at", "time", lambda row: row.turn.started_at or row.turn.completion.timing.started_at),
    Column("duration_s", "Float64", lambda row: row.turn.duration_s, "seconds, tool calls included"),
]


def _origin(name: str) -> Read:
    return lambda row: None if row.message.origin is None else getattr(row.message.origin, name)


def _plain_parts(row: r.MessageRow) -> list[Any]:
    return [part.model_dump(mode="json", fallback=str) for part in row.message.parts]


MESSAGES = [
    Column("run_id", "string", lambda row: row.run_id),
    Column("label", "string", lambda row: row.label),
    Column("message_index", "Int64", lambda row: row.index, "from 0, in the whole transcript"),
    Column("role", ROLES, lambda row: row.message.role),
    Column("turn", "Int64", lambda row: row.turn, "missing outside a turn of this run"),
    Column("is_new", "boolean", lambda row: row.is_new, "False: history from before the run"),
    Column("text", "string", lambda row: row.message.text),
    Column("thinking", "string", lambda row: _or_none(row.message.thinking)),
    Column("n_parts", "Int64", lambda row: len(row.message.parts)),
    Column("tool_calls", "Int64", lambda row: len(row.message.tool_calls)),
    Column("provider", "string", _origin("provider")),
    Column("dialect", "string", _origin("dialect")),
    Column("model", "string", _origin("model")),
    Column("response_id", "string", _origin("response_id")),
    Column("parts", "json", _plain_parts, "the parts, whole; `messages_from_frame` reads them"),
    Column("extra", "json", lambda row: row.message.extra or None),
]


def _part(name: str, *types: type) -> Read:
    return lambda row: getattr(row.part, name) if isinstance(row.part, types) else None


def _part_text(row: r.PartRow) -> str | None:
    text = getattr(row.part, "text", None)
    return text if isinstance(text, str) else None


def _part_name(row: r.PartRow) -> str | None:
    return _or_none(getattr(row.part, "name", None))


def _part_call_id(row: r.PartRow) -> str | None:
    part = row.part
    return part.tool_call_id if isinstance(part, ToolResult) else getattr(part, "id", None)


def _part_arguments(row: r.PartRow) -> Any:
    return row.part.arguments if isinstance(row.part, ToolCall) else getattr(row.part, "input", None)


def _part_details(row: r.PartRow) -> Any:
    return row.part.details if isinstance(row.part, ToolResult) else getattr(row.part, "output", None)


PARTS = [
    Column("run_id", "string", lambda row: row.message.run_id),
    Column("label", "string", lambda row: row.message.label),
    Column("message_index", "Int64", lambda row: row.message.index),
    Column("part_index", "Int64", lambda row: row.index, "from 0"),
    Column("turn", "Int64", lambda row: row.message.turn),
    Column("role", ROLES, lambda row: row.message.message.role),
    Column("type", PART_TYPES, lambda row: row.part.type),
    Column("text", "string", _part_text),
    Column("call_id", "string", _part_call_id),
    Column("name", "string", _part_name),
    Column("arguments", "json", _part_arguments, "of a tool call; the input of a server tool"),
    Column("raw_arguments", "string", _part("raw_arguments", ToolCall), "as sent, where they were no JSON object"),
    Column("status", STATUSES, _part("status", ToolResult)),
    Column("is_error", "boolean", _part("is_error", ToolResult)),
    Column("details", "json", _part_details, "a tool result's value for programs; the output of a server tool"),
    Column("citations", "json", lambda row: [c.model_dump(mode="json", fallback=str) for c in row.part.citations] or None
           if isinstance(row.part, TextPart) else None),
    Column("redacted", "boolean", _part("redacted", ThinkingPart), "True: the provider withheld the text"),
    Column("media_kind", MEDIA_KINDS, _part("kind", MediaPart)),
    Column("mime_type", "string", _part("mime_type", MediaPart)),
    Column("size_bytes", "Int64", lambda row: None if (d := _part("data", MediaPart)(row)) is None else len(d), "bytes"),
    Column("url", "string", _part("url", MediaPart)),
    Column("file_id", "string", _part("file_id", MediaPart)),
    Column("extra", "json", lambda row: row.part.extra or None),
]  # fmt: skip


def _result(name: str) -> Read:
    return lambda row: None if row.result is None else getattr(row.result, name)


def _run(name: str) -> Read:
    return lambda row: None if row.run is None else getattr(row.run, name)


TOOL_CALLS = [
    Column("run_id", "string", lambda row: row.run_id),
    Column("label", "string", lambda row: row.label),
    Column("turn", "Int64", lambda row: row.turn),
    Column("message_index", "Int64", lambda row: row.message_index),
    Column("part_index", "Int64", lambda row: row.part_index),
    Column("call_id", "string", lambda row: row.call.id),
    Column("name", "string", lambda row: row.call.name),
    Column("arguments", "json", lambda row: row.call.arguments),
    Column("raw_arguments", "string", lambda row: row.call.raw_arguments, "as sent, where they were no JSON object"),
    Column("arguments_error", "string", lambda row: row.call.error),
    Column("status", STATUSES, _result("status"), "missing: the call has no result"),
    Column("is_error", "boolean", _result("is_error")),
    Column("result", "string", _result("text"), "what the model reads"),
    Column("details", "json", _result("details"), "the value for programs"),
    Column("started_at", "time", _run("started_at")),
    Column("duration_s", "Float64", _run("duration_s"), "seconds; missing: it never started"),
]


def _used(row: r.UsageRow) -> Usage:
    return row.completion.usage


USAGE = [
    Column("run_id", "string", lambda row: row.run_id),
    Column("label", "string", lambda row: row.label),
    Column("turn", "Int64", lambda row: row.turn),
    Column(
        "answer", "boolean", lambda row: row.answer, "False: asked again after a fault, or a summary of older turns"
    ),
    Column("provider", "string", lambda row: row.completion.provider),
    Column("model", "string", lambda row: row.completion.model),
    *_usage_columns(_used),
    Column("uncached_input_tokens", "Int64", lambda row: _used(row).uncached_input_tokens, "tokens"),
    Column("total_tokens", "Int64", lambda row: _used(row).total_tokens, "tokens"),
    Column("details", "json", lambda row: _used(row).details or None, "further breakdowns, tokens"),
    Column("raw", "json", lambda row: _used(row).raw, "the provider's own usage object"),
]


def _either(name: str) -> Read:
    """A field of the stream event inside a message update, else of the agent event."""
    return lambda row: getattr(row.stream, name, None) if row.stream is not None else getattr(row.event, name, None)


def _event_call(row: r.EventRow) -> ToolCall | None:
    call = getattr(row.event, "call", None)
    return call if call is not None else getattr(row.stream, "tool_call", None)


def _event_call_id(row: r.EventRow) -> str | None:
    call = _event_call(row)
    if call is not None:
        return call.id
    return getattr(row.event, "call_id", None) or getattr(row.stream, "id", None)


def _event_tool(row: r.EventRow) -> str | None:
    call = _event_call(row)
    return call.name if call is not None else getattr(row.stream, "name", None)


def _event_text(row: r.EventRow) -> str | None:
    if row.stream is not None:
        text: str | None = getattr(row.stream, "delta", None)
        return text
    event = row.event
    for name in ("message", "result"):
        value = getattr(event, name, None)
        if value is not None:
            return value if isinstance(value, str) else value.text
    return None


def _event_role(row: r.EventRow) -> str | None:
    return getattr(getattr(row.event, "message", None), "role", None)


def _event_error(row: r.EventRow) -> ErrorInfo | None:
    holder = row.stream if row.stream is not None else row.event
    error: ErrorInfo | None = getattr(holder, "error", None)
    if error is None:
        error = getattr(getattr(holder, "completion", None) or getattr(holder, "result", None), "error", None)
    return error


def _event_status(row: r.EventRow) -> str | None:
    return getattr(getattr(row.event, "result", None), "status", None)


def _event_arguments(row: r.EventRow) -> Any:
    call = _event_call(row)
    return None if call is None else call.arguments


EVENTS = [
    Column("run_id", "string", lambda row: row.event.run_id),
    Column("label", "string", lambda row: row.label),
    Column("seq", "Int64", lambda row: row.event.seq, "from 0, without gaps"),
    Column("turn", "Int64", lambda row: row.event.turn or None, "missing outside a turn"),
    Column("time", "time", lambda row: row.event.time or None),
    Column("type", EVENT_TYPES, _word(EVENT_TYPES, lambda row: row.event.type)),
    Column("stream_type", STREAM_TYPES, lambda row: None if row.stream is None else row.stream.type),
    Column("part_index", "Int64", lambda row: getattr(row.stream, "index", None)),
    Column("role", ROLES, _event_role),
    Column("text", "string", _event_text, "the delta; the whole text for whole messages and results"),
    Column("call_id", "string", _event_call_id),
    Column("tool", "string", _event_tool),
    Column("arguments", "json", _event_arguments),
    Column("status", STATUSES, _event_status),
    Column("duration_s", "Float64", lambda row: getattr(row.event, "duration_s", None), "seconds"),
    Column("fraction", "Float64", lambda row: getattr(row.event, "fraction", None), "progress, 0 to 1"),
    Column("attempt", "Int64", _either("attempt")),
    Column("wait_s", "Float64", _either("wait_s"), "seconds"),
    *_error_columns(_event_error),
    Column("data", "json", lambda row: getattr(row.event, "data", None), "what a tool reported beside its progress"),
]

TABLES: dict[str, tuple[list[Column], Callable[[Sources], Iterator[Any]]]] = {
    "runs": (RUNS, r.run_rows),
    "turns": (TURNS, r.turn_rows),
    "messages": (MESSAGES, r.message_rows),
    "parts": (PARTS, r.part_rows),
    "tool_calls": (TOOL_CALLS, r.call_rows),
    "usage": (USAGE, r.usage_rows),
    "events": (EVENTS, r.event_rows),
}
KINDS: tuple[str, ...] = tuple(TABLES)
"""The kinds of frames."""


def _table(kind: str) -> tuple[list[Column], Callable[[Sources], Iterator[Any]]]:
    try:
        return TABLES[kind]
    except (KeyError, TypeError):
        raise ValueError(f"no frame is called {kind!r}; there are: {', '.join(KINDS)}") from None


def columns(kind: str) -> list[Column]:
    """The columns of a frame, to read or to extend: a changed list goes into ``frame(..., columns=...)``.

    Raises
    ------
    ValueError
        For an unknown kind.
    """
    return list(_table(kind)[0])


def frame(kind: str, sources: Any, *, columns: Sequence[Column] | None = None) -> pd.DataFrame:
    """A tidy frame of everything in `sources`.

    Parameters
    ----------
    kind
        ``runs``, ``turns``, ``messages``, ``parts``, ``tool_calls``, ``usage`` or ``events``: what one row is.
    sources
        An `AgentResult`, an `Agent`, a `Completion`, messages, agent events, a `Comparison`, a `Session`, or a list of these. A list
        without any gives an empty frame with the same columns and dtypes.
    columns
        The columns to make, in order; all of the kind by default.

    Raises
    ------
    ValueError
        For an unknown kind.
    TypeError
        For a source that is none of the above.
    """
    pandas = require_pandas()
    defaults, rows_of = _table(kind)
    rows = list(rows_of(collect(sources)))
    wanted = defaults if columns is None else columns
    made: pd.DataFrame = pandas.DataFrame(
        {column.name: column.array(rows) for column in wanted}, index=pandas.RangeIndex(len(rows))
    )
    return made


def to_frame(obj: Any, kind: str = "turns") -> pd.DataFrame:
    """``frame(kind, obj)``: one of the tidy frames of an object."""
    return frame(kind, obj)

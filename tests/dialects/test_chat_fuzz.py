"""Whatever a server sends, a Chat decoder raises nothing and a stream has one end."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rein_nb.dialects.base import decode
from rein_nb.dialects.ollama import OllamaCodec
from rein_nb.ir import Message, StreamDone, StreamError
from rein_nb.stream import Accumulator
from tests.dialects.chat_wire import CODEC, DONE, chunk, events, fragment, target
from tests.support import examples

OLLAMA = OllamaCodec()

_FIELDS = (
    "id", "model", "object", "created", "choices", "usage", "error", "index", "delta", "message", "finish_reason", "logprobs", "content",
    "role", "refusal", "reasoning", "reasoning_content", "reasoning_details", "tool_calls", "function", "custom", "name", "arguments",
    "input", "type", "annotations", "audio", "data", "transcript", "images", "image_url", "url", "executed_tools", "function_call",
    "text", "thinking", "signature", "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "cached_tokens",
    "citations", "search_results", "done", "x_groq", "metadata", "raw", "code", "details", "cost",
)  # fmt: skip
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 600), st.floats(), st.text(max_size=6),
    st.sampled_from(["stop", "tool_calls", "error", "text", "thinking", "<think>", "</think>", "{", "}", '{"a":1}', "[DONE]", "\ud83d", "data:image/png;base64,AA=="]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(_FIELDS), st.text(max_size=3)), inner, max_size=5),
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(_FIELDS), values, max_size=5)
choices = st.fixed_dictionaries(
    {},
    optional={
        "index": scalars,
        "delta": st.one_of(bodies, values),
        "message": bodies,
        "finish_reason": scalars,
        "logprobs": values,
    },
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "id": scalars,
        "choices": st.one_of(st.lists(choices, max_size=3), values),
        "usage": values,
        "error": values,
        "odd": values,
    },
)
wire_events = st.one_of(objects, values, st.tuples(st.sampled_from([None, "error", "ping", "message"]), values))
quirks = st.fixed_dictionaries({"think_tags": st.booleans()})

REAL: list[Any] = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "hm"}),
    chunk({"content": "<think>a</think>"}),
    chunk({"content": "b"}),
    chunk({"content": "c"}),
    chunk(fragment(index=0, id="c1", name="f", arguments='{"a"')),
    chunk(fragment(index=0, arguments=":1}")),
    chunk(fragment(id="c2", name="g", arguments={"x": 1})),
    chunk({"reasoning_details": [{"type": "reasoning.text", "text": "x", "index": 0}]}),
    chunk(finish="tool_calls"),
    {"id": "r1", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    DONE,
]


def ends_once(wire: list[Any], **quirk: Any) -> None:
    out = events(copy.deepcopy(wire), target(**quirk))
    terminal = [event for event in out if isinstance(event, StreamDone | StreamError)]
    assert len(terminal) == 1
    assert out[-1] is terminal[0]
    completion = terminal[0].completion
    assert Message.model_validate(completion.message.model_dump()) is not None
    for call in completion.runnable_tool_calls:
        assert isinstance(call.arguments, dict)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(wire_events, max_size=6), quirks)
def test_any_events_give_one_end_and_no_exception(wire: list[Any], quirk: dict[str, Any]) -> None:
    ends_once(wire, **quirk)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from(range(len(REAL))), max_size=20), st.integers(0, 20), wire_events, quirks)
def test_reordered_doubled_and_cut_streams_with_something_odd_in_between(
    order: list[int], at: int, odd: Any, quirk: dict[str, Any]
) -> None:
    wire = [REAL[n] for n in order]
    wire.insert(min(at, len(wire)), odd)
    ends_once(wire, **quirk)


@settings(max_examples=examples(150), deadline=None)
@given(st.one_of(objects, values))
def test_any_whole_answer_is_a_completion(answer: Any) -> None:
    for codec in (CODEC, OLLAMA):
        completion = decode(codec, copy.deepcopy(answer), target())
        assert completion.finish_reason in (
            "stop",
            "length",
            "tool_calls",
            "content_filter",
            "refusal",
            "error",
            "other",
        )


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.one_of(values, st.fixed_dictionaries({}, optional={"message": bodies, "done": scalars, "error": values})),
        max_size=6,
    )
)
def test_any_ollama_lines_give_one_end_and_no_exception(lines: list[Any]) -> None:
    accumulator, decoder = Accumulator(), OLLAMA.decoder(target())
    for line in lines:
        for delta in decoder.feed(line):
            accumulator.feed(delta)
    for delta in decoder.close():
        accumulator.feed(delta)
    accumulator.end()
    assert accumulator.finished


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.text(alphabet="<think>/ab\n", max_size=5), max_size=12))
def test_text_cut_in_any_way_gives_the_same(pieces: list[str]) -> None:
    whole = "".join(pieces)
    cut = events([chunk({"content": piece}) for piece in pieces] + [chunk(finish="stop")], target(think_tags=True))[-1]
    once = events([chunk({"content": whole}), chunk(finish="stop")], target(think_tags=True))[-1]
    assert isinstance(cut, StreamDone)
    assert isinstance(once, StreamDone)
    assert (cut.completion.text, cut.completion.thinking) == (once.completion.text, once.completion.thinking)

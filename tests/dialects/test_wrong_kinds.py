"""Every field that a real server sent, with a value of another kind in its place: no decoder raises, and a stream still ends."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rein_nb.dialects.base import Target
from rein_nb.ir import deltas as d
from rein_nb.providers.codecs import codec_for
from rein_nb.stream import Accumulator
from tests.conformance.corpus import FOLDERS, Case, cases

OTHERS: tuple[Any, ...] = (None, True, -1, 1.5, "", "x", [], [[]], {}, {"x": []}, [{"x": {}}])


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value within, containers included."""
    yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    """A copy with `other` at `path`."""
    if not path:
        return other
    out = copy.copy(value)
    out[path[0]] = changed(out[path[0]], path[1:], other)
    return out


def shape(event: Any, path: tuple[Any, ...]) -> tuple[Any, ...]:
    """What tells one place from another, over all recordings."""
    kind = event.get("type") if isinstance(event, dict) else None
    return (str(kind), *("*" if isinstance(step, int) else step for step in path))


def decode(case: Case, events: list[Any]) -> str:
    """Feed a stream, or a whole answer; how it ended."""
    target: Target = case.llm("http://127.0.0.1:9").target()
    acc = Accumulator(target.origin)
    codec = codec_for(case.dialect)
    deltas: list[d.Delta] = []
    if case.streamed:
        decoder = codec.decoder(target)
        for name, data in events:
            deltas += decoder.feed(data, name)
        deltas += decoder.close()
    else:
        deltas += codec.deltas(events[0][1], target)
    for delta in deltas:
        acc.feed(delta)
    acc.end()
    return acc.completion.finish_reason


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_value_of_another_kind_makes_a_decoder_raise(folder: str, shared: Path) -> None:
    seen: set[tuple[Any, ...]] = set()
    wrong: set[str] = set()
    for case in cases(folder):
        if not case.ok:
            continue
        events = case.events() if case.streamed else [(None, case.document())]
        for n, (name, data) in enumerate(events):
            for path in leaves(data):
                place = (case.dialect, case.streamed, *shape(data, path))
                if place in seen:
                    continue
                seen.add(place)
                for other in OTHERS:
                    try:
                        assert decode(case, [*events[:n], (name, changed(data, path, other)), *events[n + 1 :]])
                    except Exception as exc:
                        wrong.add(f"{place} = {other!r}: {type(exc).__name__}: {exc}")
    assert len(seen) > 50
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize("other", [item for item in OTHERS if not isinstance(item, str)], ids=repr)
@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("openai-chat", lambda x: {"choices": [{"message": {"content": "hi", "annotations": [{"url": x}]}, "finish_reason": "stop"}], "citations": ["u"]}),
        ("openai-chat", lambda x: {"choices": [{"message": {"content": "hi", "audio": {"id": "a", "data": x}}, "finish_reason": "stop"}]}),
        ("google", lambda x: {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP", "citationMetadata": {"citationSources": [{"uri": "u", "title": x}], "citations": [{"uri": "u", "title": x}]}}]}),
        ("google", lambda x: {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": "STOP", "urlContextMetadata": {"urlMetadata": [{"retrievedUrl": x, "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}]}}]}),
    ],
)  # fmt: skip
def test_the_text_is_kept_whatever_stands_in_its_evidence(
    dialect: str, answer: Callable[[Any], Any], other: Any
) -> None:
    target = Target(provider=dialect, dialect=dialect, model="m")
    acc = Accumulator(target.origin)
    for delta in codec_for(dialect).deltas(answer(other), target):
        acc.feed(delta)
    acc.end()
    assert (acc.completion.text, acc.completion.error) == ("hi", None)

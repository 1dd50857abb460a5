"""Framing: bytes cut anywhere give the events of the uncut bytes, and SSE is read as its standard says."""

from __future__ import annotations

import itertools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rein_nb.dialects.framing import EventReader, JSONArrayParser, NDJSONParser, SSEParser, parse_event, sniff
from tests.support import load_recording, recordings


def read(parser, pieces):
    out = []
    for piece in pieces:
        out.extend(parser.feed(piece))
    out.extend(parser.close())
    return out


def cut(data: bytes, cuts) -> list[bytes]:
    marks = sorted({0, len(data), *(c % (len(data) + 1) for c in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(marks)]


def by_the_letter(data: bytes) -> list[tuple[str | None, str]]:
    """The standard's steps, one after another, with no regard for speed; the last event needs no blank line."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    out, event, data_lines = [], "", []
    for line in [*text.split("\n"), "", ""]:
        if line == "":
            if data_lines:
                out.append((event or None, "\n".join(data_lines)))
            event, data_lines = "", []
        elif line.startswith(":"):
            continue
        else:
            name, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            if name == "data":
                data_lines.append(value)
            elif name == "event":
                event = value
    return out


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b'data: {"a":1}\n\n', [(None, '{"a":1}')]),
        (b"data:x\n\n", [(None, "x")]),
        (b"data:  x\n\n", [(None, " x")]),
        (b"data: a\ndata: b\n\n", [(None, "a\nb")]),
        (b"data\n\n", [(None, "")]),
        (b"event: ping\ndata: {}\n\n", [("ping", "{}")]),
        (b"event: a\nevent: b\ndata: {}\n\n", [("b", "{}")]),
        (b"event: lonely\n\ndata: x\n\n", [(None, "x")]),
        (b"event:\ndata: x\n\n", [(None, "x")]),
        (b"data: x\nevent: after\n\n", [("after", "x")]),
        (b": comment\n\n: another\n\n", []),
        (b"id: 7\nretry: 10\nunknown: y\ndata: x\n\n", [(None, "x")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [(None, "a"), (None, "b"), (None, "c")]),
        (b"\xef\xbb\xbfdata: x\n\n", [(None, "x")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", []),
        (b"data: x", [(None, "x")]),
        (b"data: x\n", [(None, "x")]),
        (b"\n\n\ndata: x\n\n\n\n", [(None, "x")]),
        (b"data: a: b\n\n", [(None, "a: b")]),
        (b"data : x\n\n", []),
        (b"data: \xe2\x80\xa8\xc2\x85\n\n", [(None, "\u2028\x85")]),
        (b"", []),
    ],
)
def test_sse_follows_the_standard(body, events):
    assert read(SSEParser(), [body]) == events
    assert read(SSEParser(), [bytes([b]) for b in body]) == events


_LINES = st.lists(
    st.sampled_from(
        [
            b"data: {}",
            b"data: \xe6\xb5\xb7\xf0\x9f\x8c\x8a",
            b"data:",
            b"data",
            b"event: e",
            b"event:",
            b": c",
            b"id: 1",
            b"",
            b"",
            b"junk",
            b"\xff",
        ]
    ),
    max_size=12,
)
_ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(
    lines=_LINES,
    ends=st.lists(_ENDS, min_size=12, max_size=12),
    bom=st.booleans(),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
@settings(max_examples=150, deadline=None)
def test_sse_cut_anywhere_equals_the_standards_steps(lines, ends, bom, cuts):
    body = (b"\xef\xbb\xbf" if bom else b"") + b"".join(a + b for a, b in zip(lines, ends, strict=False))
    assert read(SSEParser(), cut(body, cuts)) == by_the_letter(body)


def test_C016_a_comment_between_events_with_ids_is_no_event():
    body = b'id: 1\ndata: {"k": 1}\n\n: ping\n\n: ROUTER WORKING\n\nid: 2\ndata: {"k": 2}\n\ndata: [DONE]\n\n'
    assert read(SSEParser(), [body]) == [(None, '{"k": 1}'), (None, '{"k": 2}'), (None, "[DONE]")]


def test_C019_a_character_cut_in_two_is_whole():
    body = 'data: {"t": "\u6d77\U0001f30a"}\n\n'.encode()
    for at in range(len(body) + 1):
        assert read(SSEParser(), [body[:at], body[at:]]) == [(None, '{"t": "\u6d77\U0001f30a"}')]


def test_a_line_in_many_pieces_costs_time_linear_in_its_length():
    def seconds(size: int) -> float:
        piece = b"x" * 1000
        best = 9.0
        for _ in range(3):
            parser = SSEParser()
            begin = time.process_time()
            parser.feed(b"data: ")
            for _ in range(size // 1000):
                parser.feed(piece)
            ((_, data),) = parser.feed(b"\n\n")
            best = min(best, time.process_time() - begin)
            assert len(data) == size
        return best

    small, large = seconds(1_000_000), seconds(16_000_000)
    assert large < 16 * 5 * max(small, 0.0005)


@pytest.mark.parametrize(
    ("body", "documents"),
    [
        (b'{"a":1}\n{"b":2}\n', ['{"a":1}', '{"b":2}']),
        (b'{"a":1}\r\n\r\n{"b":2}', ['{"a":1}', '{"b":2}']),
        (b'\xef\xbb\xbf{"a":1}\n', ['{"a":1}']),
        (b"\n \n", []),
    ],
)
def test_ndjson(body, documents):
    for pieces in ([body], [bytes([b]) for b in body]):
        assert read(NDJSONParser(), pieces) == [(None, d) for d in documents]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.sampled_from(['"', "\\", "]", "}{", '\\"']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    items=st.lists(_JSON, max_size=5),
    cuts=st.lists(st.integers(0, 400), max_size=8),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_json_array_elements_cut_anywhere(items, cuts, indent, ascii_only):
    body = json.dumps(items, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    got = [json.loads(data) for _, data in read(JSONArrayParser(), cut(body, cuts))]
    assert got == json.loads(body)


@pytest.mark.parametrize(
    ("body", "documents"),
    [
        (b' {"a": [1]}\n\n{"b": "}"} ', ['{"a": [1]}', '{"b": "}"}']),
        (b'[{"a": 1}\r\n,\r\n{"b": 2}\r\n]\r\n', ['{"a": 1}', '{"b": 2}']),
        (b"[1,true , null]", ["1", "true", "null"]),
        (b"[[1],[2]]", ["[1]", "[2]"]),
        (b'{"a": "cut', ['{"a": "cut']),
        (b"[]", []),
        (b"]]}},", []),
    ],
)
def test_json_documents_one_after_another(body, documents):
    for pieces in ([body], [bytes([b]) for b in body]):
        assert read(JSONArrayParser(), pieces) == [(None, d) for d in documents]


@given(body=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=5))
@settings(max_examples=150, deadline=None)
def test_no_bytes_raise(body, cuts):
    for make in (SSEParser, NDJSONParser, JSONArrayParser):
        whole = read(make(), [body])
        assert read(make(), cut(body, cuts)) == whole
        for _, data in whole:
            parse_event(data)


def test_parse_event_gives_text_where_there_is_no_json():
    assert parse_event('{"a": 1}') == {"a": 1}
    assert parse_event(b"[DONE]") == "[DONE]"
    assert parse_event('{"a": ') == '{"a": '
    assert parse_event("[" * 100_000) == "[" * 100_000
    assert parse_event('"\\ud83d"') == "\ufffd"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", ""), (b" \r\n", ""), (b"\xef\xbb\xbf", ""), (b'\n{"a"', "json"), (b"[", "json"), (b"<!DOCTYPE", "html"),
        (b"data: {", "sse"), (b": hi", "sse"), (b"event: x", "sse"), (b"\xef\xbb\xbfid: 1", "sse"),
    ],
)  # fmt: skip
def test_sniff(head, kind):
    assert sniff(head) == kind


def test_recorded_streams_cut_into_every_small_size(shared):
    streams = [
        exchange["response"]["body"]
        for path in recordings(
            "openai-chat", "anthropic", "google", "openai-responses", "openai-compatible", "deepseek"
        )
        for exchange in load_recording(path)["exchanges"]
        if exchange["response"]["stream"] and exchange["response"]["body"].lstrip()[:1] not in "{[<"
    ]
    assert len(streams) > 50
    for body in streams:
        raw = body.encode()[:20_000]
        want = by_the_letter(raw)
        for size in (1, 7, 1000):
            got = read(SSEParser(), [raw[i : i + size] for i in range(0, len(raw), size)])
            # A bare error object is read beyond the letter.
            assert [frame for frame in got if not frame[1].startswith('{\n  "error"')] == want


def test_C104_the_halves_of_a_character_in_two_events_are_joined() -> None:
    reader = EventReader()
    got = [
        reader.read(data)
        for data in (
            '{"n": 1, "delta": {"text": "a\\ud83c"}}',
            '{"n": 2, "delta": {"text": "\\udf0a b"}}',
            '{"n": 3, "delta": {"text": "\\ud83c"}}',
            '{"n": 4, "delta": {"text": "c"}}',
            "[DONE]",
            '{"n": 5, "delta": {"text": "\\udf0a"}}',
        )
    ]
    texts = [event["delta"]["text"] if isinstance(event, dict) else event for event in got]
    assert texts == ["a", "\U0001f30a b", "", "\ufffdc", "[DONE]", "\ufffd"]


@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_bare_error_object_between_events_is_an_event(cut: int) -> None:
    body = b'data: {"a": 1}\n\n{\n  "error": {\n    "code": 499\n  }\n}\n'
    parser = SSEParser()
    frames = [frame for at in range(0, len(body), cut) for frame in parser.feed(body[at : at + cut])]
    frames += parser.close()
    assert [parse_event(data) for _, data in frames] == [{"a": 1}, {"error": {"code": 499}}]

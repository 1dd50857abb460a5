"""Recordings of providers without a wire dialect, of some agents only, and one inside another."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein_nb.agent import Agent
from rein_nb.ir import Citation, ErrorInfo, MediaPart, ProviderError, Request, ThinkingPart, ToolCall, Usage, redact
from rein_nb.ir import deltas as d
from rein_nb.ir.redaction import MASK
from rein_nb.llm import LLM
from rein_nb.providers import Config
from rein_nb.store import RecordingMiss, record, replay
from rein_nb.store.recording_deltas import DeltaWriter, read_delta
from rein_nb.store.recording_secrets import mask_events
from rein_nb.stream import Accumulator
from rein_nb.testing import serve_recording
from rein_nb.testing.scripted import ScriptedProvider
from tests.store.test_recording import chat, model


class Part(enum.Enum):
    """Part keys may be whatever can be hashed."""

    ANSWER = 1
    OTHER = 2


class Own:
    """A provider of somebody's own: yields deltas one by one and in lists."""

    name = "own"

    def __init__(self, *, fails: bool = False) -> None:
        self.asked = 0
        self.fails = fails

    async def stream(self, request: Request) -> AsyncIterator[d.Delta | Sequence[d.Delta]]:
        """Answer."""
        self.asked += 1
        yield d.Meta(response_id="r1", model="own-1", extra={"own": {"seed": 3}})
        yield [d.Signature("c2ln", None, False, ("think", 0)), d.Thinking("hm", ("think", 0))]
        yield d.Text("Hel", Part.ANSWER)
        yield [d.Text("lo", Part.ANSWER), d.Cite(Citation(source="https://example.org", title="T"), Part.ANSWER)]
        if self.fails:
            raise ProviderError(ErrorInfo.make("server_error", "it broke", provider=self.name))
        yield [d.Text("second choice", (1, "text")), d.PartEnd(Part.ANSWER)]
        yield d.Media(MediaPart(kind="image", mime_type="image/png", data=b"\x89PNG\x00\xff"), Part.OTHER)
        yield d.UsageReport(Usage(input_tokens=3, output_tokens=2, raw={"n": [1, None]}))
        yield [d.Warn("left something out"), d.Finish("stop", "eos"), d.End()]

    def llm(self) -> LLM:
        return LLM(Config(provider="own", model="own-1", max_retries=0), provider=self)


def test_a_provider_of_ones_own_plays_back_equal_and_is_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    with record(path):
        first = list(Own().llm().stream("hi"))
    provider = Own()
    with replay(path):
        second = list(provider.llm().stream("hi"))
        again = provider.llm().chat("hi")
    assert provider.asked == 0
    assert [(chunk.type, chunk.text) for chunk in second] == [(chunk.type, chunk.text) for chunk in first]
    one, two = first[-1].completion, second[-1].completion
    assert one is not None
    assert two is not None
    assert two.model_dump(exclude={"timing"}) == one.model_dump(exclude={"timing"})
    assert two.message.parts[1].citations[0].title == "T"  # type: ignore[union-attr]
    assert two.alternatives[0].text == "second choice"
    assert again.message == one.message


def test_its_fault_half_way_plays_back_with_what_had_come(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    with record(path), pytest.raises(ProviderError) as live:
        Own(fails=True).llm().chat("hi")
    with replay(path), pytest.raises(ProviderError) as played:
        Own().llm().chat("hi")
    assert str(played.value) == str(live.value)
    assert played.value.completion is not None
    assert played.value.completion.text == "Hello"


def test_a_scripted_agent_with_tools_plays_back(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    path = tmp_path / "own.jsonl"
    turn = [ThinkingPart(text="hm", signature="c2ln"), ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})]
    with record(path):
        first = Agent(ScriptedProvider.llm(turn, "3"), tools=[add]).run("1+2?")
    with replay(path):
        second = Agent(ScriptedProvider.llm(), tools=[add]).run("1+2?")
    assert second.messages == first.messages
    assert second.usage == first.usage


def test_whole_answers_of_such_a_provider_are_recorded_too(tmp_path: Path) -> None:
    class Whole(Own):
        async def complete(self, request: Request) -> Sequence[d.Delta]:
            """Answer in one piece."""
            self.asked += 1
            return [d.Text("whole"), d.Finish("stop"), d.End()]

    path = tmp_path / "own.jsonl"
    with record(path):
        assert Whole().llm().chat("hi").text == "whole"
    provider = Whole()
    with replay(path):
        assert provider.llm().chat("hi").text == "whole"
    assert provider.asked == 0


def test_a_miss_names_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    with record(path):
        Own().llm().chat("hi")
    with replay(path), pytest.raises(RecordingMiss, match=r'recorded "hi", asked "ho"'):
        Own().llm().chat("ho")


def test_what_was_broken_off_is_not_kept(tmp_path: Path) -> None:
    with record(tmp_path / "own.jsonl") as recording:
        for _ in ScriptedProvider.llm(["a", "b", "c"], delay_s=0.05).stream("hi"):
            break
    assert recording.exchanges == []


def test_secrets_are_masked_in_deltas_and_requests(tmp_path: Path) -> None:
    secret = "sk-" + "n0tReal" * 5
    path = tmp_path / "own.jsonl"
    with record(path):
        ScriptedProvider.llm(f"the key is {secret}").chat(f"what is {secret}?")
    assert secret not in path.read_text("utf-8")
    with replay(path):
        assert ScriptedProvider.llm().chat(f"what is {secret}?").text.startswith("the key is ")


# A key, and pieces into which it may fall.
KEY = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz"
SPLIT = [
    ["your key is sk-ant-api0", "3-abcdefghijk", "lmnopqrstuvwxyz ok"],
    ["your key is sk-ant-api03-abcdefghijkl", "mnopqrstuvwxyz", " ok"],
    ["your key", " is ", *KEY, " ok"],
    [*f"your key is {KEY} ok"],
]


@pytest.mark.parametrize("pieces", SPLIT)
@pytest.mark.parametrize("wire", [True, False])
def test_a_secret_in_several_pieces_is_masked_too(tmp_path: Path, pieces: list[str], wire: bool) -> None:
    path = tmp_path / "own.jsonl"
    with serve_recording([chat(*pieces)]) as server, record(path) as recording:
        llm = model(server.base_url + "/v1") if wire else ScriptedProvider.llm(pieces)
        assert "".join(chunk.text for chunk in llm.stream("hi")) == f"your key is {KEY} ok"
    assert recording.exchanges[0].events == replay(path).exchanges[0].events
    with replay(path):
        played = "".join(chunk.text for chunk in (model() if wire else ScriptedProvider.llm()).stream("hi"))
    assert played == "your key is [redacted] ok"
    if wire:
        told = [data["choices"] for _, _, data in recording.exchanges[0].events if isinstance(data, dict)]
        texts = [choices[0]["delta"].get("content") for choices in told if choices]
        assert [text for text in texts if text is not None] != []
        assert len([text for text in texts if text is not None]) == len(pieces), "no event is left out"


def test_a_secret_in_pieces_of_a_tools_arguments_is_masked(tmp_path: Path) -> None:
    class Calls(Own):
        async def stream(self, request: Request) -> AsyncIterator[d.Delta | Sequence[d.Delta]]:
            """Call two tools, their arguments told in turns."""
            yield [d.ToolOpen("a", "1", "look"), d.ToolOpen("b", "2", "look")]
            for one, two in (('{"at": "sk-ant-', '{"at": "Pa'), ("api03-abcdefgh", "ri"), ('ijklmnop"}', 's"}')):
                yield [d.ToolArgs(one, "a"), d.ToolArgs(two, "b")]
            yield [d.Finish("tool_calls"), d.End()]

    path = tmp_path / "own.jsonl"
    with record(path):
        Calls().llm().chat("hi")
    with replay(path):
        calls = Calls().llm().chat("hi").message.tool_calls
    assert [call.arguments for call in calls] == [{"at": "[redacted]"}, {"at": "Paris"}]


WORDS = st.text('abz-_ .=:"', max_size=6) | st.sampled_from([KEY, KEY[:9], KEY[9:], MASK, "password=", "Bearer "])


@given(st.lists(WORDS, max_size=8))
def test_pieces_are_masked_as_the_text_that_they_are(pieces: list[str]) -> None:
    """Nothing more is changed: where there is no secret, or each is within its piece, each piece is masked alone."""
    events = [[DeltaWriter().write(d.Text(text, ("t", 0))), {"type": "End"}] for text in pieces]
    wire = [
        {"type": "t", "n": n, "choices": [{"index": 0, "delta": {"content": text}}]} for n, text in enumerate(pieces)
    ]
    given = json.dumps([events, wire])
    masked = [data[0]["text"] for data in mask_events(events, deltas=True)]
    assert masked == [data["choices"][0]["delta"]["content"] for data in mask_events(wire, deltas=False)]
    assert json.dumps([events, wire]) == given
    alone, whole = [redact(text) for text in pieces], "".join(pieces)
    if redact(whole) in (whole, "".join(alone)):
        assert masked == alone
    elif alone == pieces:
        assert "".join(masked) == redact(whole)


def test_ids_and_sealed_text_are_no_pieces_of_a_text() -> None:
    events = [{"id": f"fw_{n}", "item_id": f"sk-{n}", "signature": "sk-abc", "delta": {"index": n}} for n in range(9)]
    assert mask_events(events, deltas=False) == events


# -- deltas as JSON -------------------------------------------------------------------------------

KEYS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
TEXT = st.text(max_size=8)
OBJECT = st.dictionaries(TEXT, st.none() | st.integers(-9, 9) | TEXT | st.lists(TEXT, max_size=2), max_size=2)
EXTRA = st.dictionaries(TEXT, OBJECT, max_size=2)
DELTAS = {
    d.Text: st.builds(d.Text, TEXT, KEYS),
    d.Thinking: st.builds(d.Thinking, TEXT, KEYS),
    d.Signature: st.builds(d.Signature, st.none() | TEXT, st.none() | TEXT, st.booleans(), KEYS),
    d.Refusal: st.builds(d.Refusal, TEXT, KEYS),
    d.ToolOpen: st.builds(d.ToolOpen, KEYS, st.none() | TEXT, st.none() | TEXT),
    d.ToolArgs: st.builds(d.ToolArgs, TEXT, KEYS),
    d.ToolArgsObject: st.builds(d.ToolArgsObject, OBJECT, KEYS),
    d.Cite: st.builds(d.Cite, st.builds(Citation, source=TEXT, title=TEXT, extra=EXTRA), KEYS),
    d.Media: st.builds(
        d.Media, st.builds(MediaPart, kind=st.just("image"), data=st.binary(min_size=1, max_size=9)), KEYS
    ),
    d.ServerTool: st.builds(d.ServerTool, KEYS, TEXT, TEXT, OBJECT, st.lists(TEXT, max_size=2), OBJECT),
    d.Settle: st.builds(d.Settle, TEXT, KEYS),
    d.PartExtra: st.builds(d.PartExtra, EXTRA, KEYS, st.sampled_from(["text", "thinking", "tool_call"])),
    d.PartEnd: st.builds(d.PartEnd, KEYS),
    d.Void: st.builds(d.Void, KEYS),
    d.UsageReport: st.builds(d.UsageReport, st.builds(Usage, input_tokens=st.none() | st.integers(0, 9), raw=OBJECT)),
    d.Finish: st.builds(d.Finish, st.sampled_from(["stop", "length", "tool_calls"]), st.none() | TEXT),
    d.End: st.builds(d.End),
    d.Fault: st.builds(d.Fault, st.builds(ErrorInfo.make, st.sampled_from(["overloaded", "rate_limited"]), TEXT)),
    d.Meta: st.builds(d.Meta, st.none() | TEXT, st.none() | TEXT, EXTRA, EXTRA),
    d.Warn: st.builds(d.Warn, TEXT),
    d.Elapsed: st.builds(d.Elapsed, st.floats(0, 9), st.none() | st.floats(0, 9), st.floats(0, 9), st.booleans()),
}


@given(st.one_of(*DELTAS.values()))
def test_every_delta_survives_json_exactly(delta: d.Delta) -> None:
    text = json.dumps(DeltaWriter().write(delta))
    back = read_delta(json.loads(text))
    assert back == delta
    assert repr(back) == repr(delta), "types of keys included"


def test_the_property_above_knows_every_delta() -> None:
    assert set(DELTAS) == set(get_args(d.Delta))


def test_a_key_that_json_has_not_stays_one_part_and_apart_from_others() -> None:
    writer = DeltaWriter()
    acc = Accumulator()
    for delta in [
        d.Text("a", Part.ANSWER),
        d.Text("x", Part.OTHER),
        d.Text("b", Part.ANSWER),
        d.Text("y", ("key", 0, 1)),
    ]:
        acc.feed(read_delta(json.loads(json.dumps(writer.write(delta)))))
    assert [part.text for part in acc.message.parts] == ["ab", "x", "y"]  # type: ignore[union-attr]


def test_what_is_no_delta_is_named() -> None:
    @dataclasses.dataclass
    class Text:
        text: str

    with pytest.raises(TypeError, match="not a delta: Text"):
        DeltaWriter().write(Text("x"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown delta 'Nothing'"):
        read_delta({"type": "Nothing"})
    with pytest.raises(ValueError, match="not a Text"):
        read_delta({"type": "Text", "words": "x"})


# -- whose calls ----------------------------------------------------------------------------------


def test_only_one_agents_calls_though_two_share_a_model(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    llm = ScriptedProvider.llm("mine", "yours", "nobody's")
    mine, yours = Agent(llm, label="mine"), Agent(llm, label="yours")
    with record(path, only=mine) as recording:
        mine.run("hi"), yours.run("hi"), llm.chat("hi")
    assert len(recording.exchanges) == 1
    llm = ScriptedProvider.llm("live", "live")
    mine, yours = Agent(llm), Agent(llm)
    with replay(path, only=mine) as playing:
        assert mine.run("hi").text == "mine"
        assert mine.fork(messages=[]).run("hi").text == "mine", "a fork is the same agent"
        live = yours.run("hi")
        assert live.text == "live"
        assert llm.chat("hi").text == "live"
    assert mine.results[0].started_at == playing.created_at
    assert (live.started_at or 0) > playing.created_at, "what is not played back has the machine's time"


def test_only_several_and_agents_with_their_fallbacks(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    def made(*script: Any) -> tuple[Agent, LLM, LLM]:
        spare = ScriptedProvider.llm(*script[1:2], model="spare")
        agent = Agent(ScriptedProvider.llm(fault="server_error"), fallback=[spare])
        return agent, ScriptedProvider.llm(*script[2:3], model="b"), ScriptedProvider.llm(*script[3:], model="c")

    agent, b, c = made("", "spare", "B", "C", "C2")
    with record(path, only=[agent, b]) as recording:
        assert (agent.run("hi").text, b.chat("hi").text, c.chat("hi").text) == ("spare", "B", "C")
    assert len(recording.exchanges) == 3  # the agent's failed call is one
    agent, b, c = made("", "", "", "live")
    with replay(path, only=(agent, b)):
        assert (agent.run("hi").text, b.chat("hi").text, c.chat("hi").text) == ("spare", "B", "live")


def test_only_takes_models_and_agents(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="only= takes an LLM or an Agent, or a list of these, not str"):
        record(tmp_path / "c.jsonl", only="anthropic/claude")


def test_two_recordings_at_once_each_of_its_own_agent(tmp_path: Path) -> None:
    a, b = Agent(ScriptedProvider.llm("A")), Agent(ScriptedProvider.llm("B"))
    with record(tmp_path / "a.jsonl", only=a) as first, record(tmp_path / "b.jsonl", only=b) as second:
        a.run("hi"), b.run("hi")
    assert len(first.exchanges) == len(second.exchanges) == 1
    a, b = Agent(ScriptedProvider.llm()), Agent(ScriptedProvider.llm())
    with replay(tmp_path / "a.jsonl", only=a), replay(tmp_path / "b.jsonl", only=b):
        assert (a.run("hi").text, b.run("hi").text) == ("A", "B")
    assert a.results[0].started_at == first.created_at
    assert b.results[0].started_at == second.created_at


@pytest.mark.parametrize("wire", [True, False])
def test_a_recording_of_a_playback_is_that_recording_again_with_its_times(tmp_path: Path, wire: bool) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    with serve_recording([chat("Hel", "lo")]) as server, record(one):
        llm = model(server.base_url + "/v1") if wire else ScriptedProvider.llm(["Hel", "lo"], delay_s=0.01)
        list(llm.stream("hi"))
    with replay(one), record(two):
        assert "".join(chunk.text for chunk in (model() if wire else ScriptedProvider.llm()).stream("hi")) == "Hello"
    first, second = (json.loads(path.read_text("utf-8").splitlines()[1]) for path in (one, two))
    assert second["events"] == first["events"]
    assert second["request"] == first["request"]
    assert first["events"][-1][0] <= second["seconds"] <= first["seconds"]


@pytest.mark.parametrize("wire", [True, False])
def test_what_a_playback_does_not_hold_reaches_the_recording_around_it(tmp_path: Path, wire: bool) -> None:
    outer, inner = tmp_path / "outer.jsonl", tmp_path / "inner.jsonl"
    with serve_recording([chat("x")]) as server:
        llm = model(server.base_url + "/v1") if wire else ScriptedProvider.llm("x")
        with record(outer) as around, replay(inner, mode="auto") as within:
            assert "".join(chunk.text for chunk in llm.stream("hi")) == "x"
            assert "".join(chunk.text for chunk in llm.stream("hi")) == "x", "found now: nobody else is asked"
    assert len(around.exchanges) == len(within.exchanges) == 1
    assert around.exchanges[0].request == within.exchanges[0].request
    assert [event[1:] for event in around.exchanges[0].events] == [event[1:] for event in within.exchanges[0].events]


def test_an_open_recording_is_not_opened_again(tmp_path: Path) -> None:
    with record(tmp_path / "c.jsonl") as recording, pytest.raises(RuntimeError, match="is open already"):
        recording.start()
    recording.stop()


def test_opened_again_a_playback_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with record(path):
        llm = ScriptedProvider.llm("one", "two")
        llm.chat("hi"), llm.chat("hi")
    playing = replay(path)
    for _ in range(2):
        with playing:
            llm = ScriptedProvider.llm()
            assert [llm.chat("hi").text, llm.chat("hi").text] == ["one", "two"]

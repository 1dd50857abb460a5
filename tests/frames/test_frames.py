"""Frames: what one row is, and that a column's dtype never depends on what was recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from rein_nb.agent import Agent
from rein_nb.agent.events import Event
from rein_nb.frames import KINDS, Column, columns, frame, messages_from_frame, parse_json, timestamps, to_frame
from rein_nb.ir import (
    MediaPart,
    Message,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    Usage,
)
from rein_nb.store import Store
from rein_nb.store.events import event_of
from rein_nb.testing.scripted import ScriptedProvider
from rein_nb.tools import ToolContext
from tests.frames.build import completion, event_log, failed_run, tool_run

SOURCES: dict[str, list[Any]] = {
    "empty": [],
    "one": [tool_run(), *event_log()],
    "failed": [failed_run()],
    "mixed": [
        tool_run(),
        failed_run(),
        completion(TextPart(text="x")),
        Message(role="user", content="hi"),
        *event_log("r9"),
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_C124_dtypes_are_equal_for_empty_one_and_mixed_frames(kind: str) -> None:
    made = {name: frame(kind, sources) for name, sources in SOURCES.items()}
    assert len(made["empty"]) == 0
    assert len(made["mixed"]) > 0
    expected = made["empty"].dtypes
    for df in made.values():
        assert list(df.columns) == [c.name for c in columns(kind)]
        pd.testing.assert_series_equal(df.dtypes, expected)
        assert "object" not in set(map(str, df.dtypes))


@pytest.mark.parametrize("kind", KINDS)
def test_C124_concat_of_empty_and_filled_keeps_dtypes(kind: str) -> None:
    empty, filled = frame(kind, []), frame(kind, SOURCES["mixed"])
    pd.testing.assert_series_equal(pd.concat([empty, filled]).dtypes, empty.dtypes)
    pd.testing.assert_series_equal(pd.concat([filled, filled]).dtypes, empty.dtypes)


def test_C124_counts_are_exact_nullable_integers() -> None:
    counts = [(1200, 7), (None, None), (9007199254740993, 1)]
    usage = frame("usage", [completion(usage=Usage(input_tokens=i, output_tokens=o)) for i, o in counts])
    assert usage["input_tokens"].dtype == "Int64"
    assert usage["input_tokens"].tolist() == [1200, pd.NA, 9007199254740993]
    assert frame("usage", [])["input_tokens"].sum() == 0


def test_C123_timestamps_of_any_form_are_utc_instants() -> None:
    given = ["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-29T01:45:00Z", None, 1774748700.25]
    column = timestamps(given)
    assert str(column.dtype) == "datetime64[us, UTC]"
    assert column.isna().tolist() == [False, False, False, True, False]
    assert column.dropna().sort_values().index.tolist() == [0, 1, 2, 4]
    assert column[4] == pd.Timestamp("2026-03-29T01:45:00.250000Z")
    assert str(pd.concat([column, timestamps([])]).dtype) == "datetime64[us, UTC]"
    assert str(frame("runs", [])["started_at"].dtype) == "datetime64[us, UTC]"


@pytest.mark.parametrize("kind", KINDS)
def test_C121_every_frame_goes_to_parquet_csv_and_json_lines(kind: str, tmp_path: Path) -> None:
    df = frame(kind, SOURCES["mixed"])
    df.to_parquet(tmp_path / "f.parquet")
    assert len(pd.read_parquet(tmp_path / "f.parquet")) == len(df)
    assert len(pd.read_csv(StringIO(df.to_csv(index=False)))) == len(df)
    lines = df.to_json(orient="records", lines=True, date_format="iso")
    assert len([json.loads(line) for line in str(lines).splitlines()]) == len(df)


def test_C121_structured_values_are_json_text_that_reads_back() -> None:
    messages = [
        Message(role="user", content="hi"),
        Message(role="assistant", parts=[ToolCall(id="c1", name="f", arguments={"a": 1})]),
        Message(role="user", parts=[ToolResult(tool_call_id="c1", details=[1, "x"])]),
        Message(role="assistant", parts=[ToolCall(id="c2", name="f", arguments={"a": "s", "b": [{}]})]),
        Message(role="user", parts=[ToolResult(tool_call_id="c2", details={"k": None})]),
        Message(role="assistant", parts=[ToolCall(id="c3", name="f", arguments={})]),
        Message(role="user", parts=[ToolResult(tool_call_id="c3", details=3.5)]),
    ]
    calls = frame("tool_calls", messages)
    assert [json.loads(text) for text in calls["arguments"]] == [{"a": 1}, {"a": "s", "b": [{}]}, {}]
    assert parse_json(calls["details"]).tolist() == [[1, "x"], {"k": None}, 3.5]
    assert calls["status"].tolist() == ["ok", "ok", "ok"]


def test_rows_are_one_thing_each_and_the_keys_join() -> None:
    result = tool_run()
    runs, turns, messages, parts, calls, usage = (
        frame(kind, result) for kind in ("runs", "turns", "messages", "parts", "tool_calls", "usage")
    )
    assert [len(df) for df in (runs, turns, messages, parts, calls, usage)] == [1, 2, 5, 7, 2, 2]
    assert messages["turn"].tolist() == [pd.NA, 1, 1, 1, 2]
    assert turns["message_index"].tolist() == [1, 4]
    assert calls[["message_index", "part_index"]].to_numpy().tolist() == [[1, 1], [1, 2]]
    joined = calls.merge(parts, on=["run_id", "message_index", "part_index"])
    assert (joined["call_id_x"] == joined["call_id_y"]).all()
    assert len(turns.merge(messages, on=["run_id", "message_index"])) == 2
    assert calls["status"].tolist() == ["ok", "denied"]
    assert calls["duration_s"].tolist() == [0.2, pd.NA]


def test_cost_and_tokens_of_runs_reconcile_with_usage_rows() -> None:
    results = [tool_run("a"), tool_run("b")]
    usage, runs = frame("usage", results), frame("runs", results)
    sums = usage.groupby("run_id")[["cost_usd", "input_tokens", "output_tokens"]].sum()
    pd.testing.assert_frame_equal(
        sums, runs.set_index("run_id")[["cost_usd", "input_tokens", "output_tokens"]], check_names=False
    )
    assert json.loads(usage["raw"][0]) == {"prompt_tokens": 10, "completion_tokens": 4}


def test_a_failed_run_is_a_row_with_its_error_and_nothing_invented() -> None:
    row = frame("runs", [failed_run()]).iloc[0]
    assert (row["error_kind"], row["error"], row["error_status"]) == ("rate_limited", "slow down", 429)
    assert row["stop_reason"] == "error"
    assert not row["ok"]
    assert row["retries"] == 2
    assert all(
        pd.isna(row[name])
        for name in ("input_tokens", "cost_usd", "time_to_first_token_s", "output_tokens_per_s", "started_at")
    )
    assert row["text"] == ""


def test_speed_counts_streamed_tokens_between_first_token_and_end() -> None:
    turns = frame("turns", [tool_run()])
    # The first turn shows its thinking, so all of its 4 tokens were streamed in the second after the first token.
    assert turns["output_tokens_per_s"].tolist() == pytest.approx([4.0, 4.0])
    hidden = completion(TextPart(text="x"), usage=Usage(output_tokens=10, reasoning_tokens=8))
    assert frame("turns", hidden)["output_tokens_per_s"][0] == pytest.approx(2.0)
    whole = completion(TextPart(text="x")).model_copy(
        update={"timing": completion().timing.model_copy(update={"inter_token_p50_s": None})}
    )
    assert pd.isna(frame("turns", whole)["output_tokens_per_s"][0])


def test_an_agents_runs_do_not_repeat_their_common_history() -> None:
    first = tool_run("a")
    reply = completion(TextPart(text="again"))
    history = [*first.messages, Message(role="user", content="more"), reply.message]
    second = first.model_copy(update={"run_id": "b", "messages": history, "new_messages_from": 5, "turns": []})
    agent = SimpleNamespace(results=[first, second], messages=history)
    messages = frame("messages", agent)
    assert len(messages) == 7
    assert messages["run_id"].tolist() == ["a"] * 5 + ["b"] * 2
    assert messages["message_index"].tolist() == list(range(7))
    assert frame("runs", agent)["prompt"].tolist() == ["go", "more"]


def test_repeated_call_ids_keep_their_own_results() -> None:
    messages = []
    for n in range(2):
        messages += [
            Message(role="assistant", parts=[ToolCall(id="same", name="f", arguments={"n": n})]),
            Message(role="tool", tool_call_id="same", content=str(n)),
        ]
    assert frame("tool_calls", messages)["result"].tolist() == ["0", "1"]


def test_a_call_without_result_is_a_row_without_status() -> None:
    cut = completion(ToolCall(id="c9", name="f", arguments='{"a": '), finish_reason="length")
    row = frame("tool_calls", cut).iloc[0]
    assert pd.isna(row["status"])
    assert row["raw_arguments"] == '{"a": '
    assert "not complete JSON" in row["arguments_error"]


def test_events_tell_deltas_tools_and_the_end() -> None:
    events = frame("events", event_log(pieces=3))
    text = events[events["stream_type"] == "text_delta"]
    assert "".join(text["text"]) == "piece 0 piece 1 piece 2 "
    assert text["time"].is_monotonic_increasing
    assert events["seq"].tolist() == list(range(len(events)))
    ended = events[events["type"] == "tool_execution_end"]
    assert ended["status"].tolist() == ["ok", "denied"]
    assert ended["call_id"].tolist() == ["c1", "c2"]
    assert events["label"].unique().tolist() == ["m-1"]
    assert frame("runs", event_log())["run_id"].tolist() == ["r1"]


EVERY_PART = [
    Message(role="system", content="be brief"),
    Message(role="user", content=["look", MediaPart(kind="image", mime_type="image/png", data=b"\x00\xff")]),
    Message(
        role="assistant",
        origin={"provider": "anthropic", "dialect": "anthropic", "model": "m", "response_id": "r"},
        parts=[
            ThinkingPart(text="", signature="sig", redacted=True, extra={"anthropic": {"k": None}}),
            TextPart(text="NA", citations=[{"source": "doc", "start": 0, "end": 2}]),
            ServerToolPart(id="s", name="web_search", input={"q": "x"}, output=None, payload={"type": "t"}),
            RefusalPart(text="no"),
            ToolCall(id="c1", name="f", arguments={"x": None, "deep": [{"y": 1.5}]}),
            ToolCall(id="c2", name="f", arguments='{"a": 1'),
        ],
        extra={"openai": {"phase": "final"}},
    ),
    Message(
        role="tool",
        parts=[ToolResult(tool_call_id="c1", content=["r", MediaPart(kind="image", url="x://y")], details={"n": None})],
    ),
]


@pytest.mark.parametrize("trip", ["direct", "parquet", "csv", "json"])
def test_messages_from_frame_gives_the_messages_back_exactly(trip: str, tmp_path: Path) -> None:
    df = frame("messages", EVERY_PART).sample(frac=1, random_state=3)
    if trip == "parquet":
        df.to_parquet(tmp_path / "m.parquet")
        df = pd.read_parquet(tmp_path / "m.parquet")
    elif trip == "csv":
        df = pd.read_csv(StringIO(df.to_csv(index=False)))
    elif trip == "json":
        df = pd.read_json(StringIO(df.to_json(orient="records", lines=True)), lines=True)
    assert messages_from_frame(df) == EVERY_PART


def test_messages_from_frame_reads_plain_role_and_text() -> None:
    df = pd.DataFrame({"role": ["user", "assistant"], "text": ["hi", None]})
    assert messages_from_frame(df) == [Message(role="user", content="hi"), Message(role="assistant")]


def test_messages_from_frame_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="no column 'role'"):
        messages_from_frame(pd.DataFrame({"x": [1]}))
    two = frame("messages", [tool_run("a"), tool_run("b")])
    with pytest.raises(ValueError, match="holds 2 runs; say which"):
        messages_from_frame(two)
    with pytest.raises(ValueError, match="no run 'c'; it holds: a, b"):
        messages_from_frame(two, run_id="c")
    assert messages_from_frame(two, run_id="b") == tool_run("b").messages
    with pytest.raises(ValueError, match="row 0 is no message"):
        messages_from_frame(pd.DataFrame({"role": ["robot"], "text": ["x"]}))


def test_C104_unpaired_surrogates_are_replaced_so_that_every_format_takes_them(tmp_path: Path) -> None:
    bad = [
        Message(role="user", content="temp \udcb0C \ud83d end"),
        Message(role="assistant", parts=[ToolCall(id="c1", name="w", arguments={"s": "\ud83d\ude00 ok \udc00"})]),
    ]
    for kind in ("messages", "parts", "tool_calls"):
        frame(kind, bad).to_parquet(tmp_path / f"{kind}.parquet")
    assert frame("messages", bad)["text"][0] == "temp \ufffdC \ufffd end"
    assert json.loads(frame("tool_calls", bad)["arguments"][0]) == {"s": "\U0001f600 ok \ufffd"}


def test_own_columns_go_beside_the_given_ones() -> None:
    wanted = [*columns("runs")[:1], Column("words", "Int64", lambda row: len(row.result.text.split()))]
    df = frame("runs", [tool_run()], columns=wanted)
    assert df.to_dict("records") == [{"run_id": "r1", "words": 1}]
    assert len(columns("runs")) > 20


def test_wrong_kind_and_wrong_source_are_named() -> None:
    with pytest.raises(ValueError, match="no frame is called 'rnus'; there are: runs, turns"):
        frame("rnus", [])
    with pytest.raises(TypeError, match="cannot make a frame of int"):
        frame("runs", [3])
    assert len(to_frame(tool_run())) == 2


def test_numbers_that_are_not_finite_and_foreign_values_become_text_that_reads_back() -> None:
    result = ToolResult(
        tool_call_id="c", details={"inf": float("inf"), "when": pd.Timestamp("2026-01-01"), "set": {2, 1}}
    )
    details = json.loads(frame("parts", [Message(role="tool", parts=[result])])["details"][0])
    assert details["set"] == [1, 2]
    assert details["when"].startswith("2026-01-01")


def test_a_hundred_thousand_events_cost_ten_times_what_ten_thousand_cost() -> None:
    def seconds(n: int) -> float:
        log = event_log(pieces=n)
        start = time.process_time()
        assert len(frame("events", log)) == n + 8
        return time.process_time() - start

    seconds(100)
    # Each the least of three: a busy machine can only make it longer.
    small, large = (min(seconds(n) for _ in range(3)) for n in (10_000, 100_000))
    assert large <= 20 * small


def test_importing_the_room_loads_no_pandas() -> None:
    code = "import sys, rein_nb.frames; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_kept_events_of_a_session_and_a_store_give_the_frame_that_the_run_gave(tmp_path: Path) -> None:
    def look(city: str, ctx: ToolContext) -> str:
        """Look."""
        ctx.progress("half", fraction=0.5, data={"n": 1})
        return f"18 degrees in {city}"

    call = ToolCall(id="c1", name="look", arguments={"city": "Paris"})
    llm = ScriptedProvider.llm(
        [ThinkingPart(text="hm", signature="c2ln"), "I look. ", call],
        "Mild.",
        fault="overloaded",
        fault_times=1,
        max_retries=1,
    )
    heard: list[Event] = []
    with Store(tmp_path / "s.db") as store:
        session = store.create()
        agent = Agent(llm, tools=[look], on_event=[heard.append], label="guide")
        session.attach(agent, keep_events=True)
        agent.run("Where?")
        live = frame("events", heard)
        kept = frame("events", session)
        assert len(kept) > 10
        ended = kept["type"] == "agent_end"
        assert ended.sum() == 1
        pd.testing.assert_frame_equal(kept[~ended], live[live["type"] != "agent_end"])
        assert kept.loc[ended, "seq"].tolist() == live.loc[live["type"] == "agent_end", "seq"].tolist()
        assert len(frame("events", store)) == len(kept)
        assert len(frame("runs", session)) == 1, "the last event tells no run of its own"
        with pytest.raises(LookupError, match="has no partial message"):
            _ = next(event for event in session.events if event.type == "message_update").event.partial  # type: ignore[attr-defined]


def test_a_session_without_kept_events_has_an_empty_events_frame(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db") as store:
        session = store.create()
        Agent(ScriptedProvider.llm("x"), session=session).run("hi")
        assert len(frame("events", session)) == 0
        assert frame("events", session).dtypes.equals(frame("events", []).dtypes)


def test_an_event_of_an_unknown_type_is_passed_over_and_a_broken_one_is_named() -> None:
    assert event_of({"type": "of_the_future", "run_id": "r"}) is None
    assert event_of({"type": "message_update", "event": {"type": "of_the_future"}}) is None
    with pytest.raises(ValueError, match="not a tool_execution_start"):
        event_of({"type": "tool_execution_start", "run_id": "r"})

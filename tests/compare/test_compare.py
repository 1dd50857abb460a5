"""compare(): every column at once, each alone with its faults, everything kept."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rein_nb.compare as room
from rein_nb.agent import Agent
from rein_nb.agent.events import AgentEnd
from rein_nb.compare import Comparison, Stops, acompare, compare, set_factory
from rein_nb.ir import MediaPart, Message, TextPart, ToolCall, Usage
from rein_nb.llm import LLM
from rein_nb.testing.scripted import ScriptedProvider
from tests.support import REPO


def llm(*turns: Any, **kwargs: Any) -> Any:
    return ScriptedProvider.llm(*(turns or (["an ", "answer"],)), repeat=True, **kwargs)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_grid_of_prompts_models_and_repeats_is_complete_and_labelled() -> None:
    made = compare(["one", "two"], {"a": llm(["A"]), "b": llm(["B"])}, repeats=2)
    assert [(c.label, c.prompt_index, c.repeat) for c in made.cells] == [
        ("a", 0, 0), ("b", 0, 0), ("a", 0, 1), ("b", 0, 1), ("a", 1, 0), ("b", 1, 0), ("a", 1, 1), ("b", 1, 1),
    ]  # fmt: skip
    assert len(made.results) == 8
    assert made.runs["label"].tolist() == ["a", "b"] * 4
    assert made.runs["prompt_index"].tolist() == [0] * 4 + [1] * 4
    assert made.runs["repeat"].tolist() == [0, 0, 1, 1] * 2
    assert made.runs["prompt"].tolist() == ["one"] * 4 + ["two"] * 4
    assert set(made.events["run_id"]) == set(made.runs["run_id"])
    assert made.cell("a").events[-1].type == "agent_end"
    for kind in ("turns", "messages", "parts", "usage"):
        assert set(made.to_frame(kind)["run_id"]) == set(made.runs["run_id"])


def test_columns_stream_at_the_same_time() -> None:
    pieces = ["x "] * 10
    alone = time.perf_counter()
    compare("go", {"a": llm(pieces, delay_s=0.03)})
    alone = time.perf_counter() - alone
    together = time.perf_counter()
    made = compare("go", {str(n): llm(pieces, delay_s=0.03) for n in range(6)})
    together = time.perf_counter() - together
    assert together < 2 * alone
    times = made.events[made.events["stream_type"] == "text_delta"].groupby("label")["time"].agg(["min", "max"])
    assert times["min"].max() < times["max"].min()


@pytest.mark.parametrize("fault", ["authentication", "rate_limited", "stream_cut", "mid_stream", "malformed_response"])
def test_one_columns_failure_is_a_row_and_stops_no_other(fault: Any) -> None:
    made = compare(
        "go", {"good": llm(["fine"]), "bad": llm(["lost ", "words"], fault=fault), "also good": llm(["fine too"])}
    )
    runs = made.runs.set_index("label")
    assert runs.loc["good", "text"] == "fine"
    assert runs.loc["also good", "text"] == "fine too"
    assert runs["ok"].tolist() == [True, False, True]
    assert runs["error_kind"].isna().tolist() == [True, False, True]
    assert f"[{runs.loc['bad', 'error_kind']}" in made.table()["bad"].iloc[0]
    assert "1 failed" in repr(made)


def test_what_a_column_raises_is_a_row_of_it_too() -> None:
    class Exploding(Agent):
        def events(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("boom")

    made = compare("go", {"good": llm(["fine"]), "bad": Exploding(llm(["x"]))})
    bad = made.result("bad")
    assert bad.error is not None
    assert bad.error.message == "RuntimeError: boom"
    assert made.result("good").text == "fine"
    assert len(made.messages[made.messages["label"] == "bad"]) == 1


def test_a_hanging_column_is_stopped_alone_and_keeps_what_it_said() -> None:
    stops: list[Stops] = []

    class Recorder:
        def feed(self, label: str, prompt_index: int, repeat: int, event: Any) -> None:
            if label == "quick" and isinstance(event, AgentEnd):
                threading.Timer(0.1, stops[0].columns["hangs"]).start()

        def finish(self, comparison: Comparison) -> None: ...

    def factory(labels: Any, prompts: Any, given: Stops) -> Recorder:
        stops.append(given)
        return Recorder()

    before = set_factory(factory)
    try:
        made = compare("go", {"hangs": llm(["begun ", "never"], fault="hang"), "quick": llm(["done"])})
    finally:
        set_factory(before)
    assert made.result("hangs").stop_reason == "cancelled"
    assert made.result("quick").text == "done"


def test_one_stop_ends_every_column_also_the_cells_that_wait() -> None:
    given: list[Stops] = []

    def factory(labels: Any, prompts: Any, stops: Stops) -> None:
        given.append(stops)
        threading.Timer(0.2, stops.all).start()

    before = set_factory(factory)
    try:
        start = time.perf_counter()
        made = compare(["p"] * 5, {"a": llm(["x "] * 100, delay_s=0.05), "b": llm(["x "], fault="hang")}, concurrency=1)
    finally:
        set_factory(before)
    assert time.perf_counter() - start < 3
    assert {result.stop_reason for result in made.results} == {"cancelled"}
    assert len(made.results) == 10
    assert made.result("a").text.startswith("x ")


def test_display_gets_every_event_in_order_and_the_end_once() -> None:
    seen: list[tuple[str, int, int, str]] = []
    finished: list[Comparison] = []

    class Recorder:
        def feed(self, label: str, prompt_index: int, repeat: int, event: Any) -> None:
            seen.append((label, prompt_index, repeat, event.type))

        def finish(self, comparison: Comparison) -> None:
            finished.append(comparison)

    before = set_factory(
        lambda labels, prompts, stops: Recorder() if (labels, prompts) == (["a", "b"], ["one", "two"]) else None
    )
    try:
        made = compare(["one", "two"], {"a": llm(), "b": llm()})
        compare(["one", "two"], {"a": llm(), "b": llm()}, show=False)
    finally:
        set_factory(before)
    assert finished == [made]
    for cell in made.cells:
        types = [t for label, n, k, t in seen if (label, n, k) == (cell.label, cell.prompt_index, cell.repeat)]
        assert types == [event.type for event in cell.events]
        assert types[-1] == "agent_end"


def test_a_display_that_fails_is_dropped_and_the_runs_go_on() -> None:
    class Broken:
        def feed(self, *args: Any) -> None:
            raise ValueError("no screen")

        def finish(self, comparison: Comparison) -> None: ...

    before = set_factory(lambda *args: Broken())
    try:
        with pytest.warns(RuntimeWarning, match="display failed and was switched off: ValueError: no screen"):
            made = compare("go", {"a": llm(["fine"])})
    finally:
        set_factory(before)
    assert made.result("a").text == "fine"


def test_tools_options_system_and_output_type_reach_every_column() -> None:
    call = ToolCall(id="c1", name="add", arguments={"a": 2, "b": 3})
    models = {name: llm([call], ["five"]) for name in ("a", "b")}
    made = compare("2+3?", models, tools=iter([add]), system="count", options={"temperature": 0}, tool_choice="auto")
    assert made.tool_calls["result"].tolist() == ["5", "5"]
    assert made.tool_calls["label"].tolist() == ["a", "b"]
    assert made.runs["turns"].tolist() == [2, 2]
    for model in models.values():
        request = model.backend.requests[0]
        assert request.options.temperature == 0
        assert request.messages[0].role == "system"
    typed = compare("n?", {"a": llm(['{"value": 3}'])}, output_type=dict[str, int])
    assert len(typed.results) == 1


def test_an_agent_is_forked_for_each_cell_and_stays_as_it_was() -> None:
    agent = Agent(
        llm(["again"]),
        system="s",
        messages=[Message(role="user", content="old"), Message(role="assistant", content="past")],
    )
    made = compare(["p", "q"], [agent], repeats=2)
    assert len(agent.messages) == 2
    assert [len(result.messages) for result in made.results] == [4] * 4
    assert made.runs["prompt"].tolist() == ["p", "p", "q", "q"]


def test_equal_labels_are_numbered_and_prompts_may_be_messages_and_media() -> None:
    image = MediaPart(kind="image", mime_type="image/png", data=b"x")
    prompts = ["text", Message(role="user", content="message"), [TextPart(text="look"), image]]
    made = compare(prompts, [llm(), llm()])
    assert made.labels == ["scripted/scripted", "scripted/scripted (2)"]
    assert made.prompts == ["text", "message", "look"]
    assert made.parts[made.parts["type"] == "media"].shape[0] == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"prompts": [], "models": [llm()]}, ValueError, "at least one prompt"),
        ({"prompts": "p", "models": []}, ValueError, "at least one model"),
        ({"prompts": "p", "models": [3]}, TypeError, "an LLM or an Agent, not int"),
        ({"prompts": "p", "models": {"x": 3}}, TypeError, "an LLM or an Agent, not int"),
        ({"prompts": "p", "models": [llm()], "repeats": 0}, ValueError, "repeats must be 1 or more"),
        ({"prompts": "p", "models": [llm()], "concurrency": 0}, ValueError, "concurrency must be 1 or more"),
        ({"prompts": ["p", 3], "models": [llm()]}, ValueError, "prompt 1:"),
        ({"prompts": "p", "models": [llm()], "options": {"temprature": 0}}, Exception, "temprature"),
    ],
)
def test_wrong_arguments_raise_before_anything_is_sent(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        compare(**arguments)


def test_most_runs_in_flight_of_a_column_is_the_concurrency() -> None:
    flying = most = 0

    def turn(request: Any) -> list[str]:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        return ["x"] * 3

    class Recorder:
        def feed(self, label: str, prompt_index: int, repeat: int, event: Any) -> None:
            nonlocal flying
            flying -= isinstance(event, AgentEnd)

        def finish(self, comparison: Comparison) -> None: ...

    before = set_factory(lambda *args: Recorder())
    try:
        compare(["p"] * 9, {"a": llm(turn, delay_s=0.01)}, concurrency=3)
    finally:
        set_factory(before)
    assert most == 3


async def test_acompare_works_in_a_running_loop_and_cancelling_it_stops_the_runs() -> None:
    made = await acompare("go", {"a": llm(["fine"])})
    assert made.result("a").text == "fine"
    waiting = asyncio.ensure_future(acompare("go", {"a": llm(["said ", "more"], fault="hang"), "b": llm(["quick"])}))
    await asyncio.sleep(0.3)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    kept = room.last()
    assert kept is not None
    assert kept.result("a").stop_reason == "cancelled"
    assert kept.result("a").text.startswith("said ")
    assert kept.result("b").text == "quick"


def test_compare_works_in_a_cell_whose_loop_is_running() -> None:
    async def cell() -> Comparison:
        return compare("go", {"a": llm(["fine"])})

    assert asyncio.run(cell()).result("a").text == "fine"


def test_keyboard_interrupt_stops_all_columns_and_keeps_what_there_is(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import rein_nb
            import rein_nb.compare as room
            from rein_nb.testing.scripted import ScriptedProvider
            hang = ScriptedProvider.llm(["said ", "more"], fault="hang")
            quick = ScriptedProvider.llm(["quick"])
            print("ready", flush=True)
            try:
                rein_nb.compare("go", {"a": hang, "b": quick})
            except KeyboardInterrupt:
                made = room.last()
                print(made.result("a").stop_reason, made.result("b").text)
            """
        )
    )
    env = os.environ | {"PYTHONPATH": str(REPO)}
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=env)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(1.5)
    os.kill(child.pid, signal.SIGINT)
    out, _ = child.communicate(timeout=20)
    assert out.strip() == "cancelled quick"
    assert child.returncode == 0


def test_cost_and_usage_total_reconcile_with_the_usage_rows() -> None:
    priced = llm(["x", Usage(input_tokens=100, output_tokens=7, cost_usd=0.25)])
    made = compare(["p", "q"], {"a": priced, "b": priced})
    total = made.usage_total
    assert total.cost_usd == pytest.approx(made.usage["cost_usd"].sum(), abs=1e-9)
    assert total.cost_usd == pytest.approx(1.0, abs=1e-9)
    assert total.input_tokens == made.usage["input_tokens"].sum() == 400
    unknown = compare("p", {"a": llm(["x"])})
    assert unknown.usage_total.cost_usd is None
    assert unknown.usage["cost_usd"].isna().all()
    assert Comparison([], []).usage_total == Usage()


def test_table_has_a_row_a_prompt_and_a_column_a_label() -> None:
    made = compare(["one", "two"], {"a": llm(["A"]), "b": llm(["B"])})
    table = made.table()
    assert table.columns.tolist() == ["a", "b"]
    assert table.loc["one"].tolist() == ["A", "B"]
    assert set(table.dtypes.astype(str)) == {"string"}
    repeated = compare("one", {"a": llm(["A"])}, repeats=2).table()
    assert repeated.index.names == ["prompt", "repeat"]
    assert repeated.loc[("one", 1), "a"] == "A"


def test_cells_and_results_are_found_or_named() -> None:
    made = compare("p", {"a": llm()})
    with pytest.raises(KeyError, match="no column 'c'; there are: a"):
        made.result("c")
    with pytest.raises(KeyError, match="there are 1 prompts and 1 repeats"):
        made.result("a", 4)
    with pytest.raises(ValueError, match="has no result"):
        Comparison(["a"], ["p"]).result("a")


def test_to_parquet_writes_every_frame_without_secrets(tmp_path: Path) -> None:
    secret = "sk-" + "a1B2" * 8
    made = compare(f"my key is {secret}", {"a": llm([f"you said {secret}"])})
    folder = made.to_parquet(tmp_path / "deep" / "out")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{kind}.parquet" for kind in ("runs", "turns", "messages", "parts", "tool_calls", "usage", "events")
    )
    assert pd.read_parquet(folder / "runs.parquet")["prompt"].tolist() == ["my key is [redacted]"]
    for path in folder.iterdir():
        assert secret not in pd.read_parquet(path).to_csv()


def test_the_room_itself_can_be_called() -> None:
    assert room("go", {"a": llm(["fine"])}).result("a").text == "fine"  # type: ignore[operator]


def test_a_request_that_no_model_could_take_is_one_row() -> None:
    refuses = LLM.named(
        "anthropic/claude-sonnet-4-5", api_key="not-a-key-00000000", base_url="http://127.0.0.1:9", max_retries=0
    )
    found = compare(["hi"], models={"good": ScriptedProvider.llm("x"), "bad": refuses}, options={"seed": 3})
    rows = found.runs.set_index("label")
    assert len(found.runs) == 2
    assert rows.loc["bad", "error_kind"] == "bad_request"
    assert rows.loc["bad", "prompt_index"] == 0
    assert "seed" in rows.loc["bad", "error"]

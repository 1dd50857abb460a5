"""What is played back twice is equal to the byte: times and ids are the recording's."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rein_nb.agent import Agent
from rein_nb.agent.events import AgentEvent
from rein_nb.compare import compare
from rein_nb.frames import frame
from rein_nb.ir import ToolCall
from rein_nb.llm import LLM
from rein_nb.store import Store, record, replay
from rein_nb.testing.scripted import ScriptedProvider
from tests.support import REPO

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "GEMINI_API_KEY", "REIN_NB_STORE")

MODELS = """
import random, time
import rein_nb as rn
from rein_nb import ToolCall
from rein_nb.testing import ScriptedProvider

def look(city: str) -> str:
    "Weather of a city."
    time.sleep(random.random() / 50)  # which of several is done first differs from run to run
    return f"18 degrees in {city}"

def two(delay_s):
    "A model that calls two tools at once, without ids, and then answers."
    calls = [ToolCall(name="look", arguments={"city": city}) for city in ("Paris", "Rome")]
    def answer(request):
        asked = request.messages[-1].role == "tool"
        return ["Both ", "are ", "**mild**."] if asked else ["I look. ", *calls]
    return ScriptedProvider.llm(*[answer] * 40, delay_s=delay_s)

a, b, c = two(0.001), two(0.003), two(0.002)
"""

WORK = """
agent = rn.Agent(a, tools=[look], label="guide")
first = agent.run("Where is it warmer?")
second = agent.run("And tomorrow?")
grid = rn.compare(["Where?", "When?"], {"a": a, "b": b, "c": c}, tools=[look], repeats=2, show=False)
"""


def notebook(path: Path, speed: float | None) -> Any:
    """Everything that shows times or ids, played back from `path`."""
    book = nbformat.v4.new_notebook()
    cells = [
        f"""{MODELS}
import socket
def refuse(*_):
    raise AssertionError("a connection was made")
socket.socket.connect = refuse
%load_ext rein_nb
playing = rn.replay(PATH, speed=SPEED).start()""",
        WORK,
        "first",
        "grid",
        "from rein_nb.frames import KINDS, frame\nfor kind in KINDS:\n    display(frame(kind, [grid, agent]))",
        "first.run_id, second.run_id, first.started_at, second.started_at, second.duration_s, first.turns[0].completion.timing",
        "[(event.type, event.time) for cell in grid.cells for event in cell.events]",
        "%%agent -m b --tools look\nWhere is it warmer?",
        "%%agent -m a -m c --tools look\nWhere is it warmer?",
        "playing.stop()",
    ]
    where = {"PATH": repr(str(path)), "SPEED": repr(speed)}
    for n, source in enumerate(cells):
        for name, value in where.items():
            source = source.replace(name, value)
        book.cells.append(nbformat.v4.new_code_cell(source, id=f"cell-{n}"))
    # What differs between the two is not the point.
    env = {name: value for name, value in os.environ.items() if name not in KEYS}
    env["PYTHONPATH"] = os.pathsep.join([str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])])
    client = nbclient.NotebookClient(book, timeout=60, kernel_name="python3", record_timing=False)
    client.execute(env=env)
    for cell in book.cells:
        cell.source = ""
    return book


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("recording") / "calls.jsonl"
    names: dict[str, Any] = {}
    exec(MODELS, names)
    with record(path):
        exec(WORK, names)
        for model in "ab":
            Agent(names[model], tools=[names["look"]]).run("Where is it warmer?")
        Agent(names["c"], tools=[names["look"]]).run("Where is it warmer?")
    return path


def test_a_notebook_played_back_twice_is_equal_to_the_byte(recorded: Path) -> None:
    """Once at once and once at the recorded speed: what is first and what takes how long differs between the two in every way that it can."""
    played = [nbformat.writes(notebook(recorded, speed)) for speed in (None, 1.0)]
    assert played[0] == played[1]
    texts = [json.dumps(cell) for cell in json.loads(played[0])["cells"]]
    assert "2 degrees" not in texts[2]
    assert '"output_type": "error"' not in "".join(texts)
    assert "18 degrees in Rome" in texts[2]
    for text in texts[7:9]:
        assert "text/html" in text
        assert "mild" in text
    assert '"transient"' not in played[0]


# -- times ----------------------------------------------------------------------------------------


def spoken(*turns: Any, delay_s: float = 0.0, **options: Any) -> LLM:
    return ScriptedProvider.llm(*turns, delay_s=delay_s, **options)


def test_a_calls_times_are_the_recorded_ones_also_when_several_play_at_once(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with record(path):
        compare(
            "hi",
            {"fast": spoken(["a", "b", "c"]), "slow": spoken(["a", "b", "c"], model="s", delay_s=0.02)},
            show=False,
        )
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    seconds = {line["request"]["body"]["model"]: line["seconds"] for line in lines[1:]}
    for speed in (None, 4.0):
        with replay(path, speed=speed):
            grid = compare("hi", {"fast": spoken(), "slow": spoken(model="s")}, show=False)
        for label, model in (("fast", "scripted"), ("slow", "s")):
            result = grid.result(label)
            timing = result.turns[0].completion.timing
            last = next(line["events"][-1][0] for line in lines[1:] if line["request"]["body"]["model"] == model)
            assert timing.total_s == last <= seconds[model]
            assert result.duration_s == timing.total_s
            assert timing.started_at == result.started_at == lines[0]["created_at"]
            assert [event.time for event in grid.cell(label).events][-1] == result.started_at + timing.total_s


def test_a_run_takes_the_sum_of_its_calls_and_an_agents_runs_follow_each_other(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        time.sleep(0.3)
        return a + b

    def script() -> LLM:
        return spoken(["x", ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})], "3", "4", delay_s=0.005)

    path = tmp_path / "c.jsonl"
    with record(path):
        agent = Agent(script(), tools=[add])
        agent.run("1+2?"), agent.run("2+2?")
    with replay(path) as playing:
        agent = Agent(script(), tools=[add])
        first, second = agent.run("1+2?"), agent.run("2+2?")
    calls = [turn.completion.timing for turn in first.turns]
    assert first.duration_s == sum(call.total_s or 0.0 for call in calls)
    assert 0 < first.duration_s < 0.3
    assert first.turns[1].started_at == playing.created_at + (calls[0].total_s or 0.0)
    assert first.tool_runs[0].duration_s is None, "nobody recorded how long a tool took"
    assert second.started_at == playing.created_at + first.duration_s


def test_an_old_recording_without_its_time_gets_a_fixed_one(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with record(path):
        spoken("x").chat("hi")
    lines = path.read_text("utf-8").splitlines()
    header = json.loads(lines[0])
    del header["created_at"]
    path.write_text("\n".join([json.dumps(header), *lines[1:]]) + "\n", "utf-8")
    with replay(path):
        assert spoken().chat("hi").timing.started_at == 946684800.0


def test_what_fails_before_any_byte_and_is_retried_plays_back_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"

    def asked(*turns: Any, **options: Any) -> tuple[Any, list[AgentEvent]]:
        events: list[AgentEvent] = []
        result = Agent(spoken(*turns, max_retries=2, **options), on_event=[events.append]).run("hi")
        return result, events

    with record(path):
        asked("x", fault="overloaded", fault_times=1)
    played = []
    for _ in range(2):
        with replay(path):
            begun = time.perf_counter()
            result, events = asked()
            assert time.perf_counter() - begun < 0.2
            played.append([event.to_dict() for event in events])
    assert played[0] == played[1]
    timing = result.turns[0].completion.timing
    assert timing.retries == 1
    wait_s = next(event["wait_s"] for event in played[0] if event["type"] == "retry")
    assert wait_s == 0.25
    assert (timing.total_s or 0.0) >= wait_s


# -- ids ------------------------------------------------------------------------------------------


def test_ids_differ_within_a_playback_and_repeat_in_the_next(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with record(path):
        live = [Agent(spoken("x")).run("hi").run_id for _ in range(3)]
    ids = []
    for _ in range(2):
        with replay(path):
            ids.append([Agent(spoken()).run("hi").run_id for _ in range(3)])
    assert ids[0] == ids[1]
    assert len({*ids[0], *live}) == 6


def test_a_call_that_came_without_an_id_gets_the_same_one_when_it_is_played_back(tmp_path: Path) -> None:
    def look() -> str:
        """Look."""
        return "seen"

    path = tmp_path / "c.jsonl"
    calls = [ToolCall(name="look", arguments={}), ToolCall(name="look", arguments={})]
    with record(path):
        first = Agent(spoken(calls, calls, "done"), tools=[look]).run("hi")
    with replay(path):
        second = Agent(spoken(), tools=[look]).run("hi")
    ids = [run.call.id for run in first.tool_runs]
    assert len(set(ids)) == 4
    assert [run.call.id for run in second.tool_runs] == ids


def test_repetitions_at_the_same_time_get_their_own_answers_back(tmp_path: Path) -> None:
    """Their first answers are equal, so only who asked tells the second requests apart."""

    def wait(s: float) -> str:
        """Wait."""
        time.sleep(s)
        return "waited"

    call = ToolCall(id="1", name="wait", arguments={"s": 0.01})
    path = tmp_path / "c.jsonl"
    with record(path):
        grid = compare("hi", {"m": spoken(call, call, call, "A", "B", "C")}, tools=[wait], repeats=3, show=False)
    before = [result.text for result in grid.results]
    assert sorted(before) == ["A", "B", "C"]
    for _ in range(3):
        with replay(path):
            again = compare("hi", {"m": spoken()}, tools=[wait], repeats=3, show=False)
        assert [result.text for result in again.results] == before


def test_a_store_takes_a_playback_more_than_once(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    with record(path):
        Agent(spoken("x")).run("hi")
    for n in range(2):
        with replay(path), Store(tmp_path / "s.db") as store:
            session = store.create()
            Agent(spoken(), session=session).run("hi")
            assert len(store.sessions()) == n + 1
            assert len(frame("runs", session)) == 1


# -- auto -----------------------------------------------------------------------------------------


def test_auto_has_the_recordings_time_while_all_is_found_and_the_machines_from_the_first_miss_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.jsonl"
    begun = time.time()
    with replay(path, mode="auto"):
        assert (Agent(spoken("x")).run("hi").started_at or 0) >= begun, "nothing is recorded yet: this is real"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(lines[0]), "created_at": 1e9}), *lines[1:]]) + "\n", "utf-8")
    with replay(path, mode="auto"):
        agent = Agent(spoken("y", "z"))
        assert agent.run("hi").started_at == 1e9
        missed = agent.run("more")
        assert (missed.turns[0].completion.timing.started_at or 0) >= begun, "the call itself was real"
        assert (Agent(spoken("z")).run("other").started_at or 0) >= begun
    with replay(path):
        agent = Agent(spoken())
        first, second = agent.run("hi"), agent.run("more")
        assert first.started_at == 1e9
        assert second.started_at == 1e9 + (first.duration_s or 0.0)


def test_without_a_recording_times_and_ids_are_the_machines(tmp_path: Path) -> None:
    begun = time.time()
    result = Agent(spoken("x", delay_s=0.01)).run("hi")
    assert begun <= (result.started_at or 0) <= time.time()
    assert (result.duration_s or 0) >= 0.01
    assert Agent(spoken("x")).run("hi").run_id != Agent(spoken("x")).run("hi").run_id

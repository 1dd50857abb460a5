"""What a sweep asks, keeps, resumes and tells; on scripted models."""

from __future__ import annotations

import asyncio
import json
import threading
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rein_nb.agent import Agent
from rein_nb.compare.sweep import Sweep, asweep, scorers, sweep
from rein_nb.compare.sweep.rates import Limiter
from rein_nb.ir import ErrorInfo, ProviderError, Request, ToolCall, Usage
from rein_nb.llm import LLM
from rein_nb.store import Session, Store, StoreError
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import tool
from tests.sweep.wire import wire

ROWS = [{"word": f"w{n}", "expected": f"W{n}"} for n in range(6)]


def upper(request: Request) -> str:
    return request.messages[-1].text.upper()


def requests(llm: Any) -> list[Request]:
    found: list[Request] = llm.backend.requests
    return found


def asked(llm: Any) -> int:
    return len(requests(llm))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "s.sqlite3"


def test_every_row_model_variant_and_repeat_is_asked_once(store: Path) -> None:
    a, b = ScriptedProvider.llm(upper, repeat=True), ScriptedProvider.llm("B", repeat=True)
    found = sweep(
        ROWS, {"a": a, "b": b}, 2, prompt="{word}", variants={"x": {"system": "S"}, "y": {"temperature": 1.0}}, store=store, progress=False
    )  # fmt: skip
    assert found.stop_reason == "completed"
    assert asked(a) == asked(b) == 6 * 2 * 2
    df = found.frame()
    assert len(df) == 48
    assert df["key"].is_unique
    assert set(df["state"]) == {"done"}
    assert set(df["attempts"]) == {1}
    assert df.groupby(["model", "variant", "repeat", "row"]).size().eq(1).all()
    with_system = [r for r in requests(a) if r.messages[0].role == "system"]
    assert len(with_system) == 12
    assert sum(r.options.temperature == 1.0 for r in requests(a)) == 12


def test_a_second_call_asks_nothing_and_gives_the_same_frame(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, repeat=True)
    first = sweep(ROWS, llm, prompt="{word}", store=store, progress=False).frame()
    again = sweep(ROWS, llm, prompt="{word}", store=store, progress=False).frame()
    assert asked(llm) == 6
    pd.testing.assert_frame_equal(first, again)


def test_rows_may_move_and_be_added_without_being_asked_again(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, repeat=True)
    sweep(ROWS, llm, prompt="{word}", store=store, progress=False)
    found = sweep(
        [{"word": "new", "expected": "NEW"}, *reversed(ROWS)], llm, prompt="{word}", store=store, progress=False
    )
    assert asked(llm) == 7
    assert found.frame()["text"].tolist() == ["NEW", *(row["expected"] for row in reversed(ROWS))]


def test_another_prompt_or_setting_is_another_question(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, repeat=True)
    sweep(ROWS, llm, prompt="{word}", store=store, progress=False)
    found = sweep(ROWS, llm, prompt="say {word}", store=store, progress=False)
    assert asked(llm) == 12
    assert found.frame()["text"][0] == "SAY W0"
    sweep(ROWS, llm, prompt="{word}", options={"temperature": 0}, store=store, progress=False)
    assert asked(llm) == 18
    assert len(sweep(ROWS, llm, prompt="{word}", store=store, progress=False).results) == 6
    assert asked(llm) == 18


def test_equal_rows_are_asked_each(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, repeat=True)
    assert len(sweep(["same", "same"], llm, store=store, progress=False).results) == asked(llm) == 2


def test_resume_false_forgets_only_this_name(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, repeat=True)
    sweep(["p"], llm, store=store, name="kept", progress=False)
    sweep(["p"], llm, store=store, name="other", progress=False)
    sweep(["p"], llm, store=store, name="other", progress=False, resume=False)
    assert asked(llm) == 3
    assert Sweep.open("kept", store=store).counts == {"done": 1}


def test_an_error_is_a_row_and_is_asked_again_only_on_demand(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, fault="server_error", fault_times=2, repeat=True)
    found = sweep(ROWS, llm, prompt="{word}", concurrency=1, store=store, scorers=scorers.exact(), progress=False)
    df = found.frame()
    assert df["state"].astype(str).tolist() == ["error"] * 2 + ["done"] * 4
    assert df["error_kind"].tolist()[:2] == ["server_error"] * 2
    assert df["score.exact"].isna().tolist() == [True] * 2 + [False] * 4
    sweep(ROWS, llm, prompt="{word}", store=store, progress=False)
    assert asked(llm) == 6
    found = sweep(ROWS, llm, prompt="{word}", store=store, retry_errors=True, scorers=scorers.exact(), progress=False)
    assert asked(llm) == 8
    df = found.frame()
    assert set(df["state"]) == {"done"}
    assert df["attempts"].tolist() == [2, 2, 1, 1, 1, 1]
    assert df["score.exact"].tolist() == [1.0] * 6


def test_a_busy_provider_is_asked_again_after_the_pause_it_named(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, fault="rate_limited", fault_times=2, repeat=True)
    df = sweep(ROWS, llm, prompt="{word}", concurrency=1, store=store, progress=False).frame()
    assert set(df["state"]) == {"done"}
    assert df["attempts"].tolist() == [3, 1, 1, 1, 1, 1]


def test_budget_stops_with_its_own_reason_and_more_money_goes_on(store: Path) -> None:
    llm = ScriptedProvider.llm(["x", Usage(cost_usd=0.10, input_tokens=5, output_tokens=5)], repeat=True)
    rows = [f"p{n}" for n in range(20)]
    found = sweep(rows, llm, concurrency=4, budget=0.55, store=store, progress=False)
    assert found.stop_reason == "budget_usd"
    assert found.counts == {"done": 6, "pending": 14}
    assert found.spent[0] == pytest.approx(0.6)
    found = sweep(rows, llm, budget={"usd": 0.55}, store=store, progress=False)
    assert asked(llm) == 6
    found = sweep(rows, llm, budget={"tokens": 100}, concurrency=4, store=store, progress=False)
    assert found.stop_reason == "budget_tokens"
    assert asked(llm) == 10
    assert sweep(rows, llm, store=store, progress=False).stop_reason == "completed"
    assert asked(llm) == 20


def test_a_usd_budget_says_when_prices_are_unknown(store: Path) -> None:
    with pytest.warns(RuntimeWarning, match="3 answers have no known price"):
        sweep(["a", "b", "c"], ScriptedProvider.llm("x", repeat=True), budget=1.0, store=store, progress=False)


def test_a_scorer_added_later_costs_no_request_and_is_kept(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, repeat=True)
    sweep(ROWS, llm, prompt="{word}", store=store, progress=False)
    calls: list[str] = []

    def length(answer: Any, row: dict[str, Any]) -> int:
        calls.append(row["word"])
        return len(answer.text)

    for _ in range(2):
        found = sweep(ROWS, llm, prompt="{word}", scorers=[scorers.exact(), length], store=store, progress=False)
    assert asked(llm) == 6
    assert len(calls) == 6
    assert found.frame()["score.length"].tolist() == [2.0] * 6
    assert Sweep.open(store=store).frame()["score.exact"].tolist() == [1.0] * 6


def test_a_changed_scorer_scores_anew(store: Path) -> None:
    llm = ScriptedProvider.llm("Yes, Yes", repeat=True)
    rows = [{"prompt": "p", "expected": "yes, yes"}]
    assert sweep(rows, llm, scorers=scorers.exact(), store=store, progress=False).frame()["score.exact"][0] == 0.0
    found = sweep(rows, llm, scorers=scorers.exact(ignore_case=True), store=store, progress=False)
    assert found.frame()["score.exact"][0] == 1.0
    assert asked(llm) == 1


def test_a_judges_answers_are_paid_once_and_count_against_the_budget(store: Path) -> None:
    llm = ScriptedProvider.llm(["x", Usage(cost_usd=0.01)], repeat=True)
    judge = ScriptedProvider.llm(['Well. {"reason": "fine", "score": 0.5}', Usage(cost_usd=0.10)], repeat=True)
    scorer = scorers.judge(judge, "Is it good?", field="expected")
    for _ in range(2):
        found = sweep(ROWS, llm, prompt="{word}", scorers=scorer, store=store, progress=False)
    assert asked(judge) == 6
    assert found.spent[0] == pytest.approx(0.66)
    score = found.results[0].scores["judge"]
    assert (score.value, score.details) == (0.5, {"reason": "fine"})
    shown = requests(judge)[0].messages[-1].text
    assert "W0" in shown and "Is it good?" in shown  # noqa: PT018
    found = sweep(
        ROWS,
        llm,
        prompt="{word}",
        scorers=scorers.judge(judge, "Another?"),
        budget=0.85,
        concurrency=1,
        store=store,
        progress=False,
    )
    assert found.stop_reason == "budget_usd"
    assert asked(judge) == 8


def test_a_judge_that_failed_is_asked_again_on_demand(store: Path) -> None:
    llm = ScriptedProvider.llm("x", repeat=True)
    judge = ScriptedProvider.llm('{"score": 1}', fault="server_error", fault_times=1, repeat=True)
    given: dict[str, Any] = {"scorers": scorers.judge(judge, "Good?"), "store": store, "progress": False}
    assert "the judge failed" in sweep(["p"], llm, **given).frame()["score_error.judge"][0]
    assert sweep(["p"], llm, **given).results[0].scores["judge"].value is None
    assert sweep(["p"], llm, retry_errors=True, **given).results[0].scores["judge"].value == 1.0
    assert (asked(llm), asked(judge)) == (1, 2)


def test_a_busy_judge_is_asked_again_after_the_pause_it_named(store: Path) -> None:
    judge = ScriptedProvider.llm('{"score": 1}', fault="rate_limited", fault_times=2, repeat=True)
    given: dict[str, Any] = {"scorers": scorers.judge(judge, "Good?"), "store": store, "progress": False}
    found = sweep(["p"], ScriptedProvider.llm("x", repeat=True), **given)
    assert found.results[0].scores["judge"].value == 1.0
    assert asked(judge) == 3


def test_a_judges_calls_are_paced_by_its_own_limit_and_by_what_its_provider_says(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[tuple[int | None, Any]] = []
    release = Limiter.release

    def noted(self: Limiter, ticket: list[float], **told: Any) -> None:
        released.append((told["tokens"], told["headers"]))
        release(self, ticket, **told)

    monkeypatch.setattr(Limiter, "release", noted)
    with wire(headers="x-ratelimit-remaining-requests: 7\r\nx-ratelimit-reset-requests: 1s\r\n") as server:
        judge = LLM.named("openai-chat/gpt-4o-mini", base_url=server.url, api_key="not-a-key-000000")
        scorer = scorers.judge(judge, "Good?")
        sweep(["p", "q"], ScriptedProvider.llm("x", repeat=True), scorers=scorer, store=store, progress=False)
    told = [(tokens, headers) for tokens, headers in released if headers]
    assert len(told) == 2
    for tokens, headers in told:
        assert tokens == 10
        assert headers["x-ratelimit-remaining-requests"] == "7"


def test_tools_and_agents_run_whole(store: Path) -> None:
    @tool
    def double(x: int) -> int:
        """Double x."""
        return 2 * x

    def script(request: Request) -> Any:
        last = request.messages[-1]
        return last.text if last.role == "tool" else [ToolCall(id="1", name="double", arguments={"x": 21})]

    llm = ScriptedProvider.llm(script, repeat=True)
    agent = Agent(ScriptedProvider.llm(script, repeat=True), tools=[double], label="mine")
    found = sweep(["p", "q"], [llm, agent], tools=[double], store=store, progress=False)
    assert found.frame()["text"].tolist() == ["42"] * 4
    assert found.frame()["model"].tolist()[:2] == ["scripted/scripted", "mine"]
    assert len(found.to_frame("tool_calls")) == 4
    assert len(found.to_frame("turns")) == 8
    assert agent.messages == []


async def test_asweep_in_a_foreign_loop_gives_the_same(store: Path) -> None:
    llm = ScriptedProvider.llm(upper, repeat=True)
    found = await asweep(ROWS, llm, prompt="{word}", store=store, progress=False, temperature=0.5)
    assert found.frame()["text"].tolist() == [row["expected"] for row in ROWS]
    assert requests(llm)[0].options.temperature == 0.5


async def test_a_cancelled_sweep_says_so_and_resumes(store: Path) -> None:
    slow = ScriptedProvider.llm(upper, repeat=True, delay_s=0.2)
    task = asyncio.ensure_future(asweep(ROWS, slow, prompt="{word}", concurrency=2, store=store, progress=False))
    while not asked(slow):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    found = Sweep.open(store=store)
    assert found.stop_reason == "cancelled"
    assert found.counts["running"] == 2
    quick = ScriptedProvider.llm(upper, repeat=True)
    df = (await asweep(ROWS, quick, prompt="{word}", store=store, progress=False)).frame()
    assert set(df["state"]) == {"done"}
    assert df["attempts"].tolist() == [2, 2, 1, 1, 1, 1]


def test_the_frame_is_live_and_nobody_else_may_run_it_meanwhile(store: Path) -> None:
    go = threading.Event()

    def waits(request: Request) -> str:
        if request.messages[-1].text == "W0":
            return "first"
        go.wait(20)
        return "later"

    llm = ScriptedProvider.llm(waits, repeat=True)
    box: list[Sweep] = []
    thread = threading.Thread(
        target=lambda: box.append(sweep(["W0", "W1", "W2"], llm, concurrency=1, store=store, progress=False))
    )
    thread.start()
    try:
        while not store.exists() or asked(llm) < 2:
            pass
        df = Sweep.open(store=Store(store)).frame()
        assert df["state"].astype(str).tolist() == ["done", "running", "pending"]
        assert df["text"].tolist()[0] == "first"
        with pytest.raises(StoreError, match="is being run already"):
            sweep(["W0"], llm, store=store, progress=False)
    finally:
        go.set()
        thread.join(20)
    assert box[0].counts == {"done": 3}


def test_a_sweep_shares_its_file_with_sessions(store: Path) -> None:
    session = Session.new("talk", store=store)
    session.append("hello")
    sweep(["p"], ScriptedProvider.llm("x"), store=store, progress=False)
    assert [message.text for message in Session.resume(session.id, store=store).messages] == ["hello"]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "json", "parquet", "frame"])
def test_datasets_of_every_kind_give_the_same_rows(kind: str, store: Path, tmp_path: Path) -> None:
    df = pd.DataFrame({"word": ["a", 'b "é"'], "expected": ["A", None]})
    path = tmp_path / f"d.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in df.where(df.notna(), None).to_dict("records")))
    elif kind == "json":
        path.write_text(json.dumps(df.where(df.notna(), None).to_dict("records")))
    elif kind in ("csv", "tsv"):
        df.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    elif kind == "parquet":
        df.to_parquet(path)
    found = sweep(
        df if kind == "frame" else path,
        ScriptedProvider.llm(upper, repeat=True),
        prompt="word",
        store=store,
        progress=False,
    )
    assert [cell.row for cell in found.results] == [
        {"word": "a", "expected": "A"},
        {"word": 'b "é"', "expected": "" if kind in ("csv", "tsv") else None},
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dataset": []}, "no rows"),
        ({"dataset": [1]}, "row 0 must be a dict or a text"),
        ({"dataset": "nowhere.jsonl"}, "no such dataset"),
        ({"prompt": "{nope}"}, r"row 0: the prompt names \{nope\}, and the row has: prompt"),
        ({"prompt": "constant"}, "every row would be asked the same"),
        ({"prompt": "{prompt.__class__}"}, "every row would be asked the same"),
        ({"repeats": 0}, "repeats must be"),
        ({"models": []}, "at least one model"),
        ({"variants": {}}, "variants is empty"),
        ({"variants": {"a": {"temprature": 1}}}, "did you mean 'temperature'"),
        ({"concurrency": 0}, "concurrency must be 1 or more"),
        ({"budget": 0}, "above 0"),
        ({"limits": {"requests_per_minute": -1}}, "above 0"),
        ({"executor": 3}, "'local' or a distributed.Client"),
        ({"scorers": [3]}, "a scorer is a function"),
        ({"scorers": [scorers.exact(), scorers.exact()]}, "two scorers are called 'exact'"),
        ({"name": ""}, "needs a name"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(changes: dict[str, Any], says: str, store: Path) -> None:
    llm = ScriptedProvider.llm("x")
    given: dict[str, Any] = {"dataset": ["p"], "models": llm, "store": store, "progress": False} | changes
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=says):
        sweep(given.pop("dataset"), given.pop("models"), **given)
    assert asked(llm) == 0


def test_a_fault_inside_the_run_is_a_row_without_secrets(store: Path) -> None:
    secret = "sk-" + "not-a-real-key-000000000"
    fault = ProviderError(ErrorInfo.make("authentication", f"bad key {secret}"))
    found = sweep([f"my key is {secret}"], ScriptedProvider.llm(lambda r: fault), store=store, progress=False)
    assert found.frame()["error_kind"].tolist() == ["authentication"]
    assert secret.encode() not in store.read_bytes() + Path(f"{store}-wal").read_bytes()


def test_progress_is_shown_where_tqdm_is(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sweep(["a", "b"], ScriptedProvider.llm("x", repeat=True), store=store, name="study")
    assert "study: 100%" in capsys.readouterr().err

"""A review without a display: order, votes, frames, what follows from them, and the static table."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pandas as pd
import pytest

from rein_nb.compare import Comparison, Review, compare, join_votes
from rein_nb.compare.review_votes import COLUMNS
from rein_nb.ir import Request, ThinkingPart, ToolCall
from rein_nb.llm import LLM
from rein_nb.notebook import review as view
from rein_nb.notebook.review import blind_html
from rein_nb.testing.scripted import ScriptedProvider
from tests.notebook import hostile
from tests.notebook.danger import dangers


def says(text: str) -> LLM:
    return ScriptedProvider.llm(text, repeat=True)


@pytest.fixture(scope="module")
def grid() -> Comparison:
    models = {"good": says("a fine answer"), "fair": says("an answer"), "poor": says("eh")}
    return compare([f"prompt {n}" for n in range(6)], models, repeats=2, show=False)


ORDER = ("good", "fair", "poor")


def judge(review: Review, *, until: int | None = None, wrong: int = 0) -> Review:
    """Vote for the better of two, but for every `wrong`-th pair."""
    while not review.done and (until is None or review.progress[0] < until):
        pair = review.current
        assert pair is not None
        better = "left" if ORDER.index(pair.left) < ORDER.index(pair.right) else "right"
        if wrong and review.progress[0] % wrong == 0:
            better = "right" if better == "left" else "left"
        review.vote(better, seconds=1.5)  # type: ignore[arg-type]
    return review


# -- order ----------------------------------------------------------------------------------------


def test_every_pair_of_answers_comes_once_shuffled_and_the_same_for_a_seed(grid: Comparison) -> None:
    pairs = grid.review(voter="x").pairs
    assert len(pairs) == 6 * 2 * 3 == len({pair.key for pair in pairs})
    assert grid.review(voter="x").pairs == pairs
    assert grid.review(voter="x", seed=1).pairs != pairs
    assert grid.review(voter="y").pairs != pairs, "another voter, another order"
    assert [pair.prompt_index for pair in pairs] != sorted(pair.prompt_index for pair in pairs)


@pytest.mark.parametrize("seed", range(5))
def test_each_two_labels_stand_on_either_side_equally_often(grid: Comparison, seed: int) -> None:
    sides = Counter((pair.left, pair.right) for pair in grid.review(seed=seed).pairs)
    assert len(sides) == 6
    assert set(sides.values()) == {6}


def test_some_columns_only(grid: Comparison) -> None:
    assert {frozenset((p.left, p.right)) for p in grid.review(labels=["good", "poor"]).pairs} == {
        frozenset(("good", "poor"))
    }
    with pytest.raises(ValueError, match="no column 'best'; there are: good, fair, poor"):
        grid.review(labels=["good", "best"])
    with pytest.raises(ValueError, match="two columns or more"):
        grid.review(labels=["good"])


def test_failed_and_empty_answers_are_left_out_and_named() -> None:
    models = {"a": says("x"), "b": says("y"), "broken": ScriptedProvider.llm(fault="server_error"), "empty": says("")}
    grid = compare(["p", "q"], models, show=False)
    review = grid.review()
    assert {label for pair in review.pairs for label in (pair.left, pair.right)} == {"a", "b"}
    assert ("broken", 0, 0) in review.left_out
    assert ("empty", 1, 0) in review.left_out
    with pytest.raises(ValueError, match="no pair to judge"):
        grid.review(labels=["broken", "a"])


# -- votes ----------------------------------------------------------------------------------------


def test_votes_are_a_frame_of_stable_dtypes_empty_or_not(grid: Comparison) -> None:
    review = grid.review(voter="x")
    assert review.votes.dtypes.astype(str).to_dict() == COLUMNS
    assert len(review.votes) == 0
    first = review.current
    assert first is not None
    for vote in ("left", "right", "tie", "both_bad", "skip"):
        review.vote(vote, seconds=2.0)  # type: ignore[arg-type]
    votes = review.to_frame()
    assert votes.dtypes.astype(str).to_dict() == COLUMNS
    assert votes["vote"].tolist() == ["left", "right", "tie", "both_bad", "skip"]
    assert votes.loc[0, "winner"] == first.left == votes.loc[0, "left"]
    assert votes.loc[1, "winner"] == votes.loc[1, "right"]
    assert votes["winner"].isna().tolist() == [False, False, True, True, True]
    assert (votes["voter"] == "x").all()
    assert votes.loc[0, "prompt"] == f"prompt {votes.loc[0, 'prompt_index']}"


def test_a_vote_can_be_taken_back(grid: Comparison) -> None:
    review = grid.review()
    assert review.undo() is None
    first = review.current
    review.vote("left")
    assert review.current != first
    assert review.undo() == first
    assert len(review.votes) == 0


def test_time_counts_from_when_a_pair_was_shown(grid: Comparison) -> None:
    review = grid.review()
    review.vote("left")
    review.show()
    review.vote("left")
    seconds = review.votes["seconds"]
    assert seconds.isna().tolist() == [True, False]
    assert 0 <= seconds[1] < 60


def test_what_is_no_vote_is_refused(grid: Comparison) -> None:
    review = grid.review()
    with pytest.raises(ValueError, match="a vote is one of left, right, tie, both_bad, skip, not 'up'"):
        review.vote("up")  # type: ignore[arg-type]
    judge(review)
    assert review.done
    assert review.current is None
    with pytest.raises(RuntimeError, match="every pair is judged"):
        review.vote("left")


@pytest.mark.parametrize("way", ["frame", "csv", "parquet"])
def test_a_review_goes_on_from_its_frame(grid: Comparison, way: str, tmp_path: Any) -> None:
    votes = judge(grid.review(voter="x"), until=7).votes
    if way == "csv":
        votes.to_csv(tmp_path / "v.csv", index=False)
        votes = pd.read_csv(tmp_path / "v.csv")
    elif way == "parquet":
        votes.to_parquet(tmp_path / "v.parquet")
        votes = pd.read_parquet(tmp_path / "v.parquet")
    on = grid.review(voter="x", votes=votes)
    assert on.progress == (7, 36)
    whole = grid.review(voter="x")
    assert on.current == whole.pairs[7], "the order is the same one"
    assert judge(on).votes.equals(judge(whole).votes)


def test_frames_about_something_else_are_refused(grid: Comparison) -> None:
    votes = judge(grid.review(), until=2).votes
    with pytest.raises(ValueError, match="lacks the columns winner, voter"):
        grid.review(votes=votes.drop(columns=["winner", "voter"]))
    for column, value, error in [
        ("prompt", "another", "is not the one that was voted on"),
        ("left", "nobody", "winner|no column"),
        ("vote", "up", "not 'up'"),
        ("winner", "nobody", "and the winner 'nobody'"),
    ]:
        wrong = votes.copy()
        wrong.loc[0, column] = value
        with pytest.raises(ValueError, match=error):
            grid.review(votes=wrong)


# -- several voters, and what follows --------------------------------------------------------------


def test_voters_are_joined_and_their_agreement_is_told(grid: Comparison) -> None:
    x, y = judge(grid.review(voter="x")), judge(grid.review(voter="y"), until=30)
    x.join(y.votes)
    assert x.voters == ["x", "y"]
    assert len(x.votes) == 66
    told = x.agreement()
    assert (told.method, told.items, told.observed) == ("cohen_kappa", 30, 1.0)
    assert told.value == 1.0
    z = judge(grid.review(voter="z"), wrong=2)
    x.join(z.votes)
    three = x.agreement()
    assert three.method == "krippendorff_alpha"
    assert three.value is not None
    assert three.value < 1.0
    x.join(y.votes)
    assert len(x.votes) == 66 + 36, "joined twice counts once"
    with pytest.raises(ValueError, match="needs two voters"):
        y.agreement()


def test_a_tie_and_both_bad_are_one_judgement_and_a_skip_is_none(grid: Comparison) -> None:
    x = grid.review(voter="x")
    y = grid.review(voter="y")
    y.pairs = x.pairs
    for mine, other in [("tie", "both_bad"), ("left", "left"), ("skip", "right"), ("right", "right")]:
        x.vote(mine)  # type: ignore[arg-type]
        y.vote(other)  # type: ignore[arg-type]
    told = x.join(y.votes).agreement()
    assert (told.items, told.observed) == (3, 1.0)


def test_frames_of_voters_become_one(grid: Comparison) -> None:
    x = judge(grid.review(voter="x"), until=5)
    y = judge(grid.review(voter="y"), until=5)
    joined = join_votes(x.votes, y.votes, x.votes)
    assert len(joined) == 10
    assert joined.dtypes.astype(str).to_dict() == COLUMNS
    assert grid.review(voter="z", votes=[x.votes, y.votes]).voters == ["x", "y"]


@pytest.mark.parametrize("method", ["bradley_terry", "elo"])
def test_ratings_order_the_columns_with_intervals_and_repeat_by_seed(grid: Comparison, method: Any) -> None:
    review = judge(grid.review(voter="x"), wrong=5)
    found = review.ratings(method, samples=200)
    assert found["label"].tolist() == ["good", "fair", "poor"]
    assert (found["low"] <= found["rating"]).all()
    assert (found["rating"] <= found["high"]).all()
    assert found["rating"].mean() == pytest.approx(1000.0)
    assert found["wins"].sum() == found["losses"].sum() == 36
    assert found["votes"].tolist() == [24, 24, 24]
    assert review.ratings(method, samples=200).equals(found)
    assert not review.ratings(method, samples=200, seed=9).equals(found)
    dtypes = dict.fromkeys(("rating", "low", "high"), "Float64") | {"label": "string"}
    assert {name: str(dtype) for name, dtype in found.dtypes.items()} == {
        name: dtypes.get(name, "Int64") for name in found.columns
    }
    empty = grid.review().ratings(method)
    assert empty.dtypes.equals(found.dtypes)
    assert empty["rating"].isna().all()


def test_ratings_say_when_there_is_no_common_scale(grid: Comparison) -> None:
    models = {name: says(name) for name in "abcd"}
    review = compare("p", models, show=False).review()
    while review.current is not None:
        review.vote("left" if {review.current.left, review.current.right} in ({"a", "b"}, {"c", "d"}) else "skip")
    with pytest.raises(ValueError, match="never compared with each other, so no common scale exists: a, b; c, d"):
        review.ratings()
    assert "pairs judged" in review.to_html(), "the table shows the counts then"
    with pytest.raises(ValueError, match="method must be"):
        review.ratings("glicko")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prior must not be below 0"):
        review.ratings(prior=-1)


def test_without_a_prior_a_column_that_never_lost_has_no_rating(grid: Comparison) -> None:
    review = judge(grid.review())
    with pytest.raises(ValueError, match="never lost"):
        review.ratings(prior=0, samples=0)
    assert review.ratings(samples=0)["rating"].notna().all()


# -- the static table -----------------------------------------------------------------------------


def test_the_standing_is_a_static_table_and_labels_are_text() -> None:
    label = "<img src=x onerror=alert(1)>$\\href{javascript:alert(1)}{x}$"
    grid = compare(["p", "q"], {label: says("x"), "b": says("y")}, show=False)
    review = grid.review(voter="<script>alert(1)</script>")
    review.vote("left")
    html = review.to_html()
    assert dangers(html) == []
    assert "<table" in html
    assert "1 of 2 pairs judged by &lt;script&gt;" in html
    text = review.to_text()
    assert "1 of 2 pairs judged" in text
    assert text.splitlines()[0].split() == ["rating", "95%", "interval", "won", "lost", "tied", "both", "bad"]


def test_the_table_tells_several_voters_agreement(grid: Comparison) -> None:
    review = judge(grid.review(voter="x")).join(judge(grid.review(voter="y")).votes)
    assert "2 voters, Cohen&#x27;s kappa 1.00 on 36 pairs" in review.to_html()


# -- on display -----------------------------------------------------------------------------------


def test_what_is_drawn_of_an_answer_names_nobody_and_is_clean() -> None:
    texts = [*(hostile.OWN | hostile.shared_payloads()).values()]

    def answer(request: Request) -> Any:
        text = request.messages[-1].text
        if request.messages[-1].role == "tool":
            return text
        return [ThinkingPart(text=text), ToolCall(id="1", name="look", arguments={"city": text})]

    def look(city: str) -> str:
        """Look."""
        return city

    llm = ScriptedProvider.llm(*[answer] * 2 * len(texts), model="secret-model")
    grid = compare(texts, {"secret-column": llm}, tools=[look], show=False)
    assert len(grid.results) > 30
    for result in grid.results:
        html = blind_html(result)
        assert dangers(html) == []
        assert "secret" not in html
        assert not re.search(r"\d ms\b|\d s\b|tokens", html)
        assert "look" in html


def test_where_nobody_looks_it_is_a_static_table(grid: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    review = judge(grid.review(), until=3)
    review._ipython_display_()
    assert "3 of 36 pairs judged" in capsys.readouterr().out


class Front:
    """In place of a front end: keeps what was put, and the widget's messages."""

    def __init__(self) -> None:
        self.put: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.closed = False

    model_id = "m"

    def on_msg(self, handler: Any) -> None:
        self.handler = handler

    def send(self, content: dict[str, Any]) -> None:
        self.sent.append(content)

    def close(self) -> None:
        self.closed = True

    def press(self, **content: Any) -> None:
        self.handler(None, content, None)


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> Front:
    found = Front()
    monkeypatch.setattr(view, "place", lambda: "notebook")
    monkeypatch.setattr(view, "_widget_class", lambda: lambda: found)
    monkeypatch.setattr(view.Output, "put", lambda self, bundle: found.put.append(bundle))
    return found


def test_the_widget_takes_votes_for_the_pair_that_it_shows_only(grid: Comparison, front: Front) -> None:
    review = grid.review(voter="x")
    review._ipython_display_()
    front.press(k="hello")
    shown = front.sent[-1]
    assert (shown["number"], shown["judged"], shown["total"]) == (0, 0, 36)
    front.press(k="vote", vote="left", number=0, seconds=2.5)
    front.press(k="vote", vote="left", number=0, seconds=0.1)  # a second press of the same key
    front.press(k="vote", vote="up", number=1)  # no such vote: logged, nothing judged
    assert review.votes[["vote", "seconds"]].to_numpy().tolist() == [["left", 2.5]]
    assert front.sent[-1]["number"] == 1
    review.vote("tie")  # in code, while the widget is open
    assert front.sent[-1]["number"] == 2
    front.press(k="undo")
    assert front.sent[-1]["number"] == 1
    front.press(k="finish")
    assert front.closed
    assert set(front.put[-1]) == {"text/html", "text/plain"}
    assert "application/vnd.jupyter.widget-view+json" in front.put[0]
    assert "1 of 36 pairs judged by x" in front.put[-1]["text/plain"]


def test_the_last_vote_leaves_the_table_and_showing_it_again_does_not_reopen_it(grid: Comparison, front: Front) -> None:
    review = judge(grid.review(), until=35)
    review._ipython_display_()
    front.press(k="hello")
    front.press(k="vote", vote="skip", number=35)
    assert review.done
    assert front.closed
    review._ipython_display_()
    assert set(front.put[-1]) == {"text/html", "text/plain"}

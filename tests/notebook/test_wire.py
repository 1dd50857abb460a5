"""What goes to the browser: how much of it, and that the browser ends up with what Python rendered."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from rein_nb.agent import events as ev
from rein_nb.ir import Message, deltas
from rein_nb.notebook.live import FLUSH_S
from rein_nb.notebook.markdown import render
from rein_nb.notebook.render import Renderer
from rein_nb.notebook.replay import state_of
from rein_nb.notebook.sanitize import visible
from rein_nb.notebook.saved import bundle_of
from rein_nb.notebook.tail import TAGS, MarkdownTail, references, resolve
from rein_nb.notebook.view_model import ViewState, apply
from rein_nb.notebook.widget import _assets
from rein_nb.notebook.wire import Encoder
from rein_nb.stream import Accumulator
from tests.notebook.script import ANSWER, Script, weather

PARAGRAPHS = [
    "The **first** thing to note is that the estimate depends on the prior, and on nothing else that we measured here.",
    "## Results",
    "| model | score | cost |\n|---|--:|--:|\n| one | 0.91 | 1.2 |\n| two | 0.88 | 0.4 |\n| three | 0.73 | 0.1 |",
    "1. Load the data with `read_csv`.\n2. Drop rows with missing values.\n3. Fit the model, then look at the residuals.",
    "```python\nimport numpy as np\n\ndef mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / len(values)\n```",
    "It follows that $a^2 + b^2 = c^2$, so the *distance* is 5; see the notes for why — naïve readings fail here \U0001f642.",
    "> A quoted remark that goes on for a while, as remarks do, until it ends.",
]


def prose(characters: int) -> str:
    rng = random.Random(7)
    text = ""
    while len(text) < characters:
        text += rng.choice(PARAGRAPHS) + "\n\n"
    return text[:characters]


class Screen:
    """The browser's end in Python: what the text block shows after each message."""

    def __init__(self) -> None:
        self.html, self.tail = "", ""

    def receive(self, ops: list[Any]) -> None:
        for op in ops:
            if isinstance(op, str):
                self.tail += op
            elif op[0] == "s":
                self.tail = op[1]
            elif op[0] == "b":
                self.html += resolve(op[1:], self.tail)
                self.tail = ""


def stream(tokens: int, per_second: float, size: int = 5) -> tuple[float, int, Screen, str]:
    """(bytes of content per token, messages, the screen, the text) for tokens of `size` bytes, flushed as `Live` does."""
    text = prose(tokens * size)
    state = ViewState()
    encoder, chosen, screen = Encoder(state), [], Screen()
    accumulator = Accumulator()
    total = messages = 0
    due = 0.0
    events = [accumulator.feed(deltas.Text(text[i : i + size])) for i in range(0, len(text), size)]
    events.append(accumulator.feed(deltas.PartEnd("text")))
    for number, produced in enumerate(events):
        for event in produced:
            encoder.take(apply(state, ev.MessageUpdate(event=event)))
        now = number / per_second
        if now >= due or number == len(events) - 1:
            due = now + FLUSH_S
            ops = encoder.flush(chosen)
            if ops:
                messages += 1
                screen.receive(ops)
                content = {"data": {"method": "custom", "content": [messages, *ops]}, "comm_id": "0123456789"}
                total += len(json.dumps(content, ensure_ascii=False).encode())
    return total / tokens, messages, screen, text


@pytest.mark.parametrize(("tokens", "per_second", "limit"), [(2_000, 60, 45), (20_000, 60, 45), (20_000, 500, 20)])
def test_C119_bytes_per_token_stay_small_and_do_not_grow(tokens: int, per_second: float, limit: float) -> None:
    per_token, messages, screen, text = stream(tokens, per_second)
    assert per_token <= limit
    assert messages / (tokens / per_second) <= 30
    assert re.sub(r"\s+", "", screen.html) == re.sub(r"\s+", "", render(text, static=False))
    assert screen.tail == ""


FRAME = 540
"""Bytes of a comm message on the websocket that are not its content: two headers of about 230, offsets, channel."""


def test_a_whole_cell_of_20_000_characters_is_at_most_a_quarter_of_a_megabyte() -> None:
    per_token, messages, _, text = stream(5_000, 500, size=4)
    saved = bundle_of(state_of(Message(role="assistant", content=text)))
    live = per_token * 5_000 + messages * FRAME + sum(len(part.encode()) for part in _assets())
    assert live + len(json.dumps(saved, ensure_ascii=False).encode()) + 10 * FRAME <= 250_000


def test_both_ends_have_the_same_list_of_frequent_tags() -> None:
    script = _assets()[0]
    groups = json.loads(re.search(r"const TAGS = (\[.*?\])", script)[1])  # type: ignore[index]
    rest = re.search(r"concat\(\s*'(.*?)'\.split", script)[1].split("|")  # type: ignore[index]
    assert (*(f'<span class="rein-{name}">' for name in groups), *rest) == TAGS
    assert len(TAGS) <= 32
    assert visible("\x80\x9f") == "⟨U+0080⟩⟨U+009F⟩"


@pytest.mark.parametrize("size", [1, 3, 8, 40])
def test_the_browser_ends_up_with_what_python_renders(size: int) -> None:
    tail, screen = MarkdownTail(), Screen()
    for start in range(0, len(ANSWER), size):
        tail.take(ANSWER[start : start + size])
        screen.receive(tail.flush())
        assert screen.tail == tail.sent
    tail.end()
    screen.receive(tail.flush())
    assert screen.html == "".join(tail.html)
    assert re.sub(r"\s+", "", screen.html) == re.sub(r"\s+", "", render(ANSWER, static=False))


def test_references_need_no_escaping_and_count_as_the_browser_does() -> None:
    text = "smile \U0001f642 then a long plain run & more of it"
    markup = "<p>smile \U0001f642 then a long plain run &amp; more of it</p>"
    pieces = references(markup, text)
    assert resolve(pieces, text) == markup
    assert any(isinstance(piece, int) for piece in pieces)
    start = 0
    for skip, length in zip(pieces[1::3], pieces[2::3], strict=True):
        start += int(skip)
        copied = text.encode("utf-16-le")[2 * start : 2 * (start + int(length))].decode("utf-16-le")
        assert not set("<>&") & set(copied)
        start += int(length)


def test_a_snapshot_at_any_moment_is_what_was_sent_so_far() -> None:
    script = weather()
    state = ViewState()
    encoder, chosen = Encoder(state), []
    tails: dict[str, str] = {}
    for event in script.events:
        encoder.take(apply(state, event))
        for op in encoder.flush(chosen):
            if isinstance(op, str):
                tails[chosen[0]] = tails.get(chosen[0], "") + op
            elif op[0] in ("s", "b"):
                tails[chosen[0]] = op[1] if op[0] == "s" else ""
        blocks = encoder.snapshot()[0]
        if (
            chosen
            and chosen[0].endswith(state.blocks[-1].id)
            and tails.get(chosen[0])
            and state.blocks[-1].tool is None
        ):
            assert tails[chosen[0]].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in blocks
    assert encoder.snapshot()[2:] == ["done", "Done"]
    final = "".join(Renderer(static=False, prefix="0-").block(block) for block in state.blocks)
    assert re.sub(r"\s+", "", encoder.snapshot()[0]) == re.sub(r"\s+", "", final)


def test_progress_is_coalesced() -> None:
    script = Script()
    call = script.turn(
        deltas.ToolOpen(part="1", id="1", name="f"), deltas.ToolArgs("{}", part="1"), finish="tool_calls"
    ).tool_calls[0]
    state = ViewState()
    encoder = Encoder(state)
    for event in script.events:
        encoder.take(apply(state, event))
    encoder.flush([])
    encoder.take(apply(state, ev.ToolExecutionStart(call=call)))
    for n in range(1000):
        encoder.take(apply(state, ev.ToolExecutionUpdate(call_id="1", message=f"step {n}", fraction=n / 1000)))
    ops = encoder.flush([])
    assert len(json.dumps(ops)) < 1500
    assert "step 999" in json.dumps(ops)


def test_thinking_folds_when_it_is_done() -> None:
    script = Script()
    script.turn(deltas.Thinking("hm hm"), deltas.PartEnd("thinking"), deltas.Text("yes"))
    state = ViewState()
    encoder, sent = Encoder(state), []
    for event in script.events:
        encoder.take(apply(state, event))
        sent += encoder.flush([])
    assert 'open=""' in next(op for op in sent if op[0] == "a")[3]
    assert ["d", "0-b0", 0] in sent
    assert ["u", "0-b0", "summary", "Thinking · 2 words"] in sent


def test_thinking_folds_when_an_answer_follows_on_a_wire_that_does_not_end_it() -> None:
    script = Script()
    script.turn(deltas.Thinking("hm hm"), deltas.Text("yes"), deltas.Text(" and more"))
    state = ViewState()
    encoder = Encoder(state)
    folded_at = None
    for number, event in enumerate(script.events):
        encoder.take(apply(state, event))
        if ["d", "0-b0", 0] in encoder.flush([]):
            assert folded_at is None
            folded_at = number
    assert folded_at is not None
    assert folded_at < len(script.events) - 4

"""CPU of the kernel for the live display of 20,000 tokens, beside a whole-text update at every one of 2,000 tokens.

The other side is what chatlas 0.23 does at each delta (`IPyMarkdownDisplay._render`): ``update_display(Markdown(text so far))``. Both run in one
kernel, at the same pace; the loop's own cost is measured too and taken off. One JSON line.

    python -m tests.benchmarks.display
"""

from __future__ import annotations

import json
import statistics

from tests.notebook.kernel import Kernel

ROUNDS = 3

SETUP = """
%load_ext rein_nb
import asyncio, time
from IPython.display import Markdown, display, update_display
from rein_nb.agent import events as ev
from rein_nb.ir import deltas
from rein_nb.notebook.live import Live
from rein_nb.stream import Accumulator
from tests.notebook.test_wire import prose

TEXT = prose(100_000)
TOKENS = [TEXT[n : n + 5] for n in range(0, 100_000, 5)]

def events():
    accumulator = Accumulator()
    return [ev.MessageUpdate(event=event) for token in [*map(deltas.Text, TOKENS), deltas.PartEnd("text")] for event in accumulator.feed(token)]

async def paced(items, act):
    before, start = time.process_time(), time.monotonic()
    for number, item in enumerate(items):
        act(item)
        if number % 10 == 9:
            await asyncio.sleep(max(0.0, start + number / 1000 - time.monotonic()))
    return time.process_time() - before

async def whole_text():
    text = ""
    display(Markdown(""), display_id="theirs")
    def act(token):
        nonlocal text
        text += token
        update_display(Markdown(text), display_id="theirs")
    return await paced(TOKENS[:2000], act) - await paced(TOKENS[:2000], lambda token: None)

async def ours():
    made = events()
    live = Live()
    live._message({"k": "hello"})
    spent = await paced(made, live.feed)
    before = time.process_time()
    live.finish()
    return spent + time.process_time() - before - await paced(made, lambda event: None)
"""


def main() -> None:
    """Measure."""
    rounds = []
    with Kernel() as kernel:
        kernel.run(SETUP)
        for _ in range(ROUNDS):
            theirs = float(kernel.run("print(await whole_text())", 120).text.split()[-1])
            mine = float(kernel.run("print(await ours())", 120).text.split()[-1])
            rounds.append((mine, theirs))
    ratio = statistics.median(mine / theirs for mine, theirs in rounds)
    seconds = [[round(value, 2) for value in pair] for pair in rounds]
    print(
        json.dumps({"figure": "display CPU, 20,000 tokens against 2,000", "ratio": round(ratio, 2), "cpu_s": seconds})
    )


if __name__ == "__main__":
    main()

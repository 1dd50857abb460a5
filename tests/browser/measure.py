"""What the display costs, measured in JupyterLab in a real browser: one JSON line a figure.

python -m tests.browser.measure [bytes] [seen] [stop] [ready]
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.browser.harness import Lab

SETUP = """
%load_ext rein_nb
import time
from rein_nb.testing import ScriptedProvider
from tests.notebook.test_wire import prose
TEXT = prose(20_000)
PIECES = [TEXT[i : i + 4] for i in range(0, 20_000, 4)]
fast = ScriptedProvider.llm(PIECES, delay_s=0.0005, repeat=True)
steady = ScriptedProvider.llm(PIECES[:1200], delay_s=0.004, repeat=True)
slow = ScriptedProvider.llm(["word "] * 2000, delay_s=0.05, repeat=True)
quick = ScriptedProvider.llm("ok", repeat=True)
"""


def say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


def measure_bytes(lab: Lab) -> None:
    """20,000 characters in 5,000 deltas."""
    page = lab.open(
        SETUP,
        "started = time.time()\nbefore = time.process_time()",
        "%%agent -m fast\ngo",
        "print(time.time() - started, time.process_time() - before)",
    )
    page.run(0)
    page.run(1)
    page.bytes.clear()
    page.frames.clear()
    page.wire_bytes = 0
    page.run(2, timeout_s=120)
    wire = page.wire_bytes
    sent = {kind: size for (channel, kind), size in page.bytes.items() if channel == "iopub"}
    counts = {kind: number for (channel, kind), number in page.frames.items() if channel == "iopub"}
    page.run(3)
    wall, cpu = map(float, page.text(3).split())
    say(figure="bytes", all_frames=wire, content=sent, messages=counts, wall_s=round(wall, 1), cpu_s=round(cpu, 2))
    page.close()


CLOCK = """
import asyncio
from rein_nb import LLM, Config
from rein_nb.ir import deltas as d
class Clock:
    name = 'clock'
    async def stream(self, request):
        start = time.time()
        for n in range(5000):
            yield d.Text(f'{n}:{time.time() * 1000:.0f} ' + ('\\n\\n' if n % 40 == 39 else ''))
            await asyncio.sleep(max(0, start + n / 200 - time.time()))
        yield d.Finish('stop')
        yield d.End()
clock = LLM(Config(provider='clock', model='clock'), provider=Clock())
"""
WATCH = """() => { window.__lags = []; window.__gaps = []; let last = 0, known = -1;
const look = t => { if (last) window.__gaps.push(t - last); last = t;
  const live = document.querySelector('.rein-live'); const now = Date.now();
  if (live) {
    const blocks = [...live.querySelectorAll('.rein-md > *')].slice(-4).map(n => n.textContent).join(' ');
    const tail = live.querySelector('.rein-tail');
    for (const m of (blocks + ' ' + (tail ? tail.textContent : '')).matchAll(/(\\d+):(\\d{13})/g))
      if (Number(m[1]) > known) { known = Number(m[1]); window.__lags.push(now - Number(m[2])); }
  }
  requestAnimationFrame(look); }; requestAnimationFrame(look); }"""


def measure_seen(lab: Lab) -> None:
    """How long after a delta reached the kernel it is in the page, 5,000 of them at 200 a second: a clock in the text, read at every frame."""
    page = lab.open(SETUP, CLOCK, "%%agent -m clock\ngo", "%%agent -m quick\ngo")
    page.run(0)
    page.run(1)
    # What the front end loads for the first widget of a page is not what this is about.
    page.run(3)
    page.page.evaluate(WATCH)
    page.run(2, timeout_s=120)
    lags = sorted(page.page.evaluate("() => window.__lags"))
    gaps = page.page.evaluate("() => window.__gaps")
    say(figure="seen_ms", n=len(lags), p50=lags[len(lags) // 2], p95=lags[int(len(lags) * 0.95)], worst=lags[-1], frames=len(gaps),
        frames_over_100_ms=sum(gap > 100 for gap in gaps), worst_frame_ms=round(max(gaps)), load=os.getloadavg()[0])  # fmt: skip
    page.close()


def measure_stop(lab: Lab) -> None:
    """From the click on stop to the run being cancelled, in an awaiting and in a blocking cell."""
    patch = (
        "from rein_nb.agent.handle import AgentRun\nclicks = []\nold = AgentRun.cancel\n"
        "def cancel(self, reason=None):\n    clicks.append(time.time() * 1000)\n    return old(self, reason)\nAgentRun.cancel = cancel"
    )
    page = lab.open(
        SETUP, patch, "%%agent -m slow\ngo", "pass\n%agent -m slow go\npass", "print(clicks[-1], _agent.stop_reason)"
    )
    page.run(0)
    page.run(1)
    for kind, cell in (("await", 2), ("blocking", 3)):
        times = []
        for _ in range(10):
            page.run(cell, wait=False)
            page.output(cell).get_by_text("word word").first.wait_for(timeout=15_000)
            clicked = page.page.evaluate(
                "() => { const b = document.querySelector('.rein-live button[data-act=stop]'); const t = Date.now(); b.click(); return t; }"
            )
            page.idle(20)
            page.run(4)
            at, reason = page.text(4).split()
            assert reason == "cancelled"
            times.append(float(at) - clicked)
        times.sort()
        say(figure="stop_ms", cell=kind, p50=round(times[5]), p95=round(times[-1]))
    page.close()


OPENED = """
from rein_nb.notebook.live import Live
opened = []
before = Live._open
def _open(self):
    opened.append(time.time() * 1000)
    before(self)
Live._open = _open
"""


def measure_ready(lab: Lab) -> None:
    """From the moment when the kernel makes the widget to the frame that has it, the first one of the page apart."""
    page = lab.open(SETUP, OPENED, "%%agent -m slow\ngo", "print(opened[-1])")
    page.run(0)
    page.run(1)
    times = []
    for _ in range(8):
        page.page.evaluate(
            "() => { window.__ready = 0; const look = () => { const n = document.querySelector('.rein-live .rein-blocks > *');"
            " if (n) window.__ready = Date.now(); else requestAnimationFrame(look); }; requestAnimationFrame(look); }"
        )
        page.run(2, wait=False)
        page.page.wait_for_function("() => window.__ready > 0", timeout=20_000)
        ready = page.page.evaluate("() => window.__ready")
        page.interrupt()
        page.idle(20)
        page.run(3)
        times.append(round(ready - float(page.text(3))))
    say(figure="ready_ms", first=times[0], others=sorted(times[1:]), load=os.getloadavg()[0])
    page.close()


MEASURES = {"bytes": measure_bytes, "seen": measure_seen, "stop": measure_stop, "ready": measure_ready}


def main() -> None:
    """Measure what the command line names, or everything."""
    with Lab() as lab:
        for name in sys.argv[1:] or MEASURES:
            MEASURES[name](lab)


if __name__ == "__main__":
    main()

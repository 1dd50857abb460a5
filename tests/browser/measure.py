"""What the display costs, measured in JupyterLab in a real browser: one JSON line a figure.

python -m tests.browser.measure [bytes] [seen] [stop] [ready]
"""

from __future__ import annotations

import json
import sys
import time
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


def measure_seen(lab: Lab) -> None:
    """How long after a delta reached the kernel it is in the page: a clock in the text, read in the browser."""
    clock = (
        "import time\nfrom rein_nb.testing import ScriptedProvider\n"
        "from rein_nb import Agent\n"
        "def stamps():\n    return [f't{time.time() * 1000:.0f} ']\n"
        "from rein_nb.ir import deltas as d\nimport asyncio\n"
        "class Clock:\n    name = 'clock'\n    async def stream(self, request):\n        for n in range(1000):\n"
        "            yield d.Text(f'[{time.time() * 1000:.0f}] ')\n            await asyncio.sleep(0.005)\n        yield d.Finish('stop')\n        yield d.End()\n"
        "from rein_nb import LLM, Config\nclock = LLM(Config(provider='clock', model='clock'), provider=Clock())"
    )
    page = lab.open(SETUP, clock, "%%agent -m clock\ngo")
    page.run(0)
    page.run(1)
    page.page.evaluate(
        """() => { window.__lags = []; window.__gaps = []; let last = 0, known = 0;
        const look = t => { if (last) window.__gaps.push(t - last); last = t;
          const tail = document.querySelector('.rein-live .rein-tail'); const text = tail ? tail.textContent : '';
          const all = [...text.slice(known).matchAll(/\\[(\\d{13})\\]/g)];
          if (all.length) { const now = Date.now(); for (const m of all) window.__lags.push(now - Number(m[1])); known = text.lastIndexOf(']') + 1; }
          requestAnimationFrame(look); }; requestAnimationFrame(look); }"""
    )
    page.run(2, timeout_s=120)
    lags = sorted(page.page.evaluate("() => window.__lags"))
    gaps = page.page.evaluate("() => window.__gaps")
    say(figure="seen_ms", n=len(lags), p50=lags[len(lags) // 2], p95=lags[int(len(lags) * 0.95)], worst=lags[-1],
        frames_over_100_ms=sum(gap > 100 for gap in gaps), worst_frame_ms=round(max(gaps)))  # fmt: skip
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


def measure_ready(lab: Lab) -> None:
    """From the widget's display to its being drawn."""
    page = lab.open(SETUP, "%%agent -m slow\ngo")
    page.run(0)
    times = []
    for _ in range(5):
        page.page.evaluate("() => { document.querySelectorAll('.rein-live').forEach(n => n.remove()) }")
        started = time.monotonic()
        page.run(1, wait=False)
        page.output(1).locator(".rein-live").wait_for(timeout=10_000)
        times.append(time.monotonic() - started)
        page.interrupt()
        page.idle(20)
    say(figure="ready_ms", all=[round(1000 * t) for t in times])
    page.close()


MEASURES = {"bytes": measure_bytes, "seen": measure_seen, "stop": measure_stop, "ready": measure_ready}


def main() -> None:
    """Measure what the command line names, or everything."""
    with Lab() as lab:
        for name in sys.argv[1:] or MEASURES:
            MEASURES[name](lab)


if __name__ == "__main__":
    main()

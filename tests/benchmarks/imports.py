"""`import rein_nb` beside `import pydantic`: CPU of a fresh process, less that of a bare interpreter."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

ROUNDS = 9


def _cpu_s(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def measure() -> dict[str, float]:
    """Ratios, medians of interleaved rounds. The names are loaded lazily, so the vocabulary is measured too."""
    codes = {
        "bare": "pass",
        "pydantic": "import pydantic; pydantic.BaseModel",
        "rein_nb": "import rein_nb",
        "vocabulary": "import rein_nb; rein_nb.Message, rein_nb.LLM",
    }
    samples: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(ROUNDS):
        for name, code in codes.items():
            samples[name].append(_cpu_s(code))
    cost = {name: statistics.median(values) for name, values in samples.items()}
    for name, s in cost.items():
        print(f"{name}: {s * 1e3:.0f} ms")
    base = cost["pydantic"] - cost["bare"]
    return {
        "import rein_nb / import pydantic": (cost["rein_nb"] - cost["bare"]) / base,
        "import rein_nb, Message and LLM / import pydantic": (cost["vocabulary"] - cost["bare"]) / base,
    }


if __name__ == "__main__":
    for name, ratio in measure().items():
        print(f"{name}: {ratio:.2f}")

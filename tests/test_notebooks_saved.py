"""The tutorials are saved with the outputs that executing them gives, and say what in them is a sample and what is real.

``python -m tests.test_notebooks_saved [name ...]`` executes them and saves what they print (all by default). Executed again they give the same to the byte: a
recording has its own times, and what asks the embedded model is executed with ``REIN_NB_STEADY=1``, without any. On another kind of processor that model
may choose another word; there, executing twice must give the same twice.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from rein_nb.providers.local import fetch, find_model
from tests.support import REPO

NOTEBOOKS = sorted((REPO / "notebooks").glob("*.ipynb"))

LIVE = ("01_first_light", "02_compare")
"""Tutorials that ask the embedded model in nearly every cell. In others, a cell that does begins with ``# live``."""

MACHINE = (
    r"/(home|Users|var|private)/|[A-Z]:\\"  # a path of somebody's machine, and of this one
    rf"|{re.escape(tempfile.gettempdir())}\b|{re.escape(str(Path.home()))}\b|{re.escape(str(REPO))}\b"
    r"|0x[0-9a-f]{6,}"  # an address
)
VOLATILE = re.compile(
    rf"{MACHINE}"
    r"|\b\d+(\.\d+)? m?s\b"  # a duration that was measured
    r"|\b(?=[0-9]*[a-f])[0-9a-f]{12,}\b"  # an id
    r"|\b20\d\d-\d\d-\d\d"  # a date
)


def is_played(path: Path) -> bool:
    """Whether a tutorial plays a recording that lies beside it: its times and ids are then the recording's."""
    return f"recordings/{path.stem}.jsonl" in path.read_text(encoding="utf-8")


def is_live(path: Path, cell: Any) -> bool:
    """Whether a cell asks the embedded model."""
    return path.stem in LIVE or bool(cell.source.startswith("# live"))


def execute(path: Path) -> Any:
    """The notebook, executed by this interpreter, with nothing in it that differs from run to run."""
    notebook: Any = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        extra_arguments=["--log-level=ERROR"],
    )
    # The kernel runs this checkout, whether or not it is installed.
    paths = [str(REPO), *filter(None, [os.environ.get("PYTHONPATH")])]
    steady = "1" if any(is_live(path, cell) for cell in notebook.cells) else "0"
    client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "REIN_NB_STEADY": steady})
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    return notebook


def joined(outputs: list[Any]) -> list[Any]:
    """Outputs with what was printed in one piece: how it was cut depends on timing."""
    out: list[Any] = []
    for output in outputs:
        if out and output.output_type == "stream" and out[-1].output_type == "stream" and out[-1].name == output.name:
            out[-1].text += output.text
        else:
            out.append(output)
    return out


def shown(cell: Any) -> list[dict[str, Any]]:
    """A cell's outputs as data, whichever form the file gives texts in."""
    return [dict(output) for output in cell.get("outputs", [])]


def test_there_are_such_tutorials() -> None:
    assert len(NOTEBOOKS) == 10


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_is_saved_with_the_outputs_that_it_gives(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "GEMINI_API_KEY", "REIN_NB_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    saved: Any = nbformat.read(path, as_version=4)
    if any(is_live(path, cell) for cell in saved.cells):
        fetch(find_model("smollm2-135m"), None)  # a first time says in the cell that it fetches
    executed = execute(path)
    again: Any = None
    for number, (before, after) in enumerate(zip(saved.cells, executed.cells, strict=True)):
        if is_live(path, after) and shown(before) != shown(after):
            again = again or execute(path)
            before = again.cells[number]
        assert shown(before) == shown(after), f"{path.name}, cell {number}: save it anew (see the top of this file)"
    assert [cell.get("execution_count") for cell in saved.cells] == [c.get("execution_count") for c in executed.cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorials_outputs_have_no_time_id_or_path(path: Path) -> None:
    differs = re.compile(MACHINE) if is_played(path) else VOLATILE
    for cell in nbformat.read(path, as_version=4).cells:
        for output in shown(cell):
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr"
            text = str(output.get("text", "")) + "".join(map(str, output.get("data", {}).values()))
            assert differs.search(text) is None, text


@pytest.mark.parametrize("stem", LIVE)
def test_what_the_embedded_model_is_asked_comes_to_an_end(stem: str) -> None:
    text = (REPO / "notebooks" / f"{stem}.ipynb").read_text(encoding="utf-8")
    assert "was cut" not in text
    assert "Not executed" not in text
    assert "done" in text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_says_what_you_will_have_and_that_its_data_is_a_sample(path: Path) -> None:
    first = nbformat.read(path, as_version=4).cells[0].source
    assert "At the end of this notebook you will have" in first
    if path.stem in LIVE:
        assert "SmolLM2-135M" in first
    else:
        assert re.search(r"\*\*[^*]*(scripted|sample|recorded|no model)[^*]*\*\*", first), (
            "say in bold what is a sample"
        )


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if is_played(path)], ids=lambda path: path.stem)
def test_a_sample_is_called_so_wherever_a_models_name_stands(path: Path) -> None:
    recording = (path.parent / "recordings" / f"{path.stem}.jsonl").read_text(encoding="utf-8")
    requests = [json.loads(line)["request"] for line in recording.splitlines()[1:]]
    assert requests
    for request in requests:
        model = request["body"].get("model") or request["path"]
        assert "hand-written-sample" in model or request["provider"].startswith("local"), model


@pytest.mark.parametrize(
    "text",
    [
        "took 0.31 s",
        "12 ms",
        "in /home/somebody/x",
        f"in {tempfile.gettempdir()}/x",
        "id 0123456789abcdef",
        "at 0x7f00aa11",
        "2026-01-01",
    ],
)
def test_the_check_for_times_ids_and_paths_finds_them(text: str) -> None:
    assert VOLATILE.search(text)


if __name__ == "__main__":
    for path in NOTEBOOKS:
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            nbformat.write(execute(path), path)
            print("saved", path.relative_to(REPO))

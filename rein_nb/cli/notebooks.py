"""The notebooks that come with rein_nb: finding, executing, turning into HTML, opening."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

NEEDED = ("nbformat", "nbclient", "nbconvert", "ipykernel")
TIMEOUT_S = 300
"""Longest time for one cell."""


class NotebookFailed(Exception):
    """A cell of a notebook raised; the message has the cell and the error."""


def missing_packages() -> list[str]:
    """Which of the packages that execute notebooks are not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def find(name: str) -> Path:
    """A notebook of ours: in the installed package, or in the checkout that the package is run from.

    Raises
    ------
    FileNotFoundError
        Saying where it was looked for.
    """
    package = Path(__file__).resolve().parent.parent
    places = (package / "_notebooks", package.parent / "notebooks")
    for place in places:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(f"{name} is neither in {places[0]} nor in {places[1]}")


def execute(name: str, folder: Path, tell: Callable[[str], None]) -> tuple[Path, Path]:
    """Execute a notebook of ours into `folder`, as it is and as HTML.

    Parameters
    ----------
    name
        The file's name.
    folder
        Made where it is missing.
    tell
        Told which cell is running.

    Returns
    -------
    tuple
        Paths of the executed notebook and of its HTML.

    Raises
    ------
    NotebookFailed
        When a cell raised. What was executed so far is in the folder.
    """
    nbformat: Any = import_module("nbformat")
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook: Any = nbformat.read(find(name), as_version=4)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    total = sum(cell.cell_type == "code" for cell in notebook.cells)
    done = 0

    def started(cell: Any, cell_index: int) -> None:
        nonlocal done
        done += 1
        first = next(iter(cell.source.splitlines()), "")
        tell(f"  cell {done} of {total}: {first[:70]}")

    # This interpreter, whichever kernels are registered on the machine.
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        on_cell_execute=started,
        extra_arguments=["--log-level=ERROR"],
        coalesce_streams=True,  # a cell that prints as it streams is one text, as in JupyterLab
    )
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as exc:
        raise NotebookFailed(f"{name} failed:\n{exc}") from exc
    finally:
        nbformat.write(notebook, path)
    return path, _html(notebook, path)


_PAGE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block jupyter_widgets -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}
"""


def _html(notebook: Any, path: Path) -> Path:
    """The notebook as a page. nbconvert's usual template fetches scripts from the net; ours need none, so the page has none."""
    from jinja2 import DictLoader

    exporter: Any = import_module("nbconvert").HTMLExporter
    html = exporter(extra_loaders=[DictLoader({"rein_nb/page.html.j2": _PAGE})], template_file="rein_nb/page.html.j2")
    body, _ = html.from_notebook_node(notebook, {"metadata": {"name": path.stem}})
    page = path.with_suffix(".html")
    page.write_text(body, encoding="utf-8")
    return page


def open_lab(path: Path, console: Console) -> int:
    """Open JupyterLab on a notebook and stay until it ends; returns its exit status. Says how to install it when it is not there."""
    if importlib.util.find_spec("jupyterlab") is None:
        console.print(
            'To open it, install JupyterLab: pip install "rein-nb[lab]"; then: jupyter lab ' + str(path),
            style="yellow",
            markup=False,
        )
        return 0
    console.print("Opening JupyterLab; Ctrl-C ends it.", style="bold")
    return subprocess.run([sys.executable, "-m", "jupyterlab", str(path)], check=False).returncode

"""Notebooks that nobody watches: what nbclient executes and nbconvert draws."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.browser.harness import notebook
from tests.notebook.danger import dangers
from tests.notebook.test_safety import _VALUE, SECRETS
from tests.support import REPO

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

SETUP = f"""
import sys
sys.path.insert(0, {str(REPO)!r})
%load_ext rein_nb
from rein_nb import ThinkingPart, ToolCall, tool
from rein_nb.testing import ScriptedProvider
def get_weather(city: str) -> str:
    "Weather of a city."
    return f"18 degrees and cloudy in {{city}}"
@tool(requires_approval=True)
def delete(path: str) -> str:
    "Delete a file."
    return f"deleted {{path}}"
weather = ScriptedProvider.llm(
    [ThinkingPart(text="I need the tool."), ToolCall(id="1", name="get_weather", arguments={{"city": "Paris"}})],
    "In Paris it is **18 degrees** <script>alert(1)</script> ![x](https://evil.example/p.png).", repeat=True)
cautious = ScriptedProvider.llm([ToolCall(id="1", name="delete", arguments={{"path": "notes.txt"}})], "As you wish.")
"""


def execute(*cells: str, allow_errors: bool = False) -> Any:
    book = nbformat.from_dict(notebook(SETUP, *cells))
    nbclient.NotebookClient(
        book, timeout=60, allow_errors=allow_errors, resources={"metadata": {"path": str(REPO)}}
    ).execute()
    return book


@pytest.fixture(scope="module")
def executed() -> Any:
    return execute(
        "%%agent -m weather --tools get_weather\nWhat is the weather in Paris?",
        "_agent",
        "%%agent -m cautious --tools delete\nDelete it",
        "%%agent -m weather -m weather --tools get_weather\nWeather?",
    )


def data_of(book: Any, cell: int) -> list[dict[str, Any]]:
    return [output.get("data", output) for output in book.cells[cell].outputs if output.output_type != "stream"]


def test_C114_the_saved_output_is_static_and_whole(executed: Any) -> None:
    (data,) = data_of(executed, 1)
    assert set(data) == {"text/html", "text/markdown", "text/plain", "application/vnd.rein-nb.transcript+json"}
    for kind in ("text/html", "text/markdown", "text/plain"):
        for text in ("get_weather", "18 degrees and cloudy in Paris", "I need the tool."):
            assert text in data[kind]
    assert "widgets" not in executed.metadata


def test_a_last_value_shows_itself(executed: Any) -> None:
    (data,) = data_of(executed, 2)
    assert "18 degrees and cloudy in Paris" in data["text/html"]


def test_approval_is_denied_at_once_when_nobody_is_there(executed: Any) -> None:
    data = data_of(executed, 3)[-1]
    assert "denied" in data["text/plain"]
    assert "As you wish." in data["text/plain"]
    assert "deleted notes.txt" not in data["text/plain"]


def test_side_by_side_is_one_table(executed: Any) -> None:
    (data,) = data_of(executed, 4)
    assert data["text/html"].count("<table") == 1
    assert data["text/html"].count("18 degrees and cloudy in Paris") == 2


def test_nbconvert_draws_the_whole_transcript_without_script_or_request(executed: Any) -> None:
    from nbconvert import HTMLExporter, MarkdownExporter

    page, _ = HTMLExporter(template_name="lab").from_notebook_node(executed)
    for text in ("get_weather", "18 degrees and cloudy in Paris", "I need the tool."):
        assert text in page
    outputs = re.findall(
        r'<div class="rein-root mathjax_ignore tex2jax_ignore".*?</div>\s*(?=</div>\s*</div>)', page, re.S
    )
    assert len(outputs) >= 4
    assert [dangers(output) for output in outputs] == [[] for _ in outputs]
    assert 'evil.example/p.png"' not in re.sub(r'<a href="[^"]*"', "", page)
    markdown, _ = MarkdownExporter().from_notebook_node(executed)
    assert "18 degrees and cloudy in Paris" in markdown


@pytest.mark.slow
def test_no_secret_gets_into_a_saved_notebook() -> None:
    texts = list(SECRETS.values())
    book = execute(
        f"secrets = {texts!r}",
        "leaky = ScriptedProvider.llm([ToolCall(id='1', name='env', arguments={'k': ' '.join(secrets)})], 'I saw: ' + ' and '.join(secrets), repeat=True)\n"
        "def env(k: str) -> str:\n    'Environment.'\n    return chr(10).join(secrets)",
        "%%agent -m leaky --tools env\nshow",
        "def env(k: str) -> str:\n    'Environment.'\n    raise ValueError(' '.join(secrets))",
        "%%agent -m leaky --tools env --session two\nshow",
        "import os, traceback\nos.environ.update({f'LEAK_{n}': text for n, text in enumerate(secrets)})\n"
        "def env(k: str) -> str:\n    'Environment.'\n    try:\n        raise KeyError(dict(os.environ))\n"
        "    except KeyError:\n        return str(dict(os.environ)) + traceback.format_exc()",
        "%%agent -m leaky --tools env --session four\nshow",
        "from rein_nb import Agent\nAgent(leaky, tools=[env]).run('show me ' + secrets[0])",
        "from rein_nb import ErrorInfo, ProviderError\nleaky = ScriptedProvider.llm(ProviderError(ErrorInfo.make('server_error', ' '.join(secrets))))",
        "%%agent -m leaky --session three\nshow",
        allow_errors=True,
    )
    outputs = json.dumps([cell.outputs for cell in book.cells[3:]])
    found = [kind for kind, text in SECRETS.items() if json.dumps(_VALUE.get(kind, text))[1:-1] in outputs]
    assert found == []
    assert "redacted" in outputs

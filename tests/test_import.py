"""What `import rein_nb` costs and exposes."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import rein_nb

HEAVY = ("openai", "anthropic", "pandas", "ipywidgets", "anywidget", "IPython", "numpy", "httpx2", "aiohttp")


def test_import_loads_no_sdk_no_pandas_and_no_widget_library() -> None:
    code = f"import json, sys, rein_nb; print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == []


def test_making_an_agent_and_asking_a_scripted_model_loads_no_pandas_and_no_widget_library() -> None:
    code = (
        "import json, sys; from rein_nb import Agent; from rein_nb.testing import ScriptedProvider;"
        "assert Agent(ScriptedProvider.llm('hi')).run('x').text == 'hi';"
        "print(json.dumps([m for m in ('pandas', 'ipywidgets', 'anywidget', 'IPython') if m in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == []


def test_every_public_name_exists() -> None:
    for name in rein_nb.__all__:
        assert getattr(rein_nb, name) is not None, name
    assert set(rein_nb.__all__) <= set(dir(rein_nb))


def test_the_typed_names_are_the_runtime_names() -> None:
    tree = ast.parse(Path(rein_nb.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {(n.module, a.name) for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert typed == {(module, name) for module, names in rein_nb._WHERE.items() for name in names}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        rein_nb.no_such_name  # noqa: B018

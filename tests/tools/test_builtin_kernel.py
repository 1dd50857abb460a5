"""The python tool in a real kernel: an agent's code runs among the cell's variables and its output goes to the agent, not to the cell."""

from __future__ import annotations

import json
from typing import Any

import pytest

manager = pytest.importorskip("jupyter_client.manager")
pytest.importorskip("ipykernel")

CELL = """
import json
from rein_nb.agent import Agent
from rein_nb.ir import ToolCall
from rein_nb.testing import ScriptedProvider
from rein_nb.tools.builtin import toolset

mine = 20
CODE = (
    "import sys\\n"
    "from IPython.display import display, HTML\\n"
    "print('printed')\\n"
    "print('error', file=sys.stderr)\\n"
    "display(HTML('<b>shown</b>'))\\n"
    "mine += 22\\n"
    "%who_ls int\\n"
    "mine"
)
llm = ScriptedProvider.llm(ToolCall(id="1", name="python", arguments={"code": CODE}), "done")
agent = Agent(llm, tools=toolset(include=("python",), approve=False))
result = agent.run("go")
print("RESULT", json.dumps([result.tool_runs[0].result.text, mine]))
"""


def execute(client: Any, code: str) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    client.execute_interactive(code, output_hook=seen.append, timeout=60)
    return seen


def test_code_runs_among_the_cells_variables_and_its_output_is_the_agents() -> None:
    kernel, client = manager.start_new_kernel(kernel_name="python3")
    try:
        messages = execute(client, CELL)
        after = execute(client, "print('the cell', mine)")
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    errors = [m["content"] for m in messages if m["msg_type"] == "error"]
    assert errors == []
    printed = "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")
    assert printed.startswith("RESULT ")
    text, mine = json.loads(printed.removeprefix("RESULT "))
    assert mine == 42
    assert text == "printed\nerror\n<IPython.core.display.HTML object>\n42"
    assert not [m for m in messages if m["msg_type"] == "display_data"]
    assert "".join(m["content"]["text"] for m in after if m["msg_type"] == "stream") == "the cell 42\n"

"""What the tests of several tools share."""

from __future__ import annotations

from typing import Any

from rein_nb.ir import ToolCall, ToolResult
from rein_nb.tools import Toolset


async def use(tools: Toolset, name: str, **arguments: Any) -> ToolResult:
    """The result of one call."""
    return await tools[name].call(ToolCall(id="1", name=name, arguments=arguments))

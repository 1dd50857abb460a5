"""Tools: a Python function becomes something a model can call.

Lives here: `@tool` and `Tool` (one resolved signature gives schema, validation and call), `ToolContext`, `Toolset`, the
execution of one call, the rendering of results, and the words for every way a call can end.

May import: `ir`, `stream`, pydantic. May not know: agents, providers, notebooks, pandas (frames are recognised by duck typing).
"""

from rein_nb.tools.context import Progress, ToolContext
from rein_nb.tools.decorator import as_tool, tool
from rein_nb.tools.names import ToolDefinitionError
from rein_nb.tools.signature import InvalidArguments
from rein_nb.tools.tool import Outcome, Tool
from rein_nb.tools.toolset import Toolset

__all__ = [
    "InvalidArguments",
    "Outcome",
    "Progress",
    "Tool",
    "ToolContext",
    "ToolDefinitionError",
    "Toolset",
    "as_tool",
    "tool",
]

"""A server's tools as a toolset that is kept like the server's list."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Protocol

from rein_nb.ir import ToolResult, ToolSpec
from rein_nb.ir.base import own_copy
from rein_nb.tools.context import ToolContext
from rein_nb.tools.mcp.naming import tool_names
from rein_nb.tools.tool import NeedsApproval, Tool
from rein_nb.tools.toolset import Toolset

log = logging.getLogger("rein_nb.tools.mcp")


class Server(Protocol):
    """Where the calls go."""

    timeout_s: float | None

    async def call(self, tool: str, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolResult:
        """Call one tool by the server's own name for it."""
        ...


class View(Toolset):
    """One toolset of a server, kept like the server's list."""

    def __init__(self, server: Server, prefix: str, approve: NeedsApproval) -> None:
        super().__init__()
        self._server = server
        self._prefix = prefix
        self._approve = approve

    def __copy__(self) -> Toolset:
        return Toolset([self])  # the server goes on to keep this one

    def update(self, listed: list[Any]) -> None:
        """Take over the server's list."""
        names = tool_names([found.name for found in listed], self._prefix)
        wanted = {tool.name: tool for found in listed if (tool := self._tool(found, names[found.name])) is not None}
        for tool in list(self):
            new = wanted.get(tool.name)
            if not isinstance(tool, MCPTool):
                wanted.pop(tool.name, None)  # the user's own, which was added to the toolset
            elif new is None or new.spec() != tool.spec():
                self.remove(tool.name)
            else:
                del wanted[tool.name]
        for tool in wanted.values():
            self.add(tool)

    def _tool(self, found: Any, name: str) -> Tool | None:
        try:
            return MCPTool(self._server, found, name, self._approve)
        except ValueError as exc:
            log.warning("the MCP server's tool %r was left out: %r", found.name[:100], str(exc))
            return None


class MCPTool(Tool):
    """A tool of an MCP server. Its schema is the server's own, which also checks the arguments."""

    def __init__(self, server: Server, found: Any, name: str, approve: NeedsApproval) -> None:
        own_name = found.name

        async def forward(rein_nb_context: ToolContext[Any], **arguments: Any) -> ToolResult:
            return await server.call(own_name, arguments, rein_nb_context)

        description = found.description or getattr(found, "title", None) or ""
        super().__init__(
            forward, name=name, description=description, timeout_s=server.timeout_s, requires_approval=approve
        )
        self.own_name: str = own_name
        self.own_schema: dict[str, Any] = found.input_schema
        self.spec()

    def judged(self, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What a ``requires_approval`` function judges: the arguments as the server will get them."""
        yield own_copy(arguments)

    def spec(self) -> ToolSpec:
        """The tool as a model sees it, with the server's schema unchanged."""
        spec = self._spec
        if spec is None:
            spec = self._spec = ToolSpec(
                name=self.name, description=self.description, parameters=self.own_schema, strict=self.strict
            )
        return spec

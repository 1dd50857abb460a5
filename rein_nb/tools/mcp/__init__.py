"""Tools of MCP servers (Model Context Protocol), through the official ``mcp`` package, which is the extra ``rein-nb[mcp]``.

Lives here: `MCPServer`; the connection that one task owns, the names, the conversion of results.

May import: `ir`, `stream`, `aio`, the rest of `tools`, and ``mcp`` inside functions. May not know: agents.
"""

from rein_nb.tools.mcp.server import MCPError, MCPServer

__all__ = ["MCPError", "MCPServer"]

"""A small real MCP server for the tests: ``python mcp_server.py stdio`` or ``python mcp_server.py http PORT``."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16

server = MCPServer("test-server", instructions="Be kind.", log_level="ERROR")


class Sum(BaseModel):
    total: int
    terms: list[int]


@server.tool()
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b, terms=[a, b])


@server.tool(name="with.dots/and slashes")
def odd(text: str = "x") -> str:
    """A name that no provider takes."""
    return text


@server.tool()
def fails() -> str:
    """Always fails."""
    raise ToolError("it went wrong")


@server.tool()
async def works(steps: int, ctx: Context) -> str:
    """Reports progress."""
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
    return "worked"


@server.tool()
async def sleeps(seconds: float, path: str) -> str:
    """Sleeps, and notes in a file how it ended."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        with open(path, "w") as file:
            file.write("cancelled")
        raise
    return "slept"


@server.tool()
def shrinks() -> str:
    """Is taken away by `grow`."""
    return "here"


@server.tool()
def picture() -> Any:
    """An image."""
    return ["here", Image(data=PNG, format="png")]


@server.tool(structured_output=False)
def media() -> CallToolResult:
    """A sound, resources, a link."""
    return CallToolResult(
        content=[
            AudioContent(type="audio", data=base64.b64encode(b"RIFF0000WAVE").decode(), mime_type="audio/wav"),
            EmbeddedResource(
                type="resource", resource=TextResourceContents(uri="memo://one", text="a memo", mime_type="text/plain")
            ),
            EmbeddedResource(
                type="resource",
                resource=BlobResourceContents(
                    uri="memo://pdf", blob=base64.b64encode(b"%PDF-1").decode(), mime_type="application/pdf"
                ),
            ),
            EmbeddedResource(
                type="resource",
                resource=BlobResourceContents(
                    uri="memo://zip", blob=base64.b64encode(b"PK12").decode(), mime_type="application/zip"
                ),
            ),
            ResourceLink(type="resource_link", uri="memo://two", name="two", mime_type="text/plain"),
            TextContent(type="text", text="end"),
        ]
    )


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool and takes one away."""

    def grown(x: int) -> int:
        """New."""
        return x + 1

    server.add_tool(grown, "grown")
    server.remove_tool("shrinks")
    await ctx.notify_tools_changed()
    return "grown"


@server.tool()
def environment() -> dict[str, str]:
    """What the server sees of the environment."""
    return dict(os.environ)


@server.tool()
def die() -> str:
    """Ends the server at once."""
    os._exit(3)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    elif sys.argv[1] == "broken":
        print("cannot start: api_key=sk-abcdefghijklmnopqrstuv", file=sys.stderr)
        sys.exit(1)
    elif sys.argv[1] == "silent":
        sys.stdin.read()
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))

"""An MCP server over HTTP, by hand, whose answer to a call is what the tool's name says: real sockets, on loopback."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

CALLS = (
    "html_500", "json_500", "unauthorized", "wrong_type", "no_json", "cut_json", "cut_sse", "junk_sse", "silent_sse", "reset", "redirected",
    "surrogate", "rpc_error", "fine",
)  # fmt: skip


class RudeHttp:
    """A server in threads of this process. `connects` is what the first request gets: an HTTP status, or None for an answer."""

    def __init__(self, connects: int | None = None) -> None:
        rude = self
        self.connects = connects
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                rude.headers.append(dict(self.headers))
                rude.answer(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def do_GET(self) -> None:
                self.say(405, b"")

            do_DELETE = do_GET

            def say(self, status: int, body: bytes, kind: str = "application/json", **headers: str) -> None:
                self.send_response(status)
                for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # clients that went away

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/mcp"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> RudeHttp:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, handler: Any, message: dict[str, Any]) -> None:
        number, method = message.get("id"), message.get("method")
        if self.connects is not None:
            handler.say(self.connects, b"<html>no</html>", "text/html", Location="/elsewhere")
        elif number is None:
            handler.say(202, b"")
        elif method == "initialize":
            info = {"name": "rude", "version": "1"}
            version = message["params"]["protocolVersion"]
            self.result(
                handler, number, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            )
        elif method == "tools/list":
            self.result(
                handler, number, {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in CALLS]}
            )
        elif method == "tools/call":
            self.call(handler, number, message["params"]["name"])
        else:
            self.body(handler, {"id": number, "error": {"code": -32601, "message": "unknown method"}})

    def body(self, handler: Any, message: dict[str, Any], status: int = 200) -> None:
        handler.say(status, json.dumps({"jsonrpc": "2.0", **message}).encode())

    def result(self, handler: Any, number: Any, result: dict[str, Any]) -> None:
        self.body(handler, {"id": number, "result": result})

    def call(self, handler: Any, number: Any, name: str) -> None:
        whole = json.dumps({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "fine"}]}})
        if name == "html_500":
            handler.say(500, b"<html>Internal error: api_key=sk-abcdefghijklmnopqrstuv</html>", "text/html")
        elif name == "json_500":
            self.body(handler, {"id": None, "error": {"code": -32603, "message": "broken inside", "data": 7}}, 500)
        elif name == "unauthorized":
            handler.say(401, b"", "text/plain", **{"WWW-Authenticate": "Bearer"})
        elif name == "wrong_type":
            handler.say(200, whole.encode(), "text/html")
        elif name == "no_json":
            handler.say(200, b"{not json")
        elif name == "surrogate":
            handler.say(200, whole.replace("fine", "a\\ud800b").encode())
        elif name == "cut_json":
            handler.say(200, whole.encode()[:-5], **{"Content-Length": str(len(whole))})
            handler.close_connection = True
        elif name == "redirected":
            handler.say(307, b"", Location="http://127.0.0.1:9/elsewhere")
        elif name == "reset":
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True
        elif name == "rpc_error":
            self.body(handler, {"id": number, "error": {"code": -32000, "message": "not today"}})
        elif name.endswith("_sse"):
            self.stream(handler, name, whole)
        else:
            handler.say(200, whole.encode())

    def stream(self, handler: Any, name: str, whole: str) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        if name == "junk_sse":
            handler.wfile.write(
                f": hm\n\ndata: no json\n\nevent: odd\ndata: 5\n\nevent: message\ndata: {whole}\n\n".encode()
            )
        elif name == "cut_sse":
            handler.wfile.write(f"event: message\ndata: {whole[:20]}".encode())
        else:
            handler.wfile.write(b": waiting\n\n")
            handler.wfile.flush()
            self.released.wait(60)

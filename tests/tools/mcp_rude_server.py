"""An MCP server that says what it should not, over stdio, by hand: ``python mcp_rude_server.py [WAY]``. No SDK checks what it sends."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

WAY = sys.argv[1] if len(sys.argv) > 1 else ""
SCHEMA = {"type": "object", "properties": {}}
lists = 0
asked: dict[str, Any] = {}


def send(message: dict[str, Any]) -> None:
    if WAY == "text_ids" and "result" in message:
        message = {**message, "id": str(message["id"])}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **more}


BLOCKS: dict[str, Any] = {
    "empty": [],
    "unknown_block": [{"type": "hologram", "data": "xyz"}, {"type": "text", "text": "after"}],
    "bad_base64": [{"type": "image", "data": "***", "mimeType": "image/png"}],
    "odd_media": [{"type": "image", "data": "aGk=", "mimeType": "text/html"}, {"type": "audio", "data": "", "mimeType": ""}],
    "jpeg_as_png": [{"type": "image", "data": "/9j/4AAQ", "mimeType": "image/png"}],
    "surrogate": [{"type": "text", "text": "a\ud800b"}],
    "text_is_number": [{"type": "text", "text": 5}],
    "not_a_list": "just text",
    "noted": [
        {"type": "text", "text": "hi", "annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"k": 1}},
        {
            "type": "resource_link", "uri": "memo://1", "name": "one", "title": "The first", "size": 12,
            "description": "d", "mimeType": "text/x",
        },
        {"type": "resource", "resource": {"uri": "memo://z", "blob": "UEsxMg==", "mimeType": "application/zip"}},
    ],
    "script": [{"type": "text", "text": "<script>window.__pwned.push('mcp')</script><img src=x onerror=alert(1)>"}],
}  # fmt: skip


def listed() -> list[dict[str, Any]]:
    tools = [tool(name) for name in (*BLOCKS, *ANSWERS, "echo")]
    if WAY == "lists":
        tools += [
            tool("dup", description="first"),
            tool("dup", description="second"),
            {"name": "array_schema", "inputSchema": {"type": "array"}},
            {"name": "no_type", "inputSchema": {"properties": {"a": {"type": "string"}}}},
            {"name": "odd_schema", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}},
            {"name": "two_types", "inputSchema": {"type": ["object", "null"], "properties": {}}},
            tool("x" * 300),
            tool("…"),
            tool("a b"),
            tool("a.b"),
            *(tool(f"many_{n}", description="d" * 200) for n in range(500)),
        ]
    if WAY == "structured":
        number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        tools += [tool(name, outputSchema=number) for name in ("wrong", "missing", "right")]
        tools += [tool("unresolved", outputSchema={"type": "object", "properties": {"n": {"$ref": "#/nowhere"}}})]
    return tools


def structured(name: str) -> dict[str, Any]:
    data = {"wrong": {"n": "five"}, "right": {"n": 5}, "unresolved": {"n": 5}}.get(name)
    return {"content": [{"type": "text", "text": "said"}], **({} if data is None else {"structuredContent": data})}


def ask(number: Any, method: str, params: dict[str, Any]) -> None:
    asked["q"] = number
    send({"id": "q", "method": method, "params": params})


def flood(number: Any) -> None:
    for n in range(20_000):
        send(
            {
                "method": "notifications/progress",
                "params": {"progressToken": number, "progress": n, "total": 0 if n % 2 else 20_000, "message": "x"},
            }
        )
    answer(number, "flooded")


def answer(number: Any, text: str, **more: Any) -> None:
    send({"id": number, "result": {"content": [{"type": "text", "text": text}], **more}})


def junk(number: Any) -> None:
    sys.stdout.write("this is no JSON\n\n{}\n[1, 2]\n" + "x" * 200_000 + "\n")
    sys.stdout.flush()
    send({"id": "never asked", "result": {}})
    send({"method": "notifications/of an unknown kind", "params": {}})
    answer(number, "after junk")


def not_utf8(number: Any) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\xff\xfe\xfa\n")
    sys.stdout.buffer.flush()
    answer(number, "after bytes")


def noise(number: Any) -> None:
    for _ in range(40):
        sys.stderr.write("e" * 1_000_000 + "\n")
        time.sleep(0.002)
    sys.stderr.flush()
    answer(number, "after noise")


def nested(number: Any, depth: int) -> None:
    data = '{"a":' * depth + "1" + "}" * depth
    sys.stdout.write(
        f'{{"jsonrpc":"2.0","id":{json.dumps(number)},"result":{{"content":[],"structuredContent":{data}}}}}\n'
    )


def half(number: Any) -> None:
    sys.stdout.write('{"jsonrpc": "2.0", "id": ')
    sys.stdout.flush()
    os._exit(1)


ANSWERS: dict[str, Any] = {
    "huge": lambda number: answer(number, "h" * 20_000_000),
    "rpc_error": lambda number: send({"id": number, "error": {"code": -32000, "message": "no: api_key=sk-abcdefghijklmnopqrstuv", "data": {"why": "because"}}}),
    "session_error": lambda number: send({"id": number, "error": {"code": -32001, "message": "the browser session was terminated"}}),
    "is_error": lambda number: answer(number, "it failed", isError=True, structuredContent={"code": 7}, _meta={"trace": "t1"}),
    "result_is_text": lambda number: send({"id": number, "result": "text"}),
    "result_is_null": lambda number: send({"id": number, "result": None}),
    "deep": lambda number: nested(number, 150),
    "deeper": lambda number: nested(number, 3000),
    "nan": lambda number: answer(number, "odd numbers", structuredContent={"a": float("nan"), "b": float("inf")}),
    "twice": lambda number: (answer(number, "one"), answer(number, "two")),
    "never": lambda number: None,
    "flood": flood,
    "junk": junk,
    "not_utf8": not_utf8,
    "noise": noise,
    "half": half,
    "elicit": lambda number: ask(number, "elicitation/create", {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}),
    "sample": lambda number: ask(number, "sampling/createMessage", {"messages": [], "maxTokens": 5}),
    "roots": lambda number: ask(number, "roots/list", {}),
    "changes": lambda number: ([send({"method": "notifications/tools/list_changed"}) for _ in range(500)], answer(number, "changed")),
    "count": lambda number: answer(number, str(lists)),
    "die": lambda number: os._exit(3),
    "input_required": lambda number: send({"id": number, "result": {"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list", "params": {}}}}}),
}  # fmt: skip


def initialize(message: dict[str, Any]) -> None:
    if WAY == "wrong_version":
        version: Any = "1999-01-01"
    else:
        version = message["params"]["protocolVersion"]
    info: dict[str, Any] = {"name": "n" * 100_000 if WAY == "long_name" else "rude", "version": "1"}
    send(
        {
            "id": message["id"],
            "result": {
                "protocolVersion": version,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": info,
            },
        }
    )


def list_tools(message: dict[str, Any]) -> None:
    global lists
    lists += 1
    number = message["id"]
    if WAY == "silent_relist" and lists > 1:
        return
    if WAY == "error_relist" and lists > 1:
        send({"id": number, "error": {"code": -32000, "message": "not now"}})
        return
    if WAY == "always_changing":
        send({"method": "notifications/tools/list_changed"})
    if WAY == "endless":
        send({"id": number, "result": {"tools": listed(), "nextCursor": "again"}})
        return
    send({"id": number, "result": {"tools": listed()}})


def call(message: dict[str, Any]) -> None:
    name, number = message["params"]["name"], message["id"]
    if name == "echo":
        answer(number, json.dumps(message["params"].get("arguments")))
    elif name in BLOCKS:
        send({"id": number, "result": {"content": BLOCKS[name]}})
    elif name in ANSWERS:
        ANSWERS[name](number)
        sys.stdout.flush()
    elif WAY == "structured":
        send({"id": number, "result": structured(name)})
    else:
        answer(number, name)


def main() -> None:
    if WAY == "second_silent":
        if os.path.exists(sys.argv[2]):
            sys.stdin.read()
            return
        with open(sys.argv[2], "w"):
            pass
    if WAY == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if method == "initialize":
            initialize(message)
        elif method == "tools/list":
            list_tools(message)
        elif method == "tools/call":
            call(message)
        elif method == "ping":
            send({"id": message["id"], "result": {}})
        elif method is not None and "id" in message:
            send({"id": message["id"], "error": {"code": -32601, "message": "unknown method"}})
        elif message.get("id") == "q":
            answer(asked.pop("q"), json.dumps({key: message[key] for key in ("result", "error") if key in message}))
    if WAY == "stubborn":
        threading.Event().wait()


if __name__ == "__main__":
    main()

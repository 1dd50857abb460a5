"""Hostile strings of our own, and a run that has one in every place where foreign text is drawn."""

from __future__ import annotations

import json
from typing import Any

from rein_nb.agent import events as ev
from rein_nb.agent.result import ToolRun
from rein_nb.ir import Citation, ErrorInfo, MediaPart, ToolCall, Usage, deltas
from tests.notebook.script import Script
from tests.support import SHARED

LISTENER = "http://127.0.0.1:9"

OWN: dict[str, str] = {
    "script": "<script>alert(1)</script>",
    "img": '<img src=x onerror="alert(1)">',
    "nested-fence": "````\n```\n<img src=x onerror=alert(1)>\n```\n````\n<script>alert(1)</script>",
    "fence-info": '```html"><script>alert(1)</script>\n<b>x</b>\n```',
    "unclosed-fence": "```\n</code></pre><script>alert(1)</script>",
    "code-span": "`<script>alert(1)</script>` and ``a`<img src=x onerror=alert(1)>``",
    "table": "| a | <img src=x onerror=alert(1)> |\n|---|---|\n| `|` <svg onload=alert(1)> | \\| |",
    "link-in-link": "[a [b](javascript:alert(1))](https://a.example/<script>)",
    "reference": "[x][1] ![y][1]\n\n[1]: javascript:alert(1)\n[2]: <data:text/html,<script>alert(1)</script>>",
    "image": "![a](https://evil.example/p.png) ![b](//evil.example/p.png) ![c](data:image/svg+xml,<svg/onload=alert(1)>)",
    "autolink": '<javascript:alert(1)> <https://evil.example/"onmouseover="alert(1)>',
    "math-href": "$\\href{javascript:alert(1)}{x}$ and \\(\\href{javascript:alert(1)}{y}\\) $$\\unicode[<img src=x onerror=alert(1)>]{x41}$$",
    "math-html": "$\\text{<img src=x onerror=alert(1)>}$ $<script>alert(1)</script>$ $\\mathrm{</math><script>alert(1)</script>}$",
    "math-quoted": "\\\\(\\href{javascript:alert(1)}{x}\\\\) \\\\[x\\\\] \\$\\href{javascript:alert(1)}{y}\\$",
    "setext": "<script>alert(1)</script>\n===\n",
    "html-block": "<div onclick=alert(1)>\n\n*a*\n\n</div>\n<style>*{display:none}</style>",
    "comment": "<!-- --><script>alert(1)</script><!-- -->",
    "entity": "&lt;script&gt;alert(1)&lt;/script&gt; &#60;img src=x&#62;",
    "placeholder": "\uf8f00\uf8f1 \uf8f1 \uf8f0999\uf8f1",
    "ansi": "\x1b[31mred\x1b]8;;https://evil.example\x07link\x1b]8;;\x07\r\x08\x9b31m",
    "bidi": "\u202eevil\u202c \u2066x\u2069 \u200f \U000e0041\U000e0042 a\u200bb",
    "attribute": '"><script>alert(1)</script>',
    "attribute-single": "' onmouseover='alert(1)",
    "template": "{{constructor.constructor('alert(1)')()}} ${alert(1)}",
    "list": "- <script>alert(1)</script>\n  - > ```\n    > <img src=x onerror=alert(1)>\n    > ```\n1. <svg/onload=alert(1)>",
    "indented": "    <script>alert(1)</script>\n\ntext\n\n\t<img src=x onerror=alert(1)>",
    "tilde": "~~~~ <script>\n<script>alert(1)</script>\n~~~~",
    "heading": "# <script>alert(1)</script> #\n## `<b>` [x](vbscript:alert(1))",
    "data-attribute": '<a data-commandlinker-command="notebook:run-all-cells" href="#">go</a>',
    "button": '<button data-act="allow" data-call="c1">Approve</button>',
    "nul": "a\x00b<scr\x00ipt>alert(1)</scr\x00ipt>",
    "backslash": "\\<script>alert(1)\\</script> \\![x](https://evil.example/p.png) \\`<b>`",
    "crlf": "a\r\n<script>alert(1)</script>\r\n\r\n![x](https://evil.example/p.png)\r",
    "hardbreak": "a  \n<script>alert(1)</script>\\\n<img src=x>",
}


def shared_payloads() -> dict[str, str]:
    """The shared corpus, filled in; empty where there is none."""
    path = SHARED / "xss" / "payloads.json"
    if not path.exists():
        return {}
    out = {}
    for item in json.loads(path.read_text(encoding="utf-8"))["payloads"]:
        js = f"top.__pwned.push('{item['id']}');new Image().src='{LISTENER}/js/{item['id']}';void 0"
        fill = {
            "{{JS}}": js, "{{JS_NQ}}": js.replace("'", "`"), "{{JS_ENT}}": js.replace("'", "&#39;"),
            "{{JSURI}}": js.replace("(", "%28").replace(")", "%29").replace("'", "%27"), "{{URL}}": f"{LISTENER}/hit/{item['id']}",
        }  # fmt: skip
        text = item["payload"]
        for mark, value in fill.items():
            text = text.replace(mark, value)
        out[item["id"]] = text
    return out


PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")


def hostile_run(text: str) -> Script:
    """`text` as answer, thinking, tool name, argument names and values, result, error, citation, image, system prompt, model name, label..."""
    script = Script(text, model=text, provider=text, system=text)
    done = script.turn(
        deltas.Thinking(text),
        deltas.Text(text),
        deltas.Cite(Citation(source=text, title=text, quote=text)),
        deltas.Cite(Citation(source="https://source.example/?" + text, quote=text)),
        deltas.Media(MediaPart(kind="image", mime_type="image/png", data=PIXEL, name=text), part="m1"),
        deltas.Media(MediaPart(kind="image", url="https://evil.example/" + text, name=text), part="m2"),
        deltas.Media(
            MediaPart(kind="image", mime_type="image/svg+xml", data=text.encode("utf-8", "replace"), name=text),
            part="m3",
        ),
        deltas.ServerTool(part="s1", id="s1", name=text, input={text: text}, output=text),
        deltas.Refusal(text),
        deltas.ToolOpen(part="t1", id=text or "x", name=text),
        deltas.ToolArgs(json.dumps({text: text, "list": [text]}), part="t1"),
        deltas.ToolOpen(part="t2", id="t2", name=text),
        deltas.ToolArgs(text, part="t2"),
        finish="tool_calls",
        usage=Usage(input_tokens=1, output_tokens=1),
    )
    first, second = done.tool_calls
    script.emit(ev.ApprovalRequested(call=first, reason=text))
    script.emit(ev.ToolExecutionUpdate(call_id=first.id, message=text, fraction=0.5))
    script.result(first, [text, MediaPart(kind="document", url=text or "x", name=text)])
    script.result(second, text, status="error")
    script.emit(ev.Notice(kind=text, message=text))
    script.emit(ev.Retry(attempt=1, wait_s=1.0, error=ErrorInfo.make("server_error", text)))
    script.end_turn()
    error = ErrorInfo.make("server_error", text, code=text, body={"x": text})
    script.turn(deltas.Text(text[: len(text) // 2]), error=error)
    script.end_turn()
    script.end("error", error)
    return script


def result_of(script: Script) -> Any:
    """The result of a scripted run."""
    return script.events[-1].result


__all__ = ["OWN", "ToolCall", "ToolRun", "hostile_run", "result_of", "shared_payloads"]

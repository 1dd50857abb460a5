"""How a transcript looks: one table of styles, used as a style sheet by the live widget and as inline styles by saved output.

Colours are the front end's theme variables with a light fallback, so one transcript is right in light and dark. They are named once, as
variables of the outermost element: saved output repeats its styles in every element, so each must be short.
"""

from __future__ import annotations

import html


def _mixed(color: str, share: int) -> str:
    """A theme colour with some of the text colour in it: themes' own signal colours are too faint for small text, in light and in dark."""
    return f"color-mix(in srgb,{color} {share}%,var(--r-text))"


_HEADINGS = {1: 1.4, 2: 1.22, 3: 1.08, 4: 1}

VARIABLES: dict[str, str] = {
    "text": "var(--jp-content-font-color1,#1f2328)",
    "muted": "var(--jp-content-font-color2,#59636e)",
    "line": "var(--jp-border-color2,#d9dee3)",
    "paper": "var(--jp-layout-color1,#fff)",
    "page": "var(--jp-layout-color0,var(--jp-layout-color1,#fff))",
    "wash": "rgba(127,127,127,.1)",
    "mono": "var(--jp-code-font-family,ui-monospace,Menlo,Consolas,monospace)",
    "code": "12.5px/1.5 var(--r-mono)",
    **{
        f"h{n}": f"600 {size}em/1.3 var(--jp-content-font-family,system-ui,sans-serif)" for n, size in _HEADINGS.items()
    },
    "ok": _mixed("var(--jp-success-color1,#1a7f37)", 60),
    "bad": _mixed("var(--jp-error-color1,#c62828)", 70),
    "warn": _mixed("var(--jp-warn-color1,#b35900)", 55),
    "busy": _mixed("var(--jp-brand-color1,#1565c0)", 70),
}
"""Colours and fonts; ``var(--r-NAME)`` is one in a style."""

_CODE: dict[str, str] = {
    "hk": _mixed("var(--jp-mirror-editor-keyword-color,#7b2cbf)", 85),
    "hs": _mixed("var(--jp-mirror-editor-string-color,#0a6b2b)", 85),
    "hc": _mixed("var(--jp-mirror-editor-comment-color,#6a737d)", 60),
    "hn": _mixed("var(--jp-mirror-editor-number-color,#0550ae)", 85),
    "hf": _mixed("var(--jp-mirror-editor-def-color,#0b5cad)", 85),
    "hb": _mixed("var(--jp-mirror-editor-builtin-color,#0a7d6c)", 85),
    "hd": _mixed("var(--jp-mirror-editor-meta-color,#8a5a00)", 85),
}
"""Colours of code, by token group."""

STYLES: dict[str, str] = {
    "root": "font-size:14px;line-height:1.55;color:var(--r-text);max-width:100%;overflow-wrap:anywhere",
    "block": "margin:0 0 8px",
    "user": "margin:0 0 10px;padding:6px 10px;background:var(--r-wash);border-radius:6px;white-space:pre-wrap",
    "system": "margin:0 0 8px",
    "think": "margin:0 0 8px;padding-left:10px;border-left:2px solid var(--r-line);color:var(--r-muted);font-size:13px",
    "fold": "cursor:pointer;color:var(--r-muted);font-size:12.5px",
    "card": "margin:0 0 8px;border:1px solid var(--r-line);border-radius:6px;background:var(--r-paper);overflow:hidden",
    "cardhead": "cursor:pointer;padding:4px 10px;font-size:13px",
    "tool": "font-family:var(--r-mono);font-weight:600;font-size:12.5px",
    "peek": "font-family:var(--r-mono);font-size:12px;color:var(--r-muted);margin-left:6px",
    "cardbody": "padding:2px 10px 8px;border-top:1px solid var(--r-line)",
    "label": "margin:6px 0 2px;font-size:11px;letter-spacing:.03em;color:var(--r-muted)",
    "pre": (
        "margin:0;padding:6px 8px;background:var(--r-wash);border-radius:4px;font:var(--r-code);"
        "white-space:pre-wrap;overflow-wrap:anywhere;max-height:22.75em;overflow:auto"
    ),
    "state": "margin-left:8px;white-space:nowrap;font-size:12px;color:var(--r-muted)",
    "ok": "color:var(--r-ok)",
    "bad": "color:var(--r-bad)",
    "warn": "color:var(--r-warn)",
    "busy": "color:var(--r-busy)",
    "bar": "height:3px;margin:6px 0 2px;background:var(--r-wash);border-radius:2px;overflow:hidden",
    "barfill": "height:3px;background:var(--r-busy)",
    "note": "margin:0 0 8px;font-size:13px;color:var(--r-muted)",
    "error": "margin:0 0 8px;padding:6px 10px;border-left:3px solid var(--r-bad);background:var(--r-wash);border-radius:4px;font-size:13px",
    "refusal": "margin:0 0 8px;padding:6px 10px;border-left:3px solid var(--r-warn);background:var(--r-wash);border-radius:4px",
    "next": "margin-top:2px",
    "cites": "margin:4px 0 8px;padding-left:20px;font-size:12.5px;color:var(--r-muted)",
    "url": "font-size:.85em;color:var(--r-muted)",
    "foot": (
        "margin:8px 0 0;padding-top:4px;border-top:1px solid var(--r-line);font-size:12px;color:var(--r-muted);font-variant-numeric:tabular-nums"
    ),
    "code": (
        "margin:0 0 8px;padding:8px 10px;background:var(--r-wash);border-radius:6px;font:var(--r-code);white-space:pre;overflow:auto"
    ),
    "h1": "margin:14px 0 6px;font:var(--r-h1)",
    "h2": "margin:14px 0 6px;font:var(--r-h2)",
    "h3": "margin:12px 0 4px;font:var(--r-h3)",
    "h4": "margin:10px 0 4px;font:var(--r-h4)",
    "tex": "font-family:var(--r-mono);font-size:.92em",
    "mathblock": "display:block;margin:8px 0;overflow-x:auto;overflow-y:hidden",
    "media": "margin:0 0 8px;font-size:13px;color:var(--r-muted)",
    "img": "display:block;max-width:100%;max-height:480px;border-radius:6px;border:1px solid var(--r-line)",
    "grid": "overflow-x:auto",
    "gridtable": "border-collapse:separate;border-spacing:0;width:100%;table-layout:fixed",
    "gridhead": (
        "position:sticky;top:0;z-index:1;text-align:left;vertical-align:bottom;padding:6px 10px;font-size:13px;background:var(--r-paper);"
        "border-bottom:1px solid var(--r-line)"
    ),
    "gridrow": "text-align:left;font-weight:400;padding:8px 10px;background:var(--r-wash);white-space:pre-wrap",
    "gridcell": (
        "text-align:left;vertical-align:top;font-size:14px;line-height:1.55;padding:8px 10px;background:var(--r-page);border-bottom:1px solid var(--r-line);border-left:1px solid var(--r-line)"
    ),
}
"""Style by class, without the ``rein-`` prefix."""

STYLES["root"] += "".join(f";--r-{name}:{value}" for name, value in (VARIABLES | _CODE).items())
STYLES |= {name: f"color:var(--r-{name})" for name in _CODE}
STYLES["hc"] += ";font-style:italic"


def attributes(names: str, *, static: bool) -> str:
    """The attributes that give an element one or more of the table's styles: ``class`` live, ``style`` in saved output."""
    classes = names.split()
    if not static:
        return f' class="{" ".join("rein-" + name for name in classes)}"'
    style = ";".join(STYLES[name] for name in classes if STYLES.get(name))
    return f' style="{html.escape(style)}"' if style else ""


def focusable(text: str, *, width: int = 40, lines: int = 15) -> dict[str, str]:
    """The attribute that lets a keyboard scroll a box whose text may not fit into it: lines beyond `width` characters (of a narrow column), or
    more than `lines` of them."""
    rows = text.split("\n")
    return {"tabindex": "0"} if len(rows) > lines or any(len(row) > width for row in rows) else {}


def style_sheet() -> str:
    """The table as CSS rules of the live widget, stronger than a front end's rules for plain elements."""
    rules = "\n".join(f".rein-{name}{{{style}}}" for name, style in STYLES.items() if name != "root")
    return f".rein-live.rein-live{{{STYLES['root']};\n{rules}}}"

"""How a transcript looks: one table of styles, used as a style sheet by the live widget and as inline styles by saved output.

Colours are the front end's theme variables with a light fallback, so one transcript is right in light and dark.
"""

from __future__ import annotations

import html

_TEXT = "var(--jp-content-font-color1,#1f2328)"
_MUTED = "var(--jp-content-font-color2,#59636e)"
_LINE = "var(--jp-border-color2,#d9dee3)"
_PAPER = "var(--jp-layout-color1,#fff)"
_WASH = "rgba(127,127,127,.1)"
_MONO = "var(--jp-code-font-family,ui-monospace,Menlo,Consolas,monospace)"


def _mixed(color: str, share: int) -> str:
    """A theme colour with some of the text colour in it: themes' own signal colours are too faint for small text, in light and in dark."""
    return f"color-mix(in srgb,{color} {share}%,{_TEXT})"


_GREEN = _mixed("var(--jp-success-color1,#1a7f37)", 60)
_RED = _mixed("var(--jp-error-color1,#c62828)", 70)
_AMBER = _mixed("var(--jp-warn-color1,#b35900)", 55)
_BLUE = _mixed("var(--jp-brand-color1,#1565c0)", 70)
_PAGE = "var(--jp-layout-color0,var(--jp-layout-color1,#fff))"

_CODE: dict[str, str] = {
    "hk": _mixed("var(--jp-mirror-editor-keyword-color,#7b2cbf)", 85),
    "hs": _mixed("var(--jp-mirror-editor-string-color,#0a6b2b)", 85),
    "hc": _mixed("var(--jp-mirror-editor-comment-color,#6a737d)", 60),
    "hn": _mixed("var(--jp-mirror-editor-number-color,#0550ae)", 85),
    "hf": _mixed("var(--jp-mirror-editor-def-color,#0b5cad)", 85),
    "hb": _mixed("var(--jp-mirror-editor-builtin-color,#0a7d6c)", 85),
    "hd": _mixed("var(--jp-mirror-editor-meta-color,#8a5a00)", 85),
}
"""Colours of code, by token group: variables of the outermost element, since they are repeated so often."""

STYLES: dict[str, str] = {
    "root": f"font-size:14px;line-height:1.55;color:{_TEXT};max-width:100%;overflow-wrap:anywhere",
    "block": "margin:0 0 8px",
    "user": f"margin:0 0 10px;padding:6px 10px;background:{_WASH};border-radius:6px;white-space:pre-wrap",
    "system": "margin:0 0 8px",
    "think": f"margin:0 0 8px;padding-left:10px;border-left:2px solid {_LINE};color:{_MUTED};font-size:13px",
    "fold": f"cursor:pointer;color:{_MUTED};font-size:12.5px",
    "card": f"margin:0 0 8px;border:1px solid {_LINE};border-radius:6px;background:{_PAPER};overflow:hidden",
    "cardhead": "cursor:pointer;padding:4px 10px;font-size:13px",
    "tool": f"font-family:{_MONO};font-weight:600;font-size:12.5px",
    "peek": f"font-family:{_MONO};font-size:12px;color:{_MUTED};margin-left:6px",
    "cardbody": f"padding:2px 10px 8px;border-top:1px solid {_LINE}",
    "label": f"margin:6px 0 2px;font-size:11px;letter-spacing:.03em;color:{_MUTED}",
    "pre": (
        f"margin:0;padding:6px 8px;background:{_WASH};border-radius:4px;font-family:{_MONO};font-size:12.5px;line-height:1.45;"
        "white-space:pre-wrap;overflow-wrap:anywhere;max-height:22em;overflow:auto"
    ),
    "state": f"margin-left:8px;font-size:12px;color:{_MUTED}",
    "ok": f"color:{_GREEN}",
    "bad": f"color:{_RED}",
    "warn": f"color:{_AMBER}",
    "busy": f"color:{_BLUE}",
    "bar": f"height:3px;margin:6px 0 2px;background:{_WASH};border-radius:2px;overflow:hidden",
    "barfill": f"height:3px;background:{_BLUE}",
    "note": f"margin:0 0 8px;font-size:13px;color:{_MUTED}",
    "error": f"margin:0 0 8px;padding:6px 10px;border-left:3px solid {_RED};background:{_WASH};border-radius:4px;font-size:13px",
    "refusal": f"margin:0 0 8px;padding:6px 10px;border-left:3px solid {_AMBER};background:{_WASH};border-radius:4px",
    "next": "margin-top:2px",
    "cites": f"margin:4px 0 8px;padding-left:20px;font-size:12.5px;color:{_MUTED}",
    "url": f"font-size:.85em;color:{_MUTED}",
    "foot": (
        f"margin:8px 0 0;padding-top:4px;border-top:1px solid {_LINE};font-size:12px;color:{_MUTED};font-variant-numeric:tabular-nums"
    ),
    "code": (
        f"margin:0 0 8px;padding:8px 10px;background:{_WASH};border-radius:6px;font-family:{_MONO};font-size:12.5px;line-height:1.5;"
        "white-space:pre;overflow:auto;overflow-wrap:normal"
    ),
    "incode": "background:none;padding:0;font:inherit;color:inherit;white-space:inherit",
    "h1": "margin:14px 0 6px;line-height:1.3;font-weight:600;font-size:1.4em",
    "h2": "margin:14px 0 6px;line-height:1.3;font-weight:600;font-size:1.22em",
    "h3": "margin:12px 0 4px;line-height:1.3;font-weight:600;font-size:1.08em",
    "h4": "margin:10px 0 4px;line-height:1.3;font-weight:600;font-size:1em",
    "tex": f"font-family:{_MONO};font-size:.92em",
    "mathblock": "display:block;margin:8px 0;overflow-x:auto;overflow-y:hidden",
    "media": f"margin:0 0 8px;font-size:13px;color:{_MUTED}",
    "img": f"display:block;max-width:100%;max-height:480px;border-radius:6px;border:1px solid {_LINE}",
    "grid": "overflow-x:auto",
    "gridtable": "border-collapse:separate;border-spacing:0;width:100%;table-layout:fixed",
    "gridhead": (
        f"position:sticky;top:0;z-index:1;text-align:left;vertical-align:bottom;padding:6px 10px;font-size:13px;background:{_PAPER};"
        f"border-bottom:1px solid {_LINE}"
    ),
    "gridrow": f"text-align:left;font-weight:400;padding:8px 10px;background:{_WASH};white-space:pre-wrap",
    "gridcell": (
        f"text-align:left;vertical-align:top;padding:8px 10px;background:{_PAGE};border-bottom:1px solid {_LINE};border-left:1px solid {_LINE}"
    ),
}
"""Style by class, without the ``rein-`` prefix."""

STYLES["root"] += "".join(f";--rein-{name}:{color}" for name, color in _CODE.items())
STYLES |= {name: f"color:var(--rein-{name})" for name in _CODE}
STYLES["hc"] += ";font-style:italic"


def attributes(names: str, *, static: bool) -> str:
    """``class`` (and, for saved output, ``style``) attributes for one or more classes."""
    classes = names.split()
    if static and names in _CODE:
        return f' style="{STYLES[names]}"'
    out = f' class="{" ".join("rein-" + name for name in classes)}"'
    if static:
        style = ";".join(STYLES[name] for name in classes if name in STYLES)
        if style:
            out += f' style="{html.escape(style)}"'
    return out


def style_sheet() -> str:
    """The table as CSS rules of the live widget, stronger than a front end's rules for plain elements."""
    return "\n".join(
        f".rein-live.rein-live{'' if name == 'root' else ' '}.rein-{name}{{{style}}}" for name, style in STYLES.items()
    )

"""Static output: the MIME bundle of a finished run, and the pages that are exported. What a saved notebook keeps."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from rein_nb.notebook.plain import TRANSCRIPT_MIME, markdown_transcript, plain_transcript, transcript_data
from rein_nb.notebook.render import Renderer, static_html, wrap
from rein_nb.notebook.replay import state_of
from rein_nb.notebook.safe_markdown import escape_text, fence
from rein_nb.notebook.sanitize import escape, shown
from rein_nb.notebook.view_model import ViewState


def bundle_of(source: Any) -> dict[str, Any]:
    """HTML, Markdown, plain text and data of a run (or anything that `replay.state_of` takes)."""
    state = state_of(source)
    return {
        "text/html": static_html(state),
        "text/markdown": markdown_transcript(state),
        "text/plain": plain_transcript(state),
        TRANSCRIPT_MIME: transcript_data(state),
    }


def _grid_rows(
    labels: Sequence[str], states: Sequence[ViewState], rows: Sequence[str]
) -> list[tuple[str, Sequence[ViewState]]]:
    width = len(labels)
    return [(row, states[n * width : (n + 1) * width]) for n, row in enumerate(rows or [""])]


def grid_html(labels: Sequence[str], states: Sequence[ViewState], rows: Sequence[str] = ()) -> str:
    """Runs side by side, each under its label, as HTML that stands on its own. `states` go row by row; `rows` are the rows' headings."""
    draw = Renderer(static=True)
    heads = "".join(draw.element("th", "gridhead", escape(label), scope="col") for label in labels)
    body = ""
    for row, cells in _grid_rows(labels, states, rows):
        if row:
            body += f"<tr>{draw.element('th', 'gridrow', escape(row), colspan=str(len(labels)), scope='row')}</tr>"
        body += f"<tr>{''.join(draw.element('td', 'gridcell', draw.transcript(state)) for state in cells)}</tr>"
    table = draw.element("table", "gridtable", f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>")
    return wrap(draw.element("div", "grid", table))


def grid_bundle(labels: Sequence[str], states: Sequence[ViewState], rows: Sequence[str] = ()) -> dict[str, Any]:
    """As `bundle_of`, for runs side by side."""
    markdown: list[str] = []
    plain: list[str] = []
    data = []
    for row, cells in _grid_rows(labels, states, rows):
        if row:
            markdown.append(f"**Prompt**\n\n{fence(shown(row))}")
            plain.append(f"Prompt: {shown(row)}")
        for label, state in zip(labels, cells, strict=True):
            markdown.append(f"### {escape_text(shown(label).replace(chr(10), ' '))}\n\n{markdown_transcript(state)}")
            plain.append(f"== {shown(label)} ==\n{plain_transcript(state)}")
            data.append({"label": shown(label), **({"prompt": shown(row)} if row else {}), **transcript_data(state)})
    return {
        "text/html": grid_html(labels, states, rows),
        "text/markdown": "\n\n".join(markdown),
        "text/plain": "\n\n".join(plain),
        TRANSCRIPT_MIME: {"version": 1, "columns": data},
    }


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title><style>
:root{{color-scheme:light dark;--jp-content-font-color1:#1f2328;--jp-content-font-color2:#59636e;--jp-border-color2:#d9dee3;
--jp-layout-color1:#fff;--jp-layout-color2:#f5f6f8}}
@media(prefers-color-scheme:dark){{:root{{--jp-content-font-color1:#e6e8eb;--jp-content-font-color2:#9aa4ae;--jp-border-color2:#3a4149;
--jp-layout-color1:#1b1f23;--jp-layout-color2:#262b31;--jp-success-color1:#4cc26a;--jp-error-color1:#ff7b72;--jp-warn-color1:#e3a04f;
--jp-brand-color1:#6cb0f5;--jp-mirror-editor-keyword-color:#c79bf2;--jp-mirror-editor-string-color:#7fd18b;
--jp-mirror-editor-number-color:#79b8ff;--jp-mirror-editor-def-color:#79b8ff;--jp-mirror-editor-builtin-color:#5fd3c0;
--jp-mirror-editor-comment-color:#8b949e;--jp-mirror-editor-meta-color:#e3a04f}}a{{color:#79b8ff}}}}
body{{max-width:{width};margin:24px auto;padding:0 16px;font-family:system-ui,sans-serif;background:var(--jp-layout-color1)}}
p{{margin:0 0 8px}}table{{border-collapse:collapse}}table{{margin:0 0 8px}}{tables}>*>tr>*{{padding:3px 10px;
border:1px solid var(--jp-border-color2)}}blockquote{{margin:0 0 8px;padding:0 12px;border-left:3px solid var(--jp-border-color2)}}
</style></head><body>
<main>{body}</main>
</body></html>
"""


def transcript_html(source: Any, *, title: str = "Transcript") -> str:
    """One self-contained HTML page: no script, no request, light and dark.

    Parameters
    ----------
    source
        An `AgentResult`, `Completion`, `Message`, list of messages or events, session or agent; or a dict from labels to such, drawn side by side.
    title
        The page's title.
    """
    if isinstance(source, dict):
        body = grid_html([str(label) for label in source], [state_of(value) for value in source.values()])
        # Tables of Markdown stand within the grid's cells.
        width, tables = "none", "td table"
    else:
        body, width, tables = static_html(state_of(source)), "52em", "table"
    return _PAGE.format(title=html.escape(shown(title)), body=body, width=width, tables=tables)


def transcript_markdown(source: Any) -> str:
    """The transcript as Markdown that is safe wherever it is rendered."""
    return markdown_transcript(state_of(source)) + "\n"

"""View state to HTML: pure functions, one for live display and saved output alike.

Our own elements are built here from escaped strings; foreign text gets in only through `sanitize.escape`, `markdown.render` and
`highlight`. With ``static=False`` elements carry classes (the widget has the style sheet) and the marks that live updates need; with
``static=True`` they carry their styles and no marks, so that the HTML stands on its own in a saved file.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable
from typing import Any

from rein_nb.ir import Citation, MediaPart, ToolCall, redact
from rein_nb.notebook import markdown
from rein_nb.notebook.footer import seconds
from rein_nb.notebook.sanitize import escape, escape_attribute, guard_math, masked, shown, visible
from rein_nb.notebook.style import STYLES, attributes, focusable
from rein_nb.notebook.view_model import Block, Question, ToolView, ViewState

STATE_WORDS: dict[str, tuple[str, str, str]] = {
    "writing": ("…", "writing arguments", "busy"),
    "ready": ("○", "waiting to run", ""),
    "approval": ("?", "waiting for approval", "warn"),
    "running": ("●", "running", "busy"),
    "ok": ("✓", "done", "ok"),
    "error": ("✗", "error", "bad"),
    "denied": ("⊘", "denied", "warn"),
    "interrupted": ("◼", "interrupted, may have run", "warn"),
    "timed_out": ("⧗", "timed out, may have run", "bad"),
    "incomplete": ("✗", "arguments incomplete, not run", "bad"),
}
"""Symbol, words and style of a tool call's state."""

MAX_SHOWN = 200_000
"""Characters of one tool result or argument text that are drawn; the data keeps all."""

MAX_NAME = 64
"""Characters of a sub-agent's tool's name that are drawn: longer ones are no valid names."""

SMALL_CARD = 600
"""Characters of arguments and result up to which a finished card stays unfolded."""

_INLINE_MEDIA = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MAX_MEDIA = 4_000_000
"""Bytes of inline media that are drawn."""


class Renderer:
    """Draws blocks, one way or the other.

    Parameters
    ----------
    static
        For saved output: inline styles, no live marks.
    prefix
        Goes before block ids, where several runs share one page.
    growing
        For live display: (finished HTML, shown tail, tail mode) of a block that still grows.
    """

    def __init__(
        self, *, static: bool, prefix: str = "", growing: Callable[[Block], tuple[str, str, str] | None] | None = None
    ) -> None:
        self.static = static
        self.prefix = prefix
        self.growing = growing

    def element(self, tag: str, classes: str, *children: str, **more: str) -> str:
        """One of our own elements; `children` are finished HTML, attribute values are escaped here."""
        extra = "".join(f' {key.replace("_", "-")}="{html.escape(value)}"' for key, value in more.items())
        return f"<{tag}{attributes(classes, static=self.static) if classes else ''}{extra}>{''.join(children)}</{tag}>"

    def slot(self, name: str, content: str) -> str:
        """A place that live updates fill anew; in saved output just its content."""
        return content if self.static else f'<div data-slot="{name}">{content}</div>'

    # -- blocks -----------------------------------------------------------------------------------

    def block(self, block: Block) -> str:
        """One block."""
        inner = getattr(self, f"_{block.kind}")(block)
        if self.static:
            return str(inner)
        return f'<div data-id="{self.prefix}{block.id}" data-kind="{block.kind}">{inner}</div>'

    def text_body(self, block: Block) -> str:
        """The Markdown of a text, thinking or refusal block, with the place for its growing end."""
        if self.static:
            return markdown.render(block.text, static=True)
        growing = self.growing(block) if self.growing is not None and not block.done else None
        body, tail, mode = growing if growing is not None else (markdown.render(block.text, static=False), "", "text")
        return f'<div data-slot="md" class="rein-md">{body}</div><div data-slot="tail" class="rein-tail rein-{mode}">{escape_tail(tail)}</div>'

    def _text(self, block: Block) -> str:
        return self.element("div", "block", self.text_body(block)) + self.slot("cites", self.citations(block.citations))

    def _thinking(self, block: Block) -> str:
        words = len(block.text.split())
        if block.title == "withheld":
            return self.element("div", "think", "Thinking (withheld by the provider)")
        summary = self.element("summary", "fold", self.slot_inline("summary", self.thinking_title(block, words)))
        return self.element("details", "think", summary, self.text_body(block), **({} if block.done else {"open": ""}))

    @staticmethod
    def thinking_title(block: Block, words: int) -> str:
        """What the folded block says."""
        return f"Thinking · {words:,} words" if block.done else "Thinking…"

    def _refusal(self, block: Block) -> str:
        return self.element("div", "refusal", self.element("strong", "", "The model declined"), self.text_body(block))

    def _user(self, block: Block) -> str:
        return self.element("div", "user", escape(_cut(block.text)), role="note", aria_label="Prompt")

    def _system(self, block: Block) -> str:
        return self.element(
            "details",
            "system",
            self.element("summary", "fold", "System prompt"),
            self.element("div", "user", escape(_cut(block.text))),
        )

    def _notice(self, block: Block) -> str:
        return self.element("div", "note", "ⓘ " + escape(block.text))

    def _retry(self, block: Block) -> str:
        return self.element("div", "note", "↻ " + escape(block.text))

    def _error(self, block: Block) -> str:
        hint = self.element("div", "next", escape(block.hint)) if block.hint else ""
        title = self.element("strong", "bad", escape(block.title))
        return self.element(
            "div", "error", title, self.element("div", "", escape(_cut(block.text))), hint, role="alert"
        )

    def _media(self, block: Block) -> str:
        return self.element("div", "media", self.media(block.media)) if block.media is not None else ""

    # -- tools ------------------------------------------------------------------------------------

    def _tool(self, block: Block) -> str:
        view = block.tool
        assert view is not None
        summary = self.element("summary", "cardhead", self.slot_inline("head", self.tool_head(block)))
        body = self.element(
            "div", "cardbody", self.slot("args", self.tool_args(block)), self.slot("result", self.tool_result(view))
        )
        approval = "" if self.static else self.slot("ask", self.approval(view))
        return self.element("details", "card", summary, approval, body, **({"open": ""} if card_open(block) else {}))

    def slot_inline(self, name: str, content: str) -> str:
        """As `slot`, inside a line of text."""
        return content if self.static else f'<span data-slot="{name}">{content}</span>'

    def tool_head(self, block: Block) -> str:
        """A card's title line: name, arguments in short, state, duration."""
        view = block.tool
        assert view is not None
        symbol, words, style = STATE_WORDS[view.state]
        time = f" · {seconds(view.duration_s)}" if view.duration_s is not None else ""
        peek = self.element("span", "peek", escape(arguments_in_short(view))) if view.call is not None else ""
        state = self.element("span", f"state {style}".strip(), f"{symbol} {words}{time}")
        return self.element("span", "tool", escape(view.name or "tool call")) + peek + state

    def tool_args(self, block: Block) -> str:
        """The arguments: as they stream, then as JSON."""
        view = block.tool
        assert view is not None
        return self._own_args(block) + self.questions(view)

    def _own_args(self, block: Block) -> str:
        view = block.tool
        assert view is not None
        call = view.call
        if call is None:
            growing = self.growing(block) if self.growing is not None else None
            text = growing[1] if growing is not None else shown(_cut(block.text))
            return self.label("Arguments") + self.element("pre", "pre", escape_tail(text), **self._tail())
        if not call.arguments and call.raw_arguments is None:
            return ""
        note = self.element("div", "note", escape(f"Not run: {call.error}")) if call.error else ""
        if call.raw_arguments is not None:
            raw = _cut(call.raw_arguments)
            return self.label("Arguments") + self.element("pre", "pre", escape(raw), **_tall(raw)) + note
        return self.label("Arguments") + self.code(json_text(call.arguments), "json") + note

    def _tail(self) -> dict[str, str]:
        return {} if self.static else {"data_slot": "tail"}

    def tool_result(self, view: ToolView) -> str:
        """Progress while it runs, then the result."""
        if view.result is None:
            return self.progress(view)
        pieces: list[str] = []
        for part in view.result.content:
            if isinstance(part, MediaPart):
                pieces.append(self.element("div", "media", self.media(part)))
            elif part.text:
                pieces.append(self.code(_cut(part.text), _language(part.text)))
        if not pieces:
            pieces.append(self.element("div", "note", "No output"))
        title = "Reason" if view.state == "denied" else "Error" if view.result.is_error else "Result"
        return self.label(title) + "".join(pieces)

    def progress(self, view: ToolView) -> str:
        """What a running tool last said of itself."""
        bar = ""
        if view.fraction is not None:
            percent = round(100 * min(1.0, max(0.0, view.fraction)))
            style = f"width:{percent}%"
            fill = f'<div class="rein-barfill" style="{style}"></div>'
            bar = self.element(
                "div", "bar", fill, role="progressbar", aria_valuenow=str(percent), aria_label="Progress"
            )
        return bar + (self.element("div", "note", escape(view.progress)) if view.progress else "")

    def questions(self, view: ToolView) -> str:
        """What a sub-agent asked before, and what was answered."""
        asked = [question for question in view.questions if question is not view.question]
        return "".join(self.element("div", "note", escape(question_in_short(question))) for question in asked)

    def approval(self, view: ToolView) -> str:
        """The question and its buttons, while a call waits for a decision. Live display only."""
        if view.state != "approval":
            return ""
        inner, always = "", "Always allow"
        if (question := view.question) is not None:
            name = escape(question.call.name[:MAX_NAME])
            always = f"Always allow {name}"
            asks = self.label(f"{escape(view.name)} asks to run {name}")
            inner = self.element("div", "asked", asks, self.code(_cut(_arguments_json(question.call)), "json"))
        reason = self.element("div", "note", escape(view.reason)) if view.reason else ""
        buttons = "".join(
            f'<button type="button" class="rein-button rein-{act}" data-act="{act}" data-call="{escape_attribute(view.asking_id)}">{text}</button>'
            for act, text in (("allow", "Approve"), ("deny", "Deny"), ("always", always))
        )
        return f'<div class="rein-ask" role="group" aria-label="Approve this tool call">{inner}{reason}{buttons}</div>'

    def _server_tool(self, block: Block) -> str:
        part = block.server_tool
        if part is None:
            return ""
        what = self.element("span", "state", "run by the provider")
        summary = self.element(
            "summary", "cardhead", self.element("span", "tool", escape(part.name or "server tool")) + what
        )
        body = ""
        for title, value in (("Input", part.input), ("Output", part.output)):
            if value is not None:
                text = value if isinstance(value, str) else json_text(value)
                body += self.label(title) + self.code(_cut(text), "" if isinstance(value, str) else "json")
        return self.element("details", "card", summary, self.element("div", "cardbody", body))

    # -- pieces -----------------------------------------------------------------------------------

    def label(self, text: str) -> str:
        """A small heading inside a card; our own words."""
        return self.element("div", "label", text)

    def code(self, text: str, language: str) -> str:
        """Foreign text in a box, highlighted where its language is known."""
        from rein_nb.notebook.highlight import highlight

        return self.element("pre", "pre", highlight(shown(text), language, static=self.static), **_tall(text))

    def media(self, part: MediaPart | None) -> str:
        """Inline data is drawn when it is a bitmap of a plain type; everything else is described, never fetched."""
        if part is None:
            return ""
        name = part.name or part.kind
        if part.data is not None and part.mime_type in _INLINE_MEDIA and len(part.data) <= MAX_MEDIA:
            source = f"data:{part.mime_type};base64,{part.base64}"
            return self.element("img", "img", src=source, alt=visible(redact(name))).removesuffix("</img>")
        if part.data is not None:
            return escape(f"[{part.kind}: {name}, {part.mime_type or 'unknown type'}, {len(part.data):,} bytes]")
        return escape(f"[{part.kind}: {name}, not fetched: {part.url or part.file_id}]")

    def citations(self, citations: Iterable[Citation]) -> str:
        """Sources as numbered footnotes."""
        items = []
        for citation in citations:
            title = escape(citation.title or citation.source or "source")
            if markdown.link_allowed(citation.source):
                href = escape_attribute(citation.source)
                title = f'<a href="{href}" target="_blank" rel="noopener nofollow noreferrer">{title}</a>'
                if citation.title:
                    title += f" <span{attributes('url', static=self.static)}>({escape(citation.source)})</span>"
            elif citation.title and citation.source:
                title += f" ({escape(citation.source)})"
            items.append(f"<li>{title}{': “' + escape(citation.quote) + '”' if citation.quote else ''}</li>")
        return self.element("ol", "cites", *items) if items else ""

    def footer(self, state: ViewState) -> str:
        """The line of figures."""
        return guard_math(html.escape(" · ".join(shown(fact) for fact in state.footer.facts())))

    def transcript(self, state: ViewState) -> str:
        """The whole of a run, for saved output."""
        body = "".join(self.block(block) for block in state.blocks)
        foot = self.footer(state)
        return body + (self.element("div", "foot", foot) if foot else "")


def static_html(state: ViewState) -> str:
    """A run as HTML that stands on its own."""
    return wrap(Renderer(static=True).transcript(state))


def wrap(inner: str) -> str:
    """The outer element: its classes tell page-wide mathematics typesetters to keep out."""
    return f'<div class="rein-root mathjax_ignore tex2jax_ignore" style="{html.escape(STYLES["root"])}">{inner}</div>'


def escape_tail(text: str) -> str:
    """A tail that was already shown, as HTML text."""
    return html.escape(text, quote=False)


def card_open(block: Block) -> bool:
    """Whether a tool card is unfolded: while it works, when it failed, and when it is small; so it looks the same live and saved."""
    view = block.tool
    if view is None or view.result is None or view.state != "ok":
        return True
    size = len(view.call.arguments_text) if view.call is not None else 0
    return (
        size + sum(len(part.text) if not isinstance(part, MediaPart) else 0 for part in view.result.content)
        <= SMALL_CARD
    )


def json_text(value: Any) -> str:
    """JSON for reading: on one line where it is short."""
    clean = masked(value)
    line = json.dumps(clean, ensure_ascii=False, default=str)
    return line if len(line) <= 80 else json.dumps(clean, ensure_ascii=False, indent=2, default=str)


def question_in_short(question: Question) -> str:
    """A sub-agent's question on one line, with the answer where it is known."""
    answer = f": {question.answer}" if question.answer else ""
    return f"Asked to run {question.call.name[:MAX_NAME]}({_in_short(question.call)}){answer}"


def arguments_in_short(view: ToolView) -> str:
    """The arguments on one line, at most about 80 characters."""
    return _in_short(view.call) if view.call is not None else ""


def _arguments_json(call: ToolCall) -> str:
    return call.raw_arguments if call.raw_arguments is not None else json_text(call.arguments)


def _in_short(call: ToolCall) -> str:
    if not call.arguments:
        return ""
    pairs = masked(call.arguments).items()
    text = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False, default=str)}" for key, value in pairs)
    return text if len(text) <= 80 else text[:79] + "…"


def _tall(text: str) -> dict[str, str]:
    # Such a box wraps its lines and scrolls down only; about 40 characters fit into a line of a narrow column.
    return focusable(text, width=600)


def _cut(text: str) -> str:
    if len(text) <= MAX_SHOWN:
        return text
    return text[:MAX_SHOWN] + f"\n… {len(text) - MAX_SHOWN:,} more characters are kept in the result"


def _language(text: str) -> str:
    head = text.lstrip()[:1]
    if head not in ("{", "[") or len(text) > MAX_SHOWN:
        return ""
    try:
        json.loads(text)
    except ValueError:
        return ""
    return "json"

"""View state to Markdown and plain text, and a run as JSON data. Pure; as clean as the HTML."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from rein_nb.ir import MediaPart
from rein_nb.notebook.footer import seconds
from rein_nb.notebook.markdown import link_allowed
from rein_nb.notebook.render import STATE_WORDS, json_text, question_in_short
from rein_nb.notebook.safe_markdown import code_span, escape_text, fence, link, safe_markdown
from rein_nb.notebook.sanitize import masked, shown
from rein_nb.notebook.view_model import Block, ToolView, ViewState

TRANSCRIPT_MIME = "application/vnd.rein-nb.transcript+json"
"""The vendor MIME type of saved transcripts."""


def _media_words(part: MediaPart | None) -> str:
    if part is None:
        return ""
    where = f"{len(part.data):,} bytes" if part.data is not None else f"not fetched: {part.url or part.file_id}"
    return shown(f"[{part.kind}: {part.name or part.kind}, {where}]")


def _state_words(view: ToolView) -> str:
    symbol, words, _ = STATE_WORDS[view.state]
    time = f", {seconds(view.duration_s)}" if view.duration_s is not None else ""
    return f"{symbol} {words}{time}"


def _arguments(block: Block) -> str:
    view = block.tool
    if view is None:
        return ""
    if view.call is None:
        return block.text
    if view.call.raw_arguments is not None:
        return view.call.raw_arguments
    return json_text(view.call.arguments) if view.call.arguments else ""


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


# -- Markdown -----------------------------------------------------------------------------------------


def _markdown_block(block: Block) -> str:
    text = block.text
    if block.kind == "text":
        return "\n\n".join(filter(None, (safe_markdown(text), _markdown_citations(block))))
    if block.kind == "thinking":
        return _quoted(f"**Thinking**\n\n{safe_markdown(text) or '(withheld by the provider)'}")
    if block.kind in ("user", "system"):
        return f"**{'Prompt' if block.kind == 'user' else 'System prompt'}**\n\n{fence(shown(text))}"
    if block.kind == "refusal":
        return _quoted(f"**The model declined**\n\n{safe_markdown(text)}")
    if block.kind == "tool":
        return _markdown_tool(block)
    if block.kind == "server_tool" and block.server_tool is not None:
        part = block.server_tool
        out = [f"**Tool** {code_span(shown(part.name))} (run by the provider)"]
        out += [
            fence(shown(v if isinstance(v, str) else json_text(v))) for v in (part.input, part.output) if v is not None
        ]
        return "\n\n".join(out)
    if block.kind == "media":
        return escape_text(_media_words(block.media))
    if block.kind == "error":
        hint = f"\n\n{escape_text(shown(block.hint))}" if block.hint else ""
        return _quoted(f"**Error: {escape_text(shown(block.title))}**\n\n{fence(shown(text))}{hint}")
    return f"*{code_span(shown(text))}*" if text else ""


def _markdown_citations(block: Block) -> str:
    lines = []
    for number, citation in enumerate(block.citations, 1):
        title = escape_text(shown(citation.title or citation.source or "source").replace("\n", " "))
        if link_allowed(citation.source):
            title = link(title, shown(citation.source))
        elif citation.title and citation.source:
            title += f" ({escape_text(shown(citation.source))})"
        quote = f": “{escape_text(shown(citation.quote).replace(chr(10), ' '))}”" if citation.quote else ""
        lines.append(f"{number}. {title}{quote}")
    return "\n".join(lines)


def _markdown_tool(block: Block) -> str:
    view = block.tool
    assert view is not None
    out = [f"**Tool** {code_span(shown(view.name))} {_state_words(view)}"]
    arguments = _arguments(block)
    if arguments:
        out.append(fence(shown(arguments), "json" if view.call is not None and view.call.error is None else ""))
    out += [code_span(shown(question_in_short(question))) for question in view.questions]
    if view.result is not None:
        for part in view.result.content:
            out.append(escape_text(_media_words(part)) if isinstance(part, MediaPart) else fence(shown(part.text)))
    return "\n\n".join(out)


def markdown_transcript(state: ViewState) -> str:
    """The whole run as safe Markdown."""
    blocks = [_markdown_block(block) for block in state.blocks]
    facts = " · ".join(shown(fact) for fact in state.footer.facts())
    return "\n\n".join(filter(None, [*blocks, f"*{escape_text(facts)}*" if facts else ""]))


# -- plain text ---------------------------------------------------------------------------------------


def _plain_block(block: Block) -> str:
    text = shown(block.text)
    if block.kind == "text":
        notes = [
            shown(f"[{number}] {' '.join(filter(None, (c.title, c.source, c.quote)))}")
            for number, c in enumerate(block.citations, 1)
        ]
        return "\n".join([text, *notes])
    if block.kind in ("thinking", "user", "system", "refusal"):
        head = {"thinking": "Thinking", "user": "Prompt", "system": "System prompt", "refusal": "The model declined"}[
            block.kind
        ]
        return f"{head}:\n{textwrap.indent(text or '(withheld by the provider)', '  ')}"
    if block.kind == "tool" and block.tool is not None:
        view = block.tool
        out = [f"Tool {shown(view.name)} {_state_words(view)}", textwrap.indent(shown(_arguments(block)), "  ")]
        out += [f"  {shown(question_in_short(question))}" for question in view.questions]
        if view.result is not None:
            pieces = [_media_words(p) if isinstance(p, MediaPart) else shown(p.text) for p in view.result.content]
            out.append(textwrap.indent("\n".join(pieces), "  -> ", lambda line: True))
        return "\n".join(filter(None, out))
    if block.kind == "server_tool" and block.server_tool is not None:
        part = block.server_tool
        values = [v if isinstance(v, str) else json_text(v) for v in (part.input, part.output) if v is not None]
        return "\n".join(
            [f"Tool {shown(part.name)} (run by the provider)", *(textwrap.indent(shown(v), "  ") for v in values)]
        )
    if block.kind == "media":
        return _media_words(block.media)
    if block.kind == "error":
        return "\n".join(filter(None, [f"Error ({shown(block.title)}): {text}", shown(block.hint)]))
    return f"({text})"


def plain_transcript(state: ViewState) -> str:
    """The whole run as plain text."""
    facts = " · ".join(shown(fact) for fact in state.footer.facts())
    return "\n\n".join(filter(None, [*(_plain_block(block) for block in state.blocks), facts]))


# -- data ---------------------------------------------------------------------------------------------


def transcript_data(state: ViewState) -> dict[str, Any]:
    """The run as JSON data: what was shown, as data, with secrets masked."""
    blocks = []
    for block in state.blocks:
        item: dict[str, Any] = {"kind": block.kind, "turn": block.turn}
        if block.kind != "tool" and block.text:
            item["text"] = block.text
        if block.tool is not None:
            view = block.tool
            item |= {"name": view.name, "state": view.state, "duration_s": view.duration_s}
            item["arguments"] = (
                view.call.arguments if view.call is not None and view.call.error is None else _arguments(block)
            )
            if view.questions:
                item["asked"] = [
                    {"name": asked.call.name, "arguments": asked.call.arguments, "answer": asked.answer or None}
                    for asked in view.questions
                ]
            if view.result is not None:
                item["result"] = [_media_words(p) if isinstance(p, MediaPart) else p.text for p in view.result.content]
        if block.server_tool is not None:
            item |= {
                "name": block.server_tool.name,
                "input": block.server_tool.input,
                "output": block.server_tool.output,
            }
        if block.citations:
            item["citations"] = [
                c.model_dump(mode="json", exclude_defaults=True, exclude={"extra"}) for c in block.citations
            ]
        if block.media is not None:
            item["text"] = _media_words(block.media)
        if block.hint or block.title:
            item |= {key: value for key, value in (("title", block.title), ("next", block.hint)) if value}
        blocks.append(item)
    footer = state.footer
    data = {
        "version": 1,
        "status": state.status,
        "model": footer.model,
        "provider": footer.provider,
        "usage": footer.usage.model_dump(mode="json", exclude_none=True, exclude={"raw"}),
        "first_token_s": footer.first_token_s,
        "duration_s": footer.duration_s,
        "blocks": blocks,
    }
    out: dict[str, Any] = json.loads(json.dumps(masked(data), default=str))
    return out

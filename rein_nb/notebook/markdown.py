"""Markdown to sanitised HTML, block by block.

markdown-it parses (raw HTML off), its output passes the tag allow-list of `sanitize.clean_html`, and only then are our own pieces put in:
highlighted code and MathML, both built from escaped text. Links show their whole target; images become links; nothing is fetched.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import Any

from rein_nb.notebook.blocks import split_blocks
from rein_nb.notebook.highlight import highlight
from rein_nb.notebook.mathml import mathml
from rein_nb.notebook.sanitize import MARK_CLOSE, MARK_OPEN, SCHEMES, clean_html, guard_math, shown
from rein_nb.notebook.style import attributes, focusable

_MARK = re.compile(f"{MARK_OPEN}(\\d+){MARK_CLOSE}")
_LONE_MARK = re.compile(f"<p>({MARK_OPEN}\\d+{MARK_CLOSE})</p>")
_HEADING = re.compile(r"<h([1-6])>")
_LAYOUT = re.compile(
    r"(<(?:table|thead|tbody|ol|ul|tr|li|blockquote)>)\n(?=<)|\n(?=</(?:table|thead|tbody|ol|ul|tr|li|blockquote)>)"
)
"""Line ends between tags that separate no text from another."""
_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_MATH_CLOSERS = {"$$": "$$", "\\[": "\\]", "\\(": "\\)"}


def link_allowed(url: str) -> bool:
    """Whether a link may be active: absolute, and of a harmless scheme."""
    match = _SCHEME.match(url.strip())
    return match is not None and match[1].lower() in SCHEMES


def _math_rule(state: Any, silent: bool) -> bool:
    """Inline rule: ``$x$``, ``$$x$$``, ``\\(x\\)``, ``\\[x\\]`` become one math token."""
    source, start = state.src, state.pos
    opener = next((mark for mark in ("$$", "\\[", "\\(") if source.startswith(mark, start)), "")
    if opener:
        end = source.find(_MATH_CLOSERS[opener], start + 2)
        tex, stop = source[start + 2 : end], end + 2
    elif source[start] == "$":
        # As in Pandoc: no space inside the dollar signs, no digit after them, so that prices stay prices.
        end = source.find("$", start + 1)
        tex, stop = source[start + 1 : end], end + 1
        if end > 0 and (tex[:1].isspace() or tex[-1:].isspace() or source[stop : stop + 1].isdigit()):
            return False
    else:
        return False
    if end < 0 or not tex.strip() or "\n\n" in tex:
        return False
    if not silent:
        token = state.push("math", "math", 0)
        token.content, token.meta = tex.strip(), {"block": opener in ("$$", "\\[")}
    state.pos = stop
    return True


@lru_cache(maxsize=1)
def parser() -> Any:
    """The one configured parser; it keeps no state between calls."""
    from markdown_it import MarkdownIt

    md = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    md.validateLink = link_allowed  # type: ignore[method-assign]
    md.inline.ruler.before("escape", "math", _math_rule)
    rules = {
        "text": _text, "image": _image, "link_open": _link_open, "link_close": _link_close, "fence": _fence, "code_block": _fence,
        "math": _math, "th_open": _cell, "td_open": _cell,
    }  # fmt: skip
    for name, rule in rules.items():
        md.add_render_rule(name, rule)
    return md


def _text(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    return guard_math(html.escape(tokens[index].content, quote=False))


def _link_open(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    return f'<a href="{html.escape(str(tokens[index].attrs.get("href", "")))}">'


def _link_close(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    depth, text = 1, ""
    while depth and index > 0:
        index -= 1
        depth += {"link_close": 1, "link_open": -1}.get(tokens[index].type, 0)
        text = (tokens[index].content or "") + text
    target = str(tokens[index].attrs.get("href", ""))
    return "</a>" + ("" if text == target else _target(target))


def _target(url: str) -> str:
    return f' <span class="rein-url">({guard_math(html.escape(url, quote=False))})</span>'


def _image(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    url, alt = str(token.attrs.get("src", "")), token.content or "image"
    if not link_allowed(url):
        return guard_math(html.escape(f"[image: {alt}]", quote=False))
    return f'<a href="{html.escape(url)}">{guard_math(html.escape(f"image: {alt}", quote=False))}</a>{_target(url)}'


def _keep(env: Any, markup: str) -> str:
    env["kept"].append(markup)
    return f"{MARK_OPEN}{len(env['kept']) - 1}{MARK_CLOSE}"


def _fence(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    language = re.sub(r"[^\w+#.-]", "", (token.info or "").split(" ")[0])[:30]
    return _keep(env, code_block(token.content.removesuffix("\n"), language, static=env["static"]))


def code_block(code: str, language: str, *, static: bool) -> str:
    """A block of code, already `shown`."""
    # Such a box scrolls sideways only.
    more = "".join(f' {name}="{value}"' for name, value in focusable(code, lines=len(code) + 1).items())
    return f"<pre{attributes('code', static=static)}{more}>{highlight(code, language, static=static)}</pre>"


def _math(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    block = bool(token.meta["block"])
    typeset = mathml(token.content, block=block)
    if typeset is None:
        return _keep(env, f"<code{attributes('tex', static=env['static'])}>{html.escape(token.content)}</code>")
    if block:
        typeset = f"<span{attributes('mathblock', static=env['static'])}>{typeset}</span>"
    return _keep(env, typeset)


def _cell(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    style = str(token.attrs.get("style", ""))
    align = style.removeprefix("text-align:")
    return f'<{token.tag} align="{align}">' if align in ("left", "right", "center") else f"<{token.tag}>"


def render_block(source: str, *, static: bool, references: dict[str, Any] | None = None) -> str:
    """One block of foreign Markdown as sanitised HTML.

    Parameters
    ----------
    source
        The block's text, as it came.
    static
        Whether styles are written into the elements.
    references
        Link definitions seen so far in this text; new ones are added.
    """
    env: dict[str, Any] = {"static": static, "kept": [], "references": references if references is not None else {}}
    cleaned = clean_html(parser().render(shown(source), env)).strip()
    cleaned = _LAYOUT.sub(r"\1", _LONE_MARK.sub(r"\1", cleaned))
    if static:
        cleaned = cleaned.replace('<span class="rein-url">', f"<span{attributes('url', static=True)}>")
    # A clean heading tag is exactly this; foreign text cannot hold one, since its "<" is escaped.
    cleaned = _HEADING.sub(
        lambda match: f"<h{match[1]}{attributes(f'h{min(4, int(match[1]))}', static=static)}>", cleaned
    )
    return _MARK.sub(lambda match: env["kept"][int(match[1])], cleaned)


def render(source: str, *, static: bool) -> str:
    """A whole foreign Markdown text as sanitised HTML, by the same blocks as when it streams."""
    references: dict[str, Any] = {}
    return "\n".join(
        filter(None, (render_block(block, static=static, references=references) for block in split_blocks(source)))
    )

"""Draws the two pictures of the design from the code: a token's way, and which room imports which.

``python docs/make.py`` writes the SVG files beside it, each in a light and a dark form. What the boxes
name is read from the unions of types, the table of dialects and the layers that import-linter holds to; which room imports which is read from the imports.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, get_args

import grimp

from rein_nb.agent.events import AgentEvent
from rein_nb.ir.deltas import Delta
from rein_nb.ir.events import StreamEvent
from rein_nb.providers.spec import DIALECTS

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent / "pyproject.toml"
FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


@dataclass(frozen=True)
class Theme:
    """Colours of one form."""

    ink: str
    soft: str
    line: str
    card: str
    wire: str
    pure: str
    loop: str
    keep: str


THEMES = {
    "light": Theme("#1b1f24", "#57606a", "#8c959f", "#ffffff", "#fff1e0", "#e6f2ff", "#efe8ff", "#e6f6ea"),
    "dark": Theme("#e6edf3", "#a8b3be", "#768390", "#1c2128", "#3a2a14", "#14304f", "#2e2350", "#143521"),
}


@dataclass
class Drawing:
    """Pieces of an SVG, added one by one."""

    theme: Theme
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, fill: str, *, radius: float = 10) -> None:
        """A card."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" fill="{fill}" stroke="{self.theme.line}"/>'
        )

    def text(
        self, x: float, y: float, text: str, *, size: float = 13, soft: bool = False, mono: bool = False,
        bold: bool = False, anchor: str = "start", turn: float = 0,
    ) -> None:  # fmt: skip
        """One line of text; `y` is its base line."""
        look = f'font-family="{MONO if mono else FONT}" font-size="{size:g}" fill="{self.theme.soft if soft else self.theme.ink}"'
        look += ' font-weight="600"' if bold else ""
        look += f' text-anchor="{anchor}"' if anchor != "start" else ""
        look += f' transform="rotate({turn:g} {x:g} {y:g})"' if turn else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" {look}>{escape(text)}</text>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A straight arrow."""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{self.theme.soft}" stroke-width="1.6" marker-end="url(#tip)"/>'
        )

    def dot(self, x: float, y: float, radius: float, fill: str) -> None:
        """A filled circle."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}"/>')

    def svg(self, width: float, height: float) -> str:
        """The whole file."""
        tip = (
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0 8 4 0 8z" fill="{self.theme.soft}"/></marker></defs>'
        )
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img">'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", tip, *self.parts, "</svg>", ""])


def named(union: Any) -> list[str]:
    """The names of a union's types, in the order in which they are written."""
    return [kind.__name__ for kind in get_args(union)]


def lines_of(words: list[str], width: int) -> list[str]:
    """Words in lines of at most `width` characters."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 2 + len(word) <= width:
            lines[-1] += ", " + word
        else:
            lines.append(word)
    return lines


# -- a token's way ------------------------------------------------------------------------------------


def token_way(theme: Theme) -> str:
    """From the bytes of a response to those who listen."""
    drawing = Drawing(
        theme, "A token's way: bytes, wire events, deltas, stream events, agent events, and those who listen"
    )
    stages: list[tuple[str, str, str, str, list[str]]] = [
        ("bytes", "providers/ · transport", "moves bytes, knows no field", theme.wire, ["an SDK's client, or httpx", "", "retries, timeouts by phase and", "cancelling: one driver for all"]),
        ("wire events", "dialects/framing", "cuts bytes into events", theme.wire, ["SSE, JSON lines, JSON array", "", "wherever the network cut them:", "in a character, in a line end"]),
        ("deltas", "dialects/ · Decoder.feed", "the only code that knows a field", theme.pure,
         [*lines_of(list(DIALECTS), 34), "", *lines_of(named(Delta), 34)]),
        ("stream events", "stream/ · Accumulator.feed", "the only code that accumulates", theme.pure,
         lines_of(named(StreamEvent), 34)),
        ("agent events", "agent/ · loop", "calls the model, runs the tools", theme.loop, lines_of(named(AgentEvent), 34)),
    ]  # fmt: skip
    width, gap, left, top = 274.0, 46.0, 16.0, 16.0
    x, y, row = left, top, 0.0
    heights = [86 + 15.0 * len(stage[4]) for stage in stages]
    places: list[tuple[float, float, float]] = []
    for number in range(len(stages)):
        if number == 3:  # a second row, so that the picture can be read on a page's width
            x, y = left, top + max(heights[:3]) + gap
        places.append((x, y, heights[number]))
        row = max(row, y + heights[number])
        x += width + gap
    listeners_x = left + 2 * (width + gap)
    tall = max(heights[3:])
    for (at_x, at_y, _), (name, room, why, fill, words) in zip(places, stages, strict=True):
        height = max(heights[:3]) if at_y == top else tall
        drawing.box(at_x, at_y, width, height, fill)
        drawing.text(at_x + 14, at_y + 27, name, size=16, bold=True)
        drawing.text(at_x + 14, at_y + 47, room, size=11.5, mono=True)
        drawing.text(at_x + 14, at_y + 64, why, size=12, soft=True)
        for n, word in enumerate(words):
            drawing.text(at_x + 14, at_y + 88 + 15 * n, word, size=11, mono=True, soft=True)
    middle = top + 45
    drawing.arrow(left + width, middle, left + width + gap - 3, middle)
    drawing.arrow(left + 2 * width + gap, middle, left + 2 * (width + gap) - 3, middle)
    below = places[3][1]
    # From the end of the first row to the beginning of the second.
    bend = below - gap / 2
    drawing.parts.append(
        f'<path d="M{listeners_x + width / 2:g} {below - gap:g}V{bend:g}H{left + width / 2:g}V{below - 3:g}" fill="none" '
        f'stroke="{theme.soft}" stroke-width="1.6" marker-end="url(#tip)"/>'
    )
    drawing.arrow(left + width, below + 45, left + width + gap - 3, below + 45)
    listeners = [
        ("notebook/", "the live view and the saved output"),
        ("store/", "sessions, written as they happen"),
        ("frames/", "tidy tables"),
        ("compare/", "one grid of many runs"),
    ]
    step = tall / len(listeners)
    for n, (room, what) in enumerate(listeners):
        at = below + n * step
        drawing.box(listeners_x, at + 4, width, step - 8, theme.keep)
        drawing.text(listeners_x + 14, at + step / 2 - 3, room, size=13, mono=True, bold=True)
        drawing.text(listeners_x + 14, at + step / 2 + 15, what, size=12, soft=True)
        drawing.arrow(left + 2 * width + gap, below + tall / 2, listeners_x - 3, at + step / 2)
    return drawing.svg(left * 2 + 3 * width + 2 * gap, row + top)


# -- the house ----------------------------------------------------------------------------------------


def layers() -> list[str]:
    """The rooms from the lowest to the highest, as import-linter is told them."""
    contracts = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    found = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [layer.removeprefix("rein_nb.") for layer in reversed(found) if not layer.endswith("__main__")]


def imports(rooms: list[str]) -> set[tuple[str, str]]:
    """(room, room that it imports) of all imports in the package."""
    graph = grimp.build_graph("rein_nb", cache_dir=None)
    found = set()
    for room in rooms:
        inside = {f"rein_nb.{room}"} | graph.find_descendants(f"rein_nb.{room}")
        for module in inside:
            for target in graph.find_modules_directly_imported_by(module):
                other = target.split(".")[1] if "." in target else ""
                if other in rooms and other != room:
                    found.add((room, other))
    return found


def house(theme: Theme) -> str:
    """Which room imports which: a triangle, because imports lead only to rooms that stand to the left."""
    rooms = layers()
    drawing = Drawing(theme, "Which room imports which. Every dot lies left of the diagonal: imports lead only one way")
    cell, left, top = 34.0, 132.0, 112.0
    pairs = imports(rooms)
    for n, room in enumerate(rooms):
        y = top + n * cell
        drawing.box(left, y, cell * n, cell, theme.card, radius=0) if n else None
        drawing.box(left + n * cell, y, cell, cell, theme.pure, radius=0)
        drawing.text(left - 12, y + cell / 2 + 4.5, f"{room}", size=13, mono=True, bold=True, anchor="end")
        drawing.text(left + n * cell + cell / 2 + 4, top - 12, room, size=13, mono=True, turn=-50)
        for m, other in enumerate(rooms):
            if (room, other) in pairs:
                drawing.dot(left + m * cell + cell / 2, y + cell / 2, 6, theme.ink if m < n else "#d1242f")
    side = left + 8.4 * cell
    drawing.text(side, top + 2.6 * cell, "A dot: the room on the left imports the room above.", size=12.5, soft=True)
    drawing.text(side, top + 3.2 * cell, "None lies beyond the diagonal.", size=12.5, soft=True)
    return drawing.svg(left + cell * len(rooms) + 70, top + cell * len(rooms) + 16)


def files() -> dict[Path, str]:
    """Every file and what should be in it."""
    drawings = {"token-way": token_way, "house": house}
    return {
        HERE / f"{name}-{form}.svg": draw(theme) for name, draw in drawings.items() for form, theme in THEMES.items()
    }

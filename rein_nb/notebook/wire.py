"""View operations to wire operations: what goes to the browser, coalesced, as little as possible.

A message is ``[number, op, op...]``; `static/widget.js` is its other end. Operations:

=================================  ====================================================================================
``"text"``                         append to the tail of the block chosen last
``["o", id]``                      choose a block
``["s", text]``, ``["m", mode]``   set the tail's text, its mode
``["b", literal, skip, len, ...]`` a finished block: literals and references into the tail (`tail.references`), then empty
``["a", pane, id, html]``          add a block to a pane
``["u", id, slot, html]``          fill a slot of a block
``["d", id, open]``                fold or unfold a block
``["r", pane, id, html]``          a block anew
``["f", pane, html]``              the footer of a pane
``["g", pane, status, words]``     the status of a pane, and what a screen reader says
``["S", [blocks, foot, status, words], ...]``  everything anew, one entry a pane
=================================  ====================================================================================
"""

from __future__ import annotations

from typing import Any, TypeAlias

from rein_nb.notebook.render import STATE_WORDS, Renderer, card_open
from rein_nb.notebook.sanitize import shown
from rein_nb.notebook.tail import MarkdownTail, PlainTail, WireOp
from rein_nb.notebook.view_model import Block, Op, ViewState

Tail: TypeAlias = MarkdownTail | PlainTail

_GROWING = frozenset({"text", "thinking", "refusal", "tool"})
_MARKDOWN = frozenset({"text", "thinking", "refusal"})

_STATUS_WORDS = {"waiting": "Waiting", "running": "Running", "done": "Done", "stopped": "Stopped", "failed": "Failed"}


class Encoder:
    """The live display of one run: takes view operations, gives wire operations at each flush.

    Parameters
    ----------
    state
        The run's view state, kept up to date by the caller.
    pane
        Which column of the widget this run is drawn in.
    """

    def __init__(self, state: ViewState, pane: int = 0) -> None:
        self.state = state
        self.pane = pane
        self.prefix = f"{pane}-"
        self._renderer = Renderer(static=False, prefix=self.prefix, growing=self._growing)
        self._tails: dict[str, Tail] = {}
        self._queue: list[tuple[str, str, str]] = []
        self._changed: dict[str, None] = {}
        self._sent: dict[tuple[str, str], Any] = {}
        self._folded: set[str] = set()
        self._footer = self._status = False
        self._said = ""

    @property
    def dirty(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self._queue or self._changed or self._footer or self._status)

    def take(self, ops: list[Op]) -> None:
        """Note view operations; cheap, called for every event."""
        for op in ops:
            if op.kind == "text":
                tail = self._tails.get(op.block)
                if tail is not None:
                    tail.take(op.text)
                    if not self._queue or self._queue[-1][:2] != ("text", op.block):
                        self._queue.append(("text", op.block, ""))
            elif op.kind == "add":
                block = self.state.by_id[op.block]
                if block.kind in _GROWING and not block.done:
                    self._tails[op.block] = MarkdownTail() if block.kind in _MARKDOWN else PlainTail()
                self._queue.append(("add", op.block, ""))
            elif op.kind == "done":
                if op.block in self._tails:
                    self._tails[op.block].end()
                self._queue.append(("done", op.block, ""))
            elif op.kind == "set":
                self._tails.pop(op.block, None)
                self._queue.append(("set", op.block, ""))
            elif op.kind == "change":
                self._changed[op.block] = None
            elif op.kind == "footer":
                self._footer = True
            else:
                self._status = True

    def flush(self, chosen: list[str]) -> list[WireOp]:
        """The wire operations since the last flush. `chosen` holds the id of the block that the sheet's tail operations go to."""
        out: list[WireOp] = []
        queue, self._queue = self._queue, []
        for kind, block_id, _ in queue:
            block = self.state.by_id[block_id]
            if kind == "add":
                out += self._fold_thinking(block)
            if kind in ("add", "set"):
                out.append(["a" if kind == "add" else "r", self.pane, self.prefix + block_id, self._draw(block)])
                self._changed.pop(block_id, None)
            else:
                tail = self._tails.get(block_id) if block.tool is None or block.tool.call is None else None
                ops = tail.flush() if tail is not None else []
                if ops and chosen != [self.prefix + block_id]:
                    chosen[:] = [self.prefix + block_id]
                    out.append(["o", *chosen])
                out += ops
                if kind == "done":
                    out += self._finished(block)
                    if block.kind == "thinking":
                        title = self._renderer.thinking_title(block, len(block.text.split()))
                        out.append(["u", self.prefix + block.id, "summary", title])
        changed, self._changed = self._changed, {}
        for block_id in changed:
            out += self._update(self.state.by_id[block_id])
        out += self._frame()
        return out

    def _draw(self, block: Block) -> str:
        self._remember(block)
        if block.id in self._tails and block.kind in _MARKDOWN:
            # Its text follows through the tail, also when it ended meanwhile.
            empty = Block(id=block.id, kind=block.kind, turn=block.turn, title=block.title)
            return self._renderer.block(empty)
        return self._renderer.block(block)

    def _growing(self, block: Block) -> tuple[str, str, str] | None:
        tail = self._tails.get(block.id)
        return ("".join(tail.html), tail.sent, tail.mode) if tail is not None else None

    def _fold_thinking(self, newer: Block) -> list[WireOp]:
        """Thinking is over when something follows it, also on wires that do not say so."""
        return [
            op
            for block in self.state.open.values()
            if block.kind == "thinking" and block is not newer
            for op in self._finished(block)
        ]

    def _finished(self, block: Block) -> list[WireOp]:
        if block.kind != "thinking" or block.id in self._folded:
            return []
        self._folded.add(block.id)
        return [["d", self.prefix + block.id, 0]]

    def _slots(self, block: Block) -> dict[str, str]:
        if block.kind == "tool" and block.tool is not None:
            slots = {
                "head": self._renderer.tool_head(block),
                "result": self._renderer.tool_result(block.tool),
                "ask": self._renderer.approval(block.tool),
            }
            if block.tool.call is not None:
                slots["args"] = self._renderer.tool_args(block)
            return slots
        if block.kind == "text":
            return {"cites": self._renderer.citations(block.citations)}
        return {}

    def _remember(self, block: Block) -> None:
        for slot, content in self._slots(block).items():
            self._sent[block.id, slot] = content
        if block.kind == "tool":
            self._sent[block.id, "open"] = card_open(block)

    def _update(self, block: Block) -> list[WireOp]:
        slots = self._slots(block)
        if not slots:
            return [["r", self.pane, self.prefix + block.id, self._draw(block)]]
        out: list[WireOp] = []
        for slot, content in slots.items():
            if self._sent.get((block.id, slot)) != content:
                self._sent[block.id, slot] = content
                out.append(["u", self.prefix + block.id, slot, content])
        if block.kind == "tool" and self._sent.get((block.id, "open")) != card_open(block):
            self._sent[block.id, "open"] = card_open(block)
            out.append(["d", self.prefix + block.id, int(card_open(block))])
        return out

    def _frame(self) -> list[WireOp]:
        out: list[WireOp] = []
        if self._footer:
            out.append(["f", self.pane, self._renderer.footer(self.state)])
        words = self.words()
        if self._status or words != self._said:
            self._said = words
            out.append(["g", self.pane, self.state.status, words])
        self._footer = self._status = False
        return out

    def words(self) -> str:
        """The run's state for a screen reader."""
        tool = next((b.tool for b in reversed(self.state.blocks) if b.tool is not None), None)
        if self.state.status == "running" and tool is not None and tool.result is None:
            return shown(f"Tool {tool.name}: {STATE_WORDS[tool.state][1]}")
        return _STATUS_WORDS[self.state.status]

    def snapshot(self) -> list[Any]:
        """The pane as it stands after the last flush: HTML of the blocks, footer, status, words, and the chosen block's id."""
        blocks = "".join(self._renderer.block(block) for block in self.state.blocks)
        return [blocks, self._renderer.footer(self.state), self.state.status, self.words()]

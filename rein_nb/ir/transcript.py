"""What every kept conversation can be written out as: a page, Markdown, JSON lines. The writers live in the notebook room and are loaded on use."""

from __future__ import annotations

from importlib import import_module


class HasTranscript:
    """Gives a result, completion, message, session or agent its exports."""

    __slots__ = ()

    def to_html(self, *, title: str = "Transcript") -> str:
        """One self-contained HTML page: no script, no request, light and dark. Secrets are masked.

        Parameters
        ----------
        title
            The page's title.
        """
        page: str = import_module("rein_nb.notebook").transcript_html(self, title=title)
        return page

    def to_markdown(self) -> str:
        """The transcript as Markdown that is safe wherever it is rendered. Secrets are masked."""
        text: str = import_module("rein_nb.notebook").transcript_markdown(self)
        return text

    def to_jsonl(self) -> str:
        """The whole as JSON lines, that `rein_nb.notebook.from_jsonl` reads back. Secrets are masked."""
        lines: str = import_module("rein_nb.notebook").transcript_jsonl(self)
        return lines

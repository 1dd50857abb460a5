"""The file tools: read, write, edit, ls, glob and grep below one folder."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Annotated, Any

from pydantic import Field

from rein_nb.ir import ToolResult
from rein_nb.tools.builtin import listing, matcher
from rein_nb.tools.builtin.editing import encoded, replaced
from rein_nb.tools.builtin.reading import read_result, whole_text
from rein_nb.tools.builtin.rooted import NotAFile, Root, spelled
from rein_nb.tools.context import ToolContext

MAX_EDIT = 16 * 2**20
"""Bytes of a file that `edit` changes and `grep` looks into."""

_GREP_TOTAL = 64 * 2**20
_GREP_MATCHES = 200

FilePath = Annotated[str, "Path relative to the folder, with / between names."]


class Files:
    """The file tools of one folder. Every path is confined by `Root`; an error is text for the model."""

    def __init__(self, root: Root) -> None:
        self.root = root

    def tools(self) -> dict[str, Callable[..., Any]]:
        """Function by tool name."""
        return {
            "read": self.read, "write": self.write, "edit": self.edit, "ls": self.ls, "glob": self.glob, "grep": self.grep,
        }  # fmt: skip

    def read(
        self,
        path: FilePath,
        ctx: ToolContext[Any],
        start: Annotated[int, Field(ge=1, description="First line to read, from 1.")] = 1,
        lines: Annotated[int | None, Field(ge=1, description="How many lines; as many as fit by default.")] = None,
    ) -> ToolResult:
        """Read a text file, or look at an image, PDF or sound. Long files come in pieces; the end of the text says where to go on."""
        with self.root.open_file(path) as file:
            return read_result(ctx.call, file, path, start, lines)

    def write(self, path: FilePath, content: Annotated[str, "The whole content."], ctx: ToolContext[Any]) -> ToolResult:
        """Write a whole text file. Replaces a file that exists; makes missing folders. To change a part of a file use edit."""
        data = encoded(content, "content")
        is_new = self.root.write(path, data)
        what = "Created" if is_new else "Replaced"
        return ToolResult(
            tool_call_id=ctx.call.id, content=f"{what} {path} ({len(data):,} bytes).",
            details={"path": path, "size": len(data), "created": is_new},
        )  # fmt: skip

    def edit(
        self,
        path: FilePath,
        old: Annotated[
            str, "The text to replace, exactly as it stands in the file, with enough around it to be unique."
        ],
        new: Annotated[str, "What to put in its place."],
        ctx: ToolContext[Any],
        everywhere: Annotated[bool, "Replace every occurrence instead of the only one."] = False,
    ) -> ToolResult:
        """Replace a piece of text in a file. It must occur exactly once."""
        with self.root.open_file(path) as file:
            state = os.fstat(file.fileno())
            if state.st_size > MAX_EDIT:
                raise NotAFile(
                    errno.EFBIG, f"is too large to be edited: {state.st_size:,} bytes, at most {MAX_EDIT:,}", path
                )
            data = file.read(MAX_EDIT + 1)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise NotAFile(
                errno.EINVAL, f"is not UTF-8 text ({exc.reason} at byte {exc.start}), so it is not edited", path
            ) from exc
        old, new = encoded(old, "old").decode(), encoded(new, "new").decode()
        changed, count = replaced(text, old, new, everywhere=everywhere)
        self.root.write(path, changed.encode("utf-8"), expect=state)
        times = "once" if count == 1 else f"{count} times"
        return ToolResult(
            tool_call_id=ctx.call.id,
            content=f"Edited {path}: replaced {times}.",
            details={"path": path, "replaced": count},
        )

    def ls(self, ctx: ToolContext[Any], path: FilePath = ".") -> ToolResult:
        """List a folder: folders end in /, symbolic links in @, files have their size in bytes."""
        with self.root.open_dir(path) as here:
            found = listing.entries(here)
        marks = {"folder": "/", "link": "@", "special": "?"}
        lines = [
            f"{spelled(entry.path)}{marks.get(entry.kind, '')}"
            + (f"  {entry.size:,}" if entry.size is not None else "")
            for entry in found[: listing.MAX_ENTRIES]
        ]
        if len(found) > listing.MAX_ENTRIES:
            lines.append(f"[{len(found) - listing.MAX_ENTRIES:,} more]")
        details = [
            {"name": entry.path, "kind": entry.kind, "size": entry.size} for entry in found[: listing.MAX_ENTRIES]
        ]
        return ToolResult(
            tool_call_id=ctx.call.id, content="\n".join(lines) or "[the folder is empty]", details={"entries": details}
        )

    def glob(
        self,
        pattern: Annotated[str, Field(max_length=300, description="Like *.py, src/**/*.ipynb or data/2024-??.csv.")],
        ctx: ToolContext[Any],
        path: Annotated[str, "Folder to search in."] = ".",
    ) -> ToolResult:
        """Find files by name. A pattern without / matches names in every folder; ** crosses folders. Folders like .git and node_modules are left out unless the pattern or path names them."""
        found: list[str] = []
        more = False
        left_out = listing.NotSearched()
        for entry in listing.find(self.root, pattern, path, left_out):
            ctx.raise_if_cancelled()
            if len(found) >= listing.MAX_ENTRIES:
                more = True
                break
            found.append(entry.path)
        lines = [*(found or ["[no file fits]"]), *listing.unreadable_names(found), *left_out.notes()]
        if more:
            lines.append(f"[only the first {listing.MAX_ENTRIES:,} are shown]")
        details = {"files": found, "complete": left_out.complete and not more, "not_searched": left_out.counts}
        return ToolResult(tool_call_id=ctx.call.id, content="\n".join(lines), details=details)

    def grep(
        self,
        pattern: Annotated[
            str, Field(min_length=1, max_length=1000, description="A Python regular expression, matched line by line.")
        ],
        ctx: ToolContext[Any],
        path: Annotated[str, "Folder or file to search in."] = ".",
        files: Annotated[str, Field(max_length=300, description="Only files that fit this pattern, like *.py.")] = "**",
        ignore_case: bool = False,
    ) -> ToolResult:
        """Find lines in text files. Gives path:line number:line. Folders like .git and node_modules are left out unless files or path names them."""
        left_out = listing.NotSearched()
        searched: list[str] = []
        texts = self._texts(path, files, ctx, left_out, searched)
        found, more = matcher.grep(texts, pattern, ignore_case=ignore_case, limit=_GREP_MATCHES, token=ctx.token)
        lines = [f"{where}:{number}:{line}" for where, number, line in found]
        lines += listing.unreadable_names(where for where, _, _ in found)
        if not found:
            lines.append(f"[no match in {len(searched):,} text files]")
            if "\n" in pattern or "\\n" in pattern:
                lines.append("[lines are matched one by one, so no pattern reaches across a line end]")
        if more:
            lines.append(f"[only the first {_GREP_MATCHES} lines are shown; search for less]")
        details = {
            "matches": [list(item) for item in found], "files": len(searched), "complete": left_out.complete and not more,
            "not_searched": left_out.counts,
        }  # fmt: skip
        return ToolResult(tool_call_id=ctx.call.id, content="\n".join([*lines, *left_out.notes()]), details=details)

    def _texts(
        self, path: str, pattern: str, ctx: ToolContext[Any], left_out: listing.NotSearched, searched: list[str]
    ) -> Iterator[tuple[str, str]]:
        """(path, content) of the text files, one by one, within the limits; what is beyond them goes into `left_out`."""
        left = _GREP_TOTAL
        for where, opened in self._opened(path, pattern, left_out):
            ctx.raise_if_cancelled()
            if left <= 0:
                left_out.add(f"after the first {_GREP_TOTAL:,} bytes of text", where)
                continue
            try:
                with opened as file:
                    text = whole_text(file, MAX_EDIT)
                    left -= 0 if text is None else file.tell()
            except FileNotFoundError:  # gone meanwhile
                continue
            except OSError as exc:
                why = f"larger than {MAX_EDIT:,} bytes" if exc.errno == errno.EFBIG else exc.strerror
                left_out.add(why or "cannot be read", where)
                continue
            if text is None:
                left_out.add(listing.BINARY, where)
                continue
            searched.append(where)
            yield where, text

    def _opened(
        self, path: str, pattern: str, left_out: listing.NotSearched
    ) -> Iterator[tuple[str, AbstractContextManager[IO[bytes]]]]:
        """(path, its file, to be opened before the next one is asked for) of one file, or of a folder's files that fit a pattern."""
        try:
            for entry in listing.find(self.root, pattern, path, left_out):
                if entry.kind == "file":
                    yield entry.path, self.root.open_at(entry.here, entry.name, entry.path)
        except NotAFile as exc:
            if exc.errno != errno.ENOTDIR:
                raise
            with self.root.open_file(path) as file:
                yield path, nullcontext(file)

"""The `bash` tool. A check of paths cannot confine a shell, so bubblewrap does; where that is missing, the tool says that it is not confined."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from pydantic import Field

from rein_nb.ir import ToolResult
from rein_nb.tools.builtin import sandbox
from rein_nb.tools.builtin.editing import encoded
from rein_nb.tools.builtin.processes import Finished, run_async
from rein_nb.tools.builtin.rooted import Root
from rein_nb.tools.context import ToolContext
from rein_nb.tools.names import ToolDefinitionError

MAX_TIMEOUT_S = 3600.0
_PROGRESS_S = 0.25

_MAX_ARGUMENT = 100_000
"""Bytes of a command that are handed over as an argument. Linux takes at most 128 KiB; what is longer comes in a file."""
_CONFINED = (
    "Run a bash command in a sandbox. Only the folder it starts in can be written, the system's programs can be read, "
    "there is no network. What is still running when the command ends is ended too."
)
_UNCONFINED = (
    "Run a bash command. It is NOT CONFINED ({why}): it can read, change and delete whatever the user can. "
    "What is still running when the command ends is ended too."
)


class NotConfinedWarning(UserWarning):
    """Commands of the `bash` tool are not confined."""


class Bash:
    """Runs commands below a folder.

    The sandbox holds while a command runs. What it has written into the folder (a script, a git hook, a notebook) can do more when
    somebody runs it outside later.

    Parameters
    ----------
    root
        The folder in which they start; under bubblewrap, all that they can change.
    timeout_s
        Seconds that a command may take when the model asks for no other time.
    confine
        ``"auto"``: where bubblewrap works, else a warning; ``"require"``: raise where it does not; ``"off"``: never.

    Raises
    ------
    ToolDefinitionError
        When confinement is required and not to be had, or there is no bash.
    """

    def __init__(
        self, root: Root, timeout_s: float = 120.0, confine: Literal["auto", "require", "off"] = "auto"
    ) -> None:
        self._root = root
        self.root = root.path
        self.timeout_s = timeout_s
        shell = shutil.which("bash")
        if shell is None:
            raise ToolDefinitionError("there is no bash on this system; leave 'bash' out with include=")
        self._shell = shell
        self.not_confined = "it was turned off" if confine == "off" else sandbox.unavailable_because()
        if self.not_confined is not None and confine == "require":
            raise ToolDefinitionError(f"commands cannot be confined: {self.not_confined}")
        if self.not_confined is not None and confine == "auto":
            warnings.warn(
                f"the bash tool is not confined: {self.not_confined}. Commands can do whatever you can.",
                NotConfinedWarning,
                stacklevel=3,
            )

    @property
    def confined(self) -> bool:
        """Whether commands run in the sandbox."""
        return self.not_confined is None

    @property
    def description(self) -> str:
        """What the model reads."""
        return _CONFINED if self.not_confined is None else _UNCONFINED.format(why=self.not_confined)

    async def bash(
        self,
        command: Annotated[str, "What bash runs."],
        ctx: ToolContext[Any],
        timeout_s: Annotated[
            float | None, Field(gt=0, le=MAX_TIMEOUT_S, description="Seconds after which it is ended.")
        ] = None,
    ) -> ToolResult:
        """Run a bash command."""
        if "\0" in command:
            raise ValueError("a command must not contain NUL")
        limit = timeout_s or self.timeout_s
        script = encoded(command, "the command")
        with self._root.open_dir(), _argument(script) as (argument, descriptors):
            line = [self._shell, "--noprofile", "--norc", "-c", argument]
            environment: dict[str, str] = {}
            if self.confined:
                line = sandbox.confined_command(line, self.root, shutil.which("bwrap") or "bwrap")
            else:
                environment = sandbox.scrubbed_environment()
            finished = await run_async(
                line, cwd=str(self.root), env=environment, timeout_s=limit, on_output=_Reporter(ctx), descriptors=descriptors
            )  # fmt: skip
        return self._result(ctx, finished, limit)

    def _result(self, ctx: ToolContext[Any], finished: Finished, limit: float) -> ToolResult:
        notes: list[str] = []
        if finished.how == "timed_out":
            notes.append(
                f"[ended after {limit:g} s, with everything it had started; it may have done part of its work]"
            )
        elif finished.how == "stopped":
            notes.append(
                "[interrupted: it was ended, with everything it had started; it may have done part of its work]"
            )
        elif finished.code:
            notes.append(f"[exit status {finished.code}]")
        if finished.left_behind:
            notes.append("[processes that it had left running were ended]")
        output = finished.output
        text = "\n".join([output.rstrip("\n"), *notes] if output else notes) or "(no output)"
        status: Literal["ok", "error", "timed_out", "interrupted"] = "ok" if finished.code == 0 else "error"
        if finished.how != "exited":
            status = "timed_out" if finished.how == "timed_out" else "interrupted"
        details = {
            "exit_status": finished.code, "output": output, "confined": self.confined, "duration_s": round(finished.duration_s, 3),
        }  # fmt: skip
        return ToolResult(
            tool_call_id=ctx.call.id, content=text, details=details, is_error=status != "ok", status=status
        )


@contextmanager
def _argument(command: bytes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(what follows ``bash -c``, the descriptors that it needs)."""
    if len(command) <= _MAX_ARGUMENT:
        yield command.decode(), ()
        return
    with tempfile.TemporaryFile() as file:
        file.write(command)
        file.seek(0)
        number = file.fileno()
        yield f'IFS= read -r -d "" REPLY <&{number}; exec {number}<&-; eval "$REPLY"', (number,)


class _Reporter:
    """Progress: the newest line of output, a few times a second at most."""

    def __init__(self, ctx: ToolContext[Any]) -> None:
        self._ctx = ctx
        self._last = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        lines = text.strip().splitlines()
        if lines and now - self._last >= _PROGRESS_S:
            self._last = now
            self._ctx.progress(lines[-1][:200])

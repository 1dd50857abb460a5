"""Matching a model's regular expression in a process of its own.

Some expressions take for ever on some texts, and Python's matcher cannot be interrupted and holds the interpreter while it runs: in this
process it would freeze the notebook. The child gets text and gives back matching lines; it opens nothing.
"""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import IO

from rein_nb.stream import CancellationToken

TIMEOUT_S = 20.0
_LINE_CHARS = 500

_CHILD = f"""
import json, re, sys
job = json.loads(sys.stdin.readline())
pattern = re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)
left = job["limit"]
end = "" if "\\r" in job["pattern"] or "\\\\r" in job["pattern"] else "\\r"  # a Windows line end is none of the line's letters
for record in sys.stdin:
    path, text = json.loads(record)
    for number, line in enumerate(text.removesuffix("\\n").split("\\n") if text else (), 1):
        line = line.removesuffix(end)
        match = pattern.search(line)
        if match:
            left -= 1
            if left < 0:
                print(json.dumps(None))
                sys.exit()
            start = max(0, match.start() - {_LINE_CHARS // 2}) if len(line) > {_LINE_CHARS} else 0
            after = start + {_LINE_CHARS}
            shown = line[start:after].rstrip("\\r")
            print(json.dumps([path, number, "[...]" * (start > 0) + shown + "[...]" * (after < len(line))]))
"""


class MatchFailed(RuntimeError):
    """The expression is invalid or took too long."""


def grep(
    texts: Iterable[tuple[str, str]], pattern: str, *, ignore_case: bool, limit: int, token: CancellationToken
) -> tuple[list[tuple[str, int, str]], bool]:
    """([(path, line number, line)], whether there were more than `limit`). Of a long line there is what stands around the match.

    Raises
    ------
    MatchFailed
        For an invalid expression, and after `TIMEOUT_S` seconds.
    Cancelled
        When the token is cancelled.
    """
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        raise MatchFailed(f"{pattern!r} is not a regular expression: {exc}") from exc
    job = {"pattern": pattern, "ignore_case": ignore_case, "limit": limit}
    # The child reads from a file: a pipe would have to be filled and emptied at the same time.
    with tempfile.TemporaryFile() as records:
        for record in itertools.chain([job], texts):
            records.write(json.dumps(record).encode() + b"\n")
        records.seek(0)
        output = _run(records, token)
    found = [json.loads(line) for line in output.splitlines()]
    more = bool(found) and found[-1] is None
    return [tuple(item) for item in found if item is not None], more


def _run(records: IO[bytes], token: CancellationToken) -> bytes:
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD],
        stdin=records,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
    ) as child:
        try:
            output = _output(child, token)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        raise MatchFailed(f"matching ended with exit status {child.returncode}")
    return output


def _output(child: subprocess.Popen[bytes], token: CancellationToken) -> bytes:
    for _ in range(int(TIMEOUT_S / 0.1)):
        token.raise_if_cancelled()
        try:
            return child.communicate(timeout=0.1)[0]
        except subprocess.TimeoutExpired:
            continue
    raise MatchFailed(f"the search took longer than {TIMEOUT_S:g} s; use a simpler expression, or search fewer files")

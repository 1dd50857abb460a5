"""What commands have in common: words to the two streams, data as JSON, and faults that are told in one line."""

from __future__ import annotations

import json
import sys
from typing import Any

FAILED = 1
"""Exit status when what was asked could not be done; wrong usage is 2, an interrupt 130."""


class CommandFailed(Exception):
    """What was asked cannot be done; the message says why, and what would be right."""


def say(text: str) -> None:
    """A line on stdout: what was asked for."""
    sys.stdout.write(text + "\n")


def complain(text: str) -> None:
    """A line on stderr."""
    sys.stderr.write(f"rein-nb: {text}\n")


def say_json(value: Any) -> None:
    """Data on stdout."""
    say(json.dumps(value, indent=2, ensure_ascii=False))

"""What of a server's address is secret: it is masked wherever it appears."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_PLAIN_HEADERS = frozenset(
    {
        "accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection", "content-type", "host",
        "mcp-protocol-version", "origin", "pragma", "referer", "user-agent",
    }
)  # fmt: skip
"""Headers that hold no secret: their values are ordinary words, which must not be masked elsewhere."""

_SECRET = re.compile(
    r"(?i)(?:^|[-_])(?:(?:api|access|private|subscription)?key|token|secret|pass(?:word|wd|phrase)?|pat|credentials?|auth)(?:$|[-_])"
)
_SCHEME = re.compile(r"(?i)^(?:bearer|basic|token|digest|apikey)\s+")


def secrets_in(
    command: Sequence[str] | None, env: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> Iterator[str]:
    """Values of headers, of environment variables and of options of the command whose names say that they are secret.

    Examples
    --------
    >>> list(secrets_in(["serve", "--api-key", "abc123", "--port=80"], {"GIT_TOKEN": "t0ken"}, {"Authorization": "Bearer xyz"}))
    ['xyz', 't0ken', 'abc123']
    """
    for name, value in (headers or {}).items():
        if name.lower() not in _PLAIN_HEADERS:
            yield _SCHEME.sub("", value.strip())
    yield from (value for name, value in (env or {}).items() if _SECRET.search(name))
    words = list(command or ())
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if word.startswith("-") and _SECRET.search(name.lstrip("-")):
            yield value if equals else following

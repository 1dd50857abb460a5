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
_NOT_THE_SECRET = re.compile(r"(?i)^no[-_]|[-_](?:file|path|dir|mode|type|name|url|uri|ttl|env|enabled)$")
"""Names that speak of a secret and hold none: ``--no-auth``, ``TOKEN_FILE``, ``AUTH_MODE``."""

_WORDS = frozenset(
    {
        "true",
        "false",
        "yes",
        "no",
        "on",
        "off",
        "none",
        "null",
        "default",
        "enabled",
        "disabled",
        "auto",
        "required",
        "optional",
    }
)
_USERINFO = re.compile(r"^[a-z][a-z0-9+.-]*://[^/@\s:]*:([^/@\s]+)@", re.IGNORECASE)
_HEADER_OPTIONS = frozenset({"-h", "--header", "--headers"})


def secrets_in(
    command: Sequence[str] | None, env: Mapping[str, str] | None, headers: Mapping[str, str] | None
) -> Iterator[str]:
    """Values of headers, of environment variables and of options of the command whose names say that they are secret; passwords in addresses.

    Examples
    --------
    >>> list(secrets_in(["serve", "--api-key", "abc123", "--port=80"], {"GIT_TOKEN": "t0ken"}, {"Authorization": "Bearer xyz"}))
    ['xyz', 't0ken', 'abc123']
    >>> list(secrets_in(["docker", "run", "-e", "JIRA_API_TOKEN=q8Zr", "--no-auth", "image"], {"DB": "pg://me:pw1@host/x"}, None))
    ['pw1', 'q8Zr']
    """
    for name, value in (headers or {}).items():
        yield from _of_header(name, value)
    for name, value in (env or {}).items():
        yield from _of(name, value)
    words = list(command or ())
    for word, following in zip(words, [*words, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if equals:
            yield from _of(name, value)
        elif word.lower() in _HEADER_OPTIONS:
            header, _, content = following.partition(":")
            yield from _of_header(header.strip(), content)
        elif word.startswith("-") and not following.startswith("-"):
            yield from _of(name, following)
        else:
            yield from _USERINFO.findall(word)


def _of_header(name: str, value: str) -> Iterator[str]:
    if name.lower() not in _PLAIN_HEADERS and value.strip():
        yield _SCHEME.sub("", value.strip())


def _of(name: str, value: str) -> Iterator[str]:
    """What of a named value is secret."""
    name = name.lstrip("-")
    if _SECRET.search(name) and not _NOT_THE_SECRET.search(name):
        if value and value.lower() not in _WORDS:
            yield value
    else:
        yield from _USERINFO.findall(value)

"""The one place where secrets are taken out of text and data.

Used by reprs, errors, logs, recordings, display and store. Two rules: a *value* that was registered as
secret is replaced wherever it appears, and text that has the *shape* of a credential is replaced too.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterable
from typing import Any

MASK = "[redacted]"

_ROUNDS = 8
"""What a URL's mask uncovers is masked in the next round. Only a text that nests URLs in secrets in URLs, over and over, needs more rounds
than these; it is masked as a whole."""

SECRET_HEADERS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "api-key",
        "x-api-key",
        "x-goog-api-key",
        "ocp-apim-subscription-key",
        "cookie",
        "set-cookie",
        "x-amz-security-token",
        "x-auth-token",
        "x-csrf-token",
        "cf-access-client-secret",
        "helicone-auth",
    }
)

_SECRET_FIELD = re.compile(
    r"(?i)^(x[-_])?(api[-_]?key|apikey|secret|client[-_]?secret|access[-_]?token|refresh[-_]?token|id[-_]?token|"
    r"auth[-_]?token|bearer|password|passwd|private[-_]?key|authorization|credentials?|session[-_]?token)$"
)

_LONGEST_NAME = 40
"""Characters; the longest name of those above is shorter."""

# Shapes of credentials, by their issuers' documented prefixes. Each needs a length that prose does not reach.
# One word boundary before all of them: tried anew for each, it would be most of the work of reading a long text.
_SHAPES = re.compile(
    r"""(?x)
    \b (?:
        sk-[A-Za-z0-9_-]{12,}                                     # OpenAI, Anthropic, DeepSeek, OpenRouter
      | (?:gsk|xai|pplx|nvapi|csk|fw|hf|tgp_v1|r8|key|rk|pk|sk)_[A-Za-z0-9_-]{16,}   # Groq, xAI, HF, Stripe...
      | (?:xai|pplx|nvapi|csk|jina|voyage|pa|tvly|esecret|lsv2_pt)-[A-Za-z0-9_-]{16,}
      | AIza[0-9A-Za-z_-]{30,}                                    # Google API key
      | ya29\.[0-9A-Za-z_.-]{20,}                                 # Google OAuth access token
      | 1//0[0-9A-Za-z_-]{20,}                                    # Google refresh token
      | GOCSPX-[0-9A-Za-z_-]{20,}                                 # Google client secret
      | (?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b                     # AWS access key id
      | ABSK[A-Za-z0-9+/=]{40,}                                   # AWS Bedrock API key
      | gh[pousr]_[A-Za-z0-9]{30,} | github_pat_[A-Za-z0-9_]{30,}
      | glpat-[A-Za-z0-9_-]{18,}
      | xox[abeoprs]-[A-Za-z0-9-]{10,}                            # Slack
      | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}   # JSON web token
      | npm_[A-Za-z0-9]{30,} | pypi-[A-Za-z0-9_-]{50,}
      | dckr_pat_[A-Za-z0-9_-]{20,}
      | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}                # SendGrid
    )
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----[\s\S]*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    """
)

# key=value and header forms: the name stays, the value goes.
_ASSIGNED = re.compile(
    r"""(?ix)
    ( \b(?:[A-Za-z0-9]+[-_])*(?:api[-_]?key|secret|access[-_]?token|refresh[-_]?token|auth[-_]?token|password|passwd|
        secret[-_]?access[-_]?key|account[-_]?key|private[-_]?key|subscription[-_]?key|session[-_]?token)
      \\?["']?\s*[:=]\s*\\?["']? )  # quotes may be escaped: JSON text within JSON
    ( (?!\\*\[redacted\]) [^\s"',;&}\])<>]{8,} (?: (?<=\[redacted) \] [^\s"',;&}\])<>]* )* )  # a mask within is part of it
    """
)
_BEARER = re.compile(r"(?i)\b((?:authorization\s*[:=]\s*)?(?:bearer|basic)\s+)([A-Za-z0-9._~+/=-]{12,})")
_URL_CREDENTIALS = re.compile(r"\b([a-z][a-z0-9+.-]*://[^\s/:@]{1,64}):([^\s/@]{3,})@")
_URL_KEY = re.compile(r"(?i)([?&](?:key|api[-_]?key|token|access_token|sig|signature)=)([^&\s\"']{8,})")


def _is_secret_name(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _names_a_secret(name)


@functools.lru_cache(maxsize=1024)
def _names_a_secret(name: str) -> bool:
    return name.lower() in SECRET_HEADERS or _SECRET_FIELD.match(name) is not None


class Redactor:
    """Replaces registered secret values and credential-shaped text by ``[redacted]``.

    Thread-safe. `register` keeps only values of at least `min_length` characters, since a shorter one
    would mask ordinary words.
    """

    min_length = 6

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        for secret in secrets:
            self.register(secret)

    def register(self, secret: str | None) -> None:
        """Remember a secret value, so that it is masked wherever it appears."""
        if not secret or len(secret) < self.min_length or secret in self._secrets:
            return
        with self._lock:
            self._secrets.add(secret)
            longest_first = sorted(self._secrets, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str) -> str:
        """`text` with every secret masked. Masked text stays as it is when it is masked again."""
        for _ in range(_ROUNDS):
            if self._pattern is not None:
                # What is between masks, so that a secret such as "redacted" does not mask the mask.
                pieces = text.split(MASK) if MASK in text else [text]
                text = MASK.join([self._pattern.sub(MASK, piece) for piece in pieces])
            if len(text) < 8:
                return text
            text = _SHAPES.sub(MASK, text)
            text = _BEARER.sub(lambda m: m[1] + MASK, text)
            if ":" not in text and "=" not in text:
                return text  # nothing is assigned here, and this is no URL
            before = _ASSIGNED.sub(lambda m: m[1] + MASK, text)
            text = _URL_CREDENTIALS.sub(lambda m: f"{m[1]}:{MASK}@", before)
            text = _URL_KEY.sub(lambda m: m[0] if m[2].startswith(MASK) else m[1] + MASK, text)
            if text == before:
                return text  # only what URLs end at can uncover something: the others' masks begin and end where nothing else does
        return MASK

    def headers(self, headers: Iterable[tuple[str, str]]) -> dict[str, str]:
        """Headers as a dict; those that carry credentials are masked by name, all others by value."""
        pairs = list(headers)
        # All at once, for headers that hold nothing secret: a line's end is a boundary as a text's is.
        lines = "\n".join([value for _, value in pairs if len(value) >= self.min_length])
        clean = self.text(lines) == lines
        return {name: MASK if _is_secret_name(name) else value if clean else self.text(value) for name, value in pairs}

    def json(self, value: Any) -> Any:
        """A JSON value with every secret masked: by field name and in every string."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                key: MASK
                if isinstance(key, str) and isinstance(item, str) and item and _is_secret_name(key)
                else self.json(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        return value


REDACTOR = Redactor()
"""The process-wide redactor: `Config` registers every key it is given here."""


def redact(value: Any) -> Any:
    """Mask secrets in a string or a JSON value, by the process-wide rules.

    Examples
    --------
    >>> redact("Authorization: Bearer abcdefghijklmnop")
    'Authorization: Bearer [redacted]'
    """
    return REDACTOR.json(value)

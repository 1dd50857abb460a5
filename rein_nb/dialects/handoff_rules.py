"""What each target accepts of somebody else's history, as data: call ids, tool names, media, and whose opaque state is whose.

Sources: the providers' API references (Anthropic Messages ``tool_use.id`` and ``tools.name`` patterns; OpenAI ``tool_call_id`` of at
most 40 and ``call_id`` of at most 64 characters; Mistral's nine-character ids; Gemini ``FunctionDeclaration.name``), and field
cases C054, C060, C061.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from rein_nb.dialects.base import Target
from rein_nb.ir import MediaPart, Origin

# -- call ids ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IdRule:
    """Which call ids a target accepts, and how one is made that it does: `head` and `digits` characters of a digest."""

    pattern: re.Pattern[str]
    head: str
    digits: int

    def accepts(self, id: str) -> bool:
        """Whether the id may be sent as it is."""
        return self.pattern.fullmatch(id) is not None

    def derive(self, id: str, occurrence: int, attempt: int = 0) -> str:
        """An accepted id for the n-th use of a refused or repeated one: the same each time, different for different ids."""
        seed = f"{occurrence}/{attempt}/{id}".encode("utf-8", "surrogatepass")
        return self.head + _base36(hashlib.sha256(seed).digest(), self.digits)


_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def _base36(digest: bytes, digits: int) -> str:
    number = int.from_bytes(digest, "big")
    out = []
    for _ in range(digits):
        number, rest = divmod(number, 36)
        out.append(_BASE36[rest])
    return "".join(out)


ID_RULES: dict[str, IdRule] = {
    "anthropic": IdRule(re.compile(r"[a-zA-Z0-9_-]{1,64}"), "toolu_", 24),
    "openai-chat": IdRule(re.compile(r"[a-zA-Z0-9_-]{1,40}"), "call_", 24),
    "openai-responses": IdRule(re.compile(r"[a-zA-Z0-9_-]{1,64}"), "call_", 24),
    "google": IdRule(re.compile(r"[a-zA-Z0-9_-]{1,64}"), "call_", 24),
    "google-code-assist": IdRule(re.compile(r"[a-zA-Z0-9_-]{1,64}"), "call_", 24),
    "alnum9": IdRule(re.compile(r"[a-zA-Z0-9]{9}"), "", 9),
}
"""By dialect, and by the names that `Quirks.call_ids` may give."""

_ID_RULE_OF_PROVIDER = {"mistral": "alnum9"}


def id_rule(target: Target) -> IdRule:
    """The rule for a target's call ids: its quirk, else its provider's, else its dialect's, else the strictest common one."""
    name = target.quirks.call_ids or _ID_RULE_OF_PROVIDER.get(target.provider) or target.dialect
    return ID_RULES.get(name, ID_RULES["openai-chat"])


def keeps_own_ids(target: Target) -> bool:
    """Whether ids that the server itself issued go back as they are, even where its dialect's rule would refuse them.

    Servers that only speak OpenAI's dialects issue what they like (``functions.ls:0``) and want it back; the vendors of the dialects
    hold to their own rules.
    """
    return (
        target.dialect in ("openai-chat", "openai-responses")
        and target.provider not in ("openai", "openai-chat", "azure")
        and id_rule(target) is ID_RULES[target.dialect]
    )


# -- tool names -------------------------------------------------------------------------------------

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
NAME_RULES: dict[str, re.Pattern[str]] = {
    "anthropic": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "openai-chat": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "openai-responses": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "google": re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"),
    "google-code-assist": re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}"),
}


def wire_names(names: Iterable[str], target: Target) -> dict[str, str]:
    """Each tool name with the name it goes under at the target: itself where accepted, else a name made from it and its digest.

    Injective, and a name's own mapping does not depend on the others' (short of a digest that somebody has taken on purpose).

    Examples
    --------
    >>> wire_names(["ls", "files/read"], Target(provider="google", dialect="google", model="m"))
    {'ls': 'ls', 'files/read': 'files_read_32p91lu0'}
    """
    rule = NAME_RULES.get(target.dialect, _PLAIN_NAME)
    given = list(dict.fromkeys(names))
    taken = {name for name in given if rule.fullmatch(name)}
    mapped: dict[str, str] = {}
    for name in given:
        if name in taken:
            mapped[name] = name
            continue
        attempt = 0
        while (wire := _accepted_name(name, attempt)) in taken:
            attempt += 1
        taken.add(wire)
        mapped[name] = wire
    return mapped


def _accepted_name(name: str, attempt: int) -> str:
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-") or "tool"
    if not re.match(r"[A-Za-z_]", plain):
        plain = f"_{plain}"
    digest = hashlib.sha256(f"{attempt}/{name}".encode("utf-8", "surrogatepass")).digest()
    return f"{plain[:55]}_{_base36(digest, 8)}"


# -- opaque state -----------------------------------------------------------------------------------

_PREFIX = re.compile(r"^(?:(?:[a-z]{2,6}\.)?(?:anthropic|amazon|meta|mistral|deepseek|openai|google)\.)")
_SNAPSHOT = re.compile(
    r"(?:[-@](?:20\d{6}|20\d\d-\d\d-\d\d|\d{4}|\d{3}|latest)|-v\d+(?::\d+)?|(?<=-preview)-\d\d-(?:20)?\d\d)$"
)


@lru_cache(maxsize=1024)
def model_family(model: str) -> str:
    """A model's name without what only says where it is served and which snapshot it is.

    Examples
    --------
    >>> model_family("claude-sonnet-4-5-20250929"), model_family("us.anthropic.claude-sonnet-4-5-20250929-v1:0")
    ('claude-sonnet-4-5', 'claude-sonnet-4-5')
    >>> model_family("models/gemini-2.0-flash-001"), model_family("o3-2025-04-16")
    ('gemini-2.0-flash', 'o3')
    """
    name = _PREFIX.sub("", model.lower().rsplit("/", 1)[-1])
    while (shorter := _SNAPSHOT.sub("", name)) != name and shorter:
        name = shorter
    return name


def same_service(origin: Origin | None, target: Target) -> bool:
    """Whether an answer came from the target's provider in the target's dialect, by whatever model."""
    return origin is not None and origin.provider == target.provider and origin.dialect == target.dialect


def same_origin(origin: Origin | None, target: Target) -> bool:
    """Whether the target made this answer: same provider, same dialect, same model family (as asked for or as answered).

    Only then does opaque state go back: signatures, encrypted reasoning, server-tool blocks, and `extra`.
    """
    if origin is None or not same_service(origin, target):
        return False
    family = model_family(target.model)
    return any(name and model_family(name) == family for name in (origin.model, origin.requested_model))


# -- media ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MediaRule:
    """Where one kind of media may come from (``data``, ``url``, ``file_id``), and of which mime types (None: any)."""

    places: frozenset[str]
    mimes: tuple[str, ...] | None = None


def _rule(places: str, *mimes: str) -> MediaRule:
    return MediaRule(frozenset(places.split()), mimes or None)


_IMAGES = ("image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp")
_ANY_KIND = {kind: _rule("data url file_id") for kind in ("image", "audio", "video", "document")}

MEDIA_RULES: dict[str, dict[str, MediaRule]] = {
    "anthropic": {
        "image": _rule("data url file_id", *_IMAGES),
        "document": _rule("data url file_id", "application/pdf", "text/"),
    },
    "openai-chat": {
        "image": _rule("data url", "image/"),
        "audio": _rule("data", "audio/wav", "audio/x-wav", "audio/wave", "audio/mp3", "audio/mpeg"),
        "document": _rule("data file_id"),
    },
    "openai-responses": {
        "image": _rule("data url file_id", "image/"),
        "document": _rule("data url file_id"),
    },
    "google": _ANY_KIND,
    "google-code-assist": _ANY_KIND,
}
"""What user messages may hold, by dialect; a kind that is missing is not accepted."""

RESULT_MEDIA: dict[str, frozenset[str]] = {
    "anthropic": frozenset({"image", "document"}),
    "openai-responses": frozenset({"image", "document"}),
}
"""Kinds that a tool result itself may hold, by dialect. Elsewhere a result's media follow it in a user message."""

_MEDIA_OF_PROVIDER: dict[str, dict[str, MediaRule]] = {"deepseek": {}}

USER_FIRST = frozenset({"anthropic", "google", "google-code-assist"})
"""Dialects that refuse a conversation which begins with the model's turn (C058)."""

NOT_LAST_THINKING = frozenset({"anthropic", "openai-responses"})
"""Dialects that refuse reasoning which nothing of the same answer follows (C040; "the final block ... cannot be `thinking`")."""

NO_USER_AFTER_RESULTS = frozenset({"mistral"})
"""Providers that refuse a user message directly after tool results."""


def accepts_media(part: MediaPart, target: Target) -> bool:
    """Whether a user message to the target may hold this media."""
    limits = target.capabilities.media_in
    if limits is not None and part.kind not in limits:
        return False
    rules = _MEDIA_OF_PROVIDER.get(target.provider, MEDIA_RULES.get(target.dialect, MEDIA_RULES["openai-chat"]))
    rule = rules.get(part.kind)
    if rule is None:
        return False
    place = "data" if part.data is not None else "url" if part.url is not None else "file_id"
    if place == "url" and part.url is not None and part.url.startswith("data:"):
        place = "data"
    if place not in rule.places:
        return False
    return rule.mimes is None or part.mime_type is None or part.mime_type.lower().startswith(rule.mimes)


def result_media(target: Target) -> frozenset[str]:
    """Kinds of media that a tool result to the target may hold."""
    return RESULT_MEDIA.get(target.dialect, frozenset())

"""Errors: as data (`ErrorInfo`, in a completion or an event) and as exceptions (`ProviderError` and its kinds).

The same fault has the same kind in and out of a stream. What the *programmer* did wrong is a `ReinError` that
is not a `ProviderError`, and raises at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from rein_nb.ir.base import JSON, Data
from rein_nb.ir.redaction import redact

if TYPE_CHECKING:
    from rein_nb.ir.completion import Completion

ErrorKind: TypeAlias = Literal[
    "authentication", "permission_denied", "not_found", "rate_limited", "context_overflow", "content_filtered",
    "bad_request", "overloaded", "server_error", "connection_failed", "timed_out", "stream_cut",
    "malformed_response", "cancelled", "other",
]  # fmt: skip

TimeoutPhase: TypeAlias = Literal["connect", "first_byte", "idle", "total"]


class ErrorInfo(Data):
    """A provider's or the network's fault, as data. Built through `make`, which redacts secrets.

    Attributes
    ----------
    kind
        The neutral kind; each has an exception class.
    message
        What happened, in the provider's words where it said something.
    status
        HTTP status; None when the fault was not an HTTP answer. An error inside a 200 stream keeps the status that
        its body names, if any.
    code
        The provider's own code or type.
    retry_after_s
        Seconds the server asked to wait.
    phase
        Which timeout struck.
    retryable
        Whether sending the same request again can help.
    body
        The original error body.
    request_id
        The provider's id of the request, for support.
    """

    kind: ErrorKind
    message: str
    status: int | None = None
    code: str | None = None
    retry_after_s: float | None = None
    phase: TimeoutPhase | None = None
    retryable: bool = False
    body: JSON = Field(default=None, repr=False)
    request_id: str | None = None
    provider: str | None = None
    model: str | None = None

    @classmethod
    def make(cls, kind: ErrorKind, message: str, **fields: Any) -> ErrorInfo:
        """An `ErrorInfo` with secrets masked in `message` and `body`; `retryable` follows the kind unless given."""
        fields.setdefault("retryable", kind in _RETRYABLE)
        if fields.get("body") is not None:
            fields["body"] = redact(fields["body"])
        if fields.get("code") is not None:
            fields["code"] = str(fields["code"])
        return cls(kind=kind, message=redact(message), **fields)

    @classmethod
    def of(cls, exception: BaseException) -> ErrorInfo:
        """The fault that an exception tells of: a provider's own, a request that was wrong by itself, or any other.

        Examples
        --------
        >>> ErrorInfo.of(KeyError("city")).message
        "KeyError: 'city'"
        """
        if isinstance(exception, ProviderError):
            return exception.info
        kind: ErrorKind = "bad_request" if isinstance(exception, InvalidRequest) else "other"
        return cls.make(kind, f"{type(exception).__name__}: {said(exception)}")

    def to_exception(self, completion: Completion | None = None) -> ProviderError:
        """The exception for this fault, carrying the partial completion."""
        return ERROR_CLASSES.get(self.kind, ProviderError)(self, completion)


def said(exception: BaseException) -> str:
    """An exception's own text, also when that fails."""
    try:
        return str(exception)
    except Exception as inner:
        return f"(its message could not be read: {type(inner).__name__})"


_RETRYABLE = frozenset({"rate_limited", "overloaded", "server_error", "connection_failed", "timed_out", "stream_cut"})


class ReinError(Exception):
    """Base of every error that rein_nb raises on its own account."""


class InvalidRequest(ReinError, ValueError):
    """The request is wrong by itself; nothing was sent."""


class UnsupportedOption(InvalidRequest):
    """The dialect or the model cannot express an option that was set; nothing was sent.

    Attributes
    ----------
    option, target
        The option's name, and the dialect or model that cannot express it. The message also says `why`, where that is known.
    """

    def __init__(self, option: str, target: str, why: str = "") -> None:
        self.option = option
        self.target = target
        super().__init__(f"{target} cannot express the option {option!r}" + (f": {why}" if why else ""))


class ProviderError(ReinError):
    """What a provider or the network did wrong.

    Attributes
    ----------
    info
        The fault as data.
    completion
        What had been received when the fault struck: text, thinking and usage so far. None when nothing had.
    result
        The whole `AgentResult`, when an agent's run was ended by the fault; None otherwise.
    """

    kind: ClassVar[ErrorKind] = "other"
    result: Any = None

    def __init__(self, info: ErrorInfo | str, completion: Completion | None = None) -> None:
        self.info = info if isinstance(info, ErrorInfo) else ErrorInfo.make(self.kind, info)
        self.completion = completion
        super().__init__(self._describe())

    def _describe(self) -> str:
        where = "/".join(part for part in (self.info.provider, self.info.model) if part)
        facts = [f"HTTP {self.info.status}"] if self.info.status else []
        facts += [self.info.code] if self.info.code else []
        prefix = f"{where}: " if where else ""
        return f"{prefix}{self.info.message}" + (f" ({', '.join(facts)})" if facts else "")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.info, self.completion)

    @property
    def status(self) -> int | None:
        """HTTP status, when there was one."""
        return self.info.status

    @property
    def retry_after(self) -> float | None:
        """Seconds the server asked to wait, when it did."""
        return self.info.retry_after_s

    @property
    def phase(self) -> TimeoutPhase | None:
        """Which timeout struck: connect, first_byte, idle or total."""
        return self.info.phase


class AuthenticationError(ProviderError):
    """The key is missing, wrong or expired (401)."""

    kind = "authentication"


class PermissionDenied(ProviderError):
    """The key may not do this (403), or the account cannot pay for it (402)."""

    kind = "permission_denied"


class NotFound(ProviderError):
    """No such model or endpoint (404)."""

    kind = "not_found"


class RateLimited(ProviderError):
    """Too many requests or tokens (429); `retry_after` in seconds when the server said."""

    kind = "rate_limited"


class ContextOverflow(ProviderError):
    """The input is longer than the model's context window."""

    kind = "context_overflow"


class ContentFiltered(ProviderError):
    """The provider's policy refused the prompt."""

    kind = "content_filtered"


class BadRequest(ProviderError):
    """The provider refused the request as invalid (400, 413, 422)."""

    kind = "bad_request"


class Overloaded(ProviderError):
    """The provider is out of capacity (503, 529)."""

    kind = "overloaded"


class ServerError(ProviderError):
    """The provider failed (5xx)."""

    kind = "server_error"


class ConnectionFailed(ProviderError):
    """No connection, or it broke before an answer."""

    kind = "connection_failed"


class TimedOut(ProviderError):
    """A timeout struck; `phase` says which."""

    kind = "timed_out"


class StreamCut(ProviderError):
    """The stream ended without the wire's own end marker."""

    kind = "stream_cut"


class MalformedResponse(ProviderError):
    """The provider sent something that its protocol does not allow."""

    kind = "malformed_response"


class RequestCancelled(ProviderError):
    """The caller cancelled the request."""

    kind = "cancelled"


ERROR_CLASSES: dict[str, type[ProviderError]] = {cls.kind: cls for cls in ProviderError.__subclasses__()}

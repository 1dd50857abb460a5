"""What a dialect's decoder (or a custom provider) emits: small changes, each to one part.

A `part` is any hashable key that the emitter chooses; the first delta with a new key opens the part, so parts
come in order of first appearance. A key that is a tuple ``(n, ...)`` with n > 0 belongs to the n-th further choice. Emitters
keep no text: only the accumulator accumulates.

`Finish` says why the turn ended and may be followed by usage; `End` is the wire's own terminal marker. A stream that ends
without `Finish` or `Fault` was cut.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rein_nb.ir.base import JSON, Extra
from rein_nb.ir.errors import ErrorInfo
from rein_nb.ir.finish import FinishReason
from rein_nb.ir.parts import Citation, MediaPart
from rein_nb.ir.usage import Usage

PartKey: TypeAlias = Hashable
"""What names a part within one stream; the emitter chooses it."""


@dataclass(slots=True)
class Text:
    """Visible text to append. An empty text opens nothing."""

    text: str
    part: PartKey = "text"


@dataclass(slots=True)
class Thinking:
    """Reasoning text to append."""

    text: str
    part: PartKey = "thinking"


@dataclass(slots=True)
class Signature:
    """Replay state of a thinking part: signature, opaque content, or the mark (`redacted`) that the text was withheld.

    Strings are set, not appended; None leaves a field as it is.
    """

    signature: str | None = None
    opaque: str | None = None
    redacted: bool = False
    part: PartKey = "thinking"


@dataclass(slots=True)
class Refusal:
    """Refusal text to append."""

    text: str
    part: PartKey = "refusal"


@dataclass(slots=True)
class ToolOpen:
    """The tool call `part` begins, or learns its id or name later. The first non-empty value of each stays."""

    part: PartKey
    id: str | None = None
    name: str | None = None


@dataclass(slots=True)
class ToolArgs:
    """Argument text to append to a tool call, or input text to a server tool."""

    text: str
    part: PartKey


@dataclass(slots=True)
class ToolArgsObject:
    """The whole arguments at once, already a JSON object. Replaces what was appended."""

    arguments: dict[str, Any]
    part: PartKey


@dataclass(slots=True)
class Cite:
    """A citation for a text part."""

    citation: Citation
    part: PartKey = "text"


@dataclass(slots=True)
class Media:
    """A whole media part."""

    media: MediaPart
    part: PartKey


@dataclass(slots=True)
class ServerTool:
    """A server tool's call or result: fields that are not None replace what was known.

    Attributes
    ----------
    id, name
        Of the call.
    input, output
        What the provider ran, and what came of it.
    payload
        What must go back as it is.
    part
        Which part.
    """

    part: PartKey
    id: str | None = None
    name: str | None = None
    input: JSON = None
    output: JSON = None
    payload: dict[str, Any] | None = None


@dataclass(slots=True)
class Settle:
    """The whole text of a text, thinking, refusal or tool-call part, as the wire states it at the end.

    What is missing from the streamed text is appended; a different text replaces it.
    """

    text: str
    part: PartKey


@dataclass(slots=True)
class PartExtra:
    """Exactly-this-provider data of one part, merged by namespace. Opens a part of `kind` if the key is new.

    Attributes
    ----------
    extra
        By namespace.
    kind
        Of a part that is opened by this.
    """

    extra: Extra
    part: PartKey
    kind: str = "text"


@dataclass(slots=True)
class PartEnd:
    """The wire closed this part."""

    part: PartKey


@dataclass(slots=True)
class Void:
    """The server withdrew this part: it is not in the message, and a tool call is not run."""

    part: PartKey


@dataclass(slots=True)
class UsageReport:
    """Usage of this response; each later report replaces field by field."""

    usage: Usage


@dataclass(slots=True)
class Finish:
    """The turn's finish reason. `incomplete` tells that open tool calls were cut off."""

    reason: FinishReason
    native: str | None = None


@dataclass(slots=True)
class End:
    """The wire's own terminal marker: nothing follows."""


@dataclass(slots=True)
class Fault:
    """The provider reported an error inside the answer."""

    error: ErrorInfo


@dataclass(slots=True)
class Meta:
    """Facts about the response as a whole. None leaves a field as it is.

    Attributes
    ----------
    response_id, model
        As the provider names them.
    extra, message_extra
        Data of exactly this provider: of the response, and of the message.
    """

    response_id: str | None = None
    model: str | None = None
    extra: Extra = field(default_factory=dict)
    message_extra: Extra = field(default_factory=dict)


@dataclass(slots=True)
class Warn:
    """Something was left out or read leniently; in words, for the reader."""

    message: str


@dataclass(slots=True)
class Elapsed:
    """What follows was recorded, and came this long after its request: the call's time is then what these say, not the machine's.

    Attributes
    ----------
    seconds
        Since the request, as recorded.
    started_at
        The Unix time at which the call shall have started, seconds.
    pace
        Real seconds in which a recorded second passes; 0 when it is played at once.
    received
        Whether something of the answer had come by then; False when the request failed before.
    """

    seconds: float
    started_at: float | None = None
    pace: float = 0.0
    received: bool = True


Delta: TypeAlias = (
    Text | Thinking | Signature | Refusal | ToolOpen | ToolArgs | ToolArgsObject | Cite | Media | ServerTool | Settle
    | PartExtra | PartEnd | Void | UsageReport | Finish | End | Fault | Meta | Warn
    | Elapsed
)  # fmt: skip
"""Any of the deltas above."""

__all__ = [
    "Cite",
    "Delta",
    "Elapsed",
    "End",
    "Fault",
    "Finish",
    "Media",
    "Meta",
    "PartEnd",
    "PartExtra",
    "PartKey",
    "Refusal",
    "ServerTool",
    "Settle",
    "Signature",
    "Text",
    "Thinking",
    "ToolArgs",
    "ToolArgsObject",
    "ToolOpen",
    "UsageReport",
    "Void",
    "Warn",
]

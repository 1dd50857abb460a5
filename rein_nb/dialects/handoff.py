"""The hand-off: one pure, deterministic, idempotent pass that makes any history valid for any target.

Run before encoding, by every codec. What it promises about `Handoff.messages`:

- Each assistant message with tool calls is followed at once by one message of role ``tool`` that holds exactly one result for each
  call, in call order, and nothing else. A result that was moved, doubled or lost is put right: the latest real result wins over an
  ``interrupted`` one; a missing one is made, and says that the call may have run.
- A result whose call is gone becomes labelled user text at its place, so nothing that was known is lost.
- Call ids and tool names are ones that the target accepts, one to one; a call and its result share theirs. Ids that
  the target itself issued stay as they are.
- Opaque state (signatures, encrypted reasoning, server-tool blocks, parts' `extra`) stays only in messages of the same origin:
  provider, dialect and model family (`handoff_rules.same_origin`). Elsewhere it is left out, never turned into text. Reasoning
  in plain text stays within its provider and dialect.
- Elsewhere a refusal becomes assistant text, and media that the target does not read become a visible placeholder.
- Where the target wants the user's turn first and the history begins with the model's, a short user turn is put before it.
- A malformed call goes out with empty arguments and has a result that says what was wrong.
- No empty blocks, no empty messages, no unpaired surrogates. System messages stay where they are. Merging neighbours of one
  role is left to the codec.

The messages that were given are never changed; those that need no change are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from rein_nb.dialects.base import Target
from rein_nb.dialects.handoff_pairs import pair
from rein_nb.dialects.handoff_parts import (
    INTERRUPTED,
    Role,
    clean_arguments,
    cleaned,
    lasting_extra,
    made_result,
    new_message,
    plain_text,
    same_objects,
    sendable,
    who,
)
from rein_nb.dialects.handoff_rules import (
    NO_USER_AFTER_RESULTS,
    NOT_LAST_THINKING,
    USER_FIRST,
    accepts_media,
    id_rule,
    keeps_own_ids,
    result_media,
    same_origin,
    same_service,
    wire_names,
)
from rein_nb.dialects.handoff_settled import LEAST, Settled, Unsettled, find, keep
from rein_nb.ir import (
    MediaPart,
    Message,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from rein_nb.ir.base import clean_text

CONTINUED = "[The earlier part of this conversation is not shown.]"
"""What stands as the user's first turn where a history begins with the model's."""


@dataclass(slots=True)
class Handoff:
    """A history as the target may read it.

    Attributes
    ----------
    messages
        To encode.
    warnings
        What was left out or changed so that the reader of a completion should know, in words.
    repairs
        How many results were made, moved, replaced or turned into text. 0 for a sound history, and for one that was handed off before.
    tool_names
        Wire name to our name, for calls whose tool had to be renamed.
    settled
        How many of `messages`, from the first, will go out alike with the next request of this conversation.
    wire
        Where a codec may keep what it made of these, and of fewer before; None when nothing is kept.
    """

    messages: list[Message]
    warnings: list[str] = field(default_factory=list)
    repairs: int = 0
    tool_names: dict[str, str] = field(default_factory=dict)
    settled: int = 0
    wire: dict[Any, Any] | None = None


def handoff(messages: Sequence[Message], target: Target) -> Handoff:
    """`messages` as `target` may read them. See the module's promises.

    Examples
    --------
    >>> cut_off = [Message(role="user", content="go"), Message(role="assistant", parts=[ToolCall(id="a|1", name="ls")])]
    >>> healed = handoff(cut_off, Target(provider="anthropic", dialect="anthropic", model="claude-x"))
    >>> [part.status for part in healed.messages[2].tool_results], healed.repairs
    (['interrupted'], 1)
    """
    known = find(messages, target)
    if known is not None:
        try:
            return _Pass(messages, target, known).run()
        except Unsettled:
            pass  # something new reaches back: the whole history is done anew
    return _Pass(messages, target, None).run()


class _Pass:
    """One run over one history, or over what came after the part of it that is known."""

    def __init__(self, messages: Sequence[Message], target: Target, known: Settled | None) -> None:
        self.messages = messages
        self.target = target
        self.known = known
        self.start = len(known.sources) if known is not None else 0
        self.warnings: dict[str, None] = dict.fromkeys(known.warnings) if known is not None else {}
        self.repairs = known.repairs if known is not None else 0
        self.answers, self.orphans = pair(messages, self.start, known.calls if known is not None else ())
        self.ids: dict[tuple[int, int], str] = {}
        self.names: dict[str, str] = {}
        self.out: list[Message] = known.messages(messages) if known is not None else []

    def run(self) -> Handoff:
        self._name()
        cut = self._cut()
        settled, keeping = len(self.out), self.known
        for at in range(self.start, len(self.messages)):
            if at == cut:
                settled, keeping = len(self.out), self._settle(at)
            message = self.messages[at]
            if message.role == "assistant":
                self._assistant(at, message)
            elif message.role in ("system", "developer"):
                self._keep(message, [part for part in map(cleaned, message.parts) if not self._empty(part)])
            else:
                self._user(at, message)
        if cut == len(self.messages):
            settled, keeping = len(self.out), self._settle(cut)
        renamed = {wire: name for name, wire in self.names.items() if wire != name}
        if self._begin():
            return Handoff(self.out, list(self.warnings), self.repairs, renamed)
        if keeping is not None and keeping is not self.known:
            keep(self.messages, keeping)
        wire = keeping.wire if keeping is not None else None
        return Handoff(self.out, list(self.warnings), self.repairs, renamed, settled, wire)

    def _cut(self) -> int | None:
        """Where the settled part ends, if all calls in it are answered on the spot: behind the last assistant message's results,
        where they are the last that there is, else before that message."""
        end = len(self.messages)
        last = end - 1
        while last > self.start and self.messages[last].role != "assistant":
            last -= 1
        answered = self.answers.get(last)
        if answered is not None and answered.standing is self.messages[-1]:
            last = end
        if last <= self.start or last < LEAST:
            return None
        for at, answers in self.answers.items():
            if at < last and (answers.standing is None or answers.surplus):
                return None
        return last

    def _settle(self, cut: int) -> Settled:
        """What was made of the messages before `cut`, to be known next time."""
        known, fresh = self.known, range(self.start, cut)
        place = {id(self.messages[n]): n for n in fresh}
        before = len(known.out) if known is not None else 0
        given = {
            (at, n): part.id
            for at in self.answers
            if at < cut
            for n, part in enumerate(self.messages[at].parts)
            if type(part) is ToolCall
        }
        uses = dict(known.uses) if known is not None else {}
        for id_ in given.values():
            uses[id_] = uses.get(id_, -1) + 1
        names = [part.name for at in self.answers if at < cut for part in self.messages[at].tool_calls]
        return Settled(
            target=self.target,
            sources=[
                *(known.sources if known is not None else ()),
                *((ref(self.messages[n]), list(self.messages[n].parts)) for n in fresh),
            ],
            out=[*(known.out if known is not None else ()), *(place.get(id(m), m) for m in self.out[before:])],
            warnings=tuple(self.warnings),
            repairs=self.repairs,
            calls=frozenset(given.values()).union(known.calls if known is not None else ()),
            kept=frozenset(self.ids[key] for key, id_ in given.items() if self.ids[key] == id_).union(
                known.kept if known is not None else ()
            ),
            derived=frozenset(self.ids[key] for key, id_ in given.items() if self.ids[key] != id_).union(
                known.derived if known is not None else ()
            ),
            uses=uses,
            names={**(known.names if known is not None else {}), **{name: self.names[name] for name in names}},
            wire=dict(known.wire) if known is not None else {},
        )

    def _begin(self) -> bool:
        """Whether a user's turn had to be put first."""
        if self.target.dialect not in USER_FIRST:
            return False
        n = next((n for n, message in enumerate(self.out) if message.role not in ("system", "developer")), None)
        if n is not None and self.out[n].role == "assistant":
            self.out.insert(n, new_message("user", [TextPart(text=CONTINUED)]))
            self.repairs += 1
            self._warn("the history begins with the model's turn: a user turn was put before it")
            return True
        return False

    def _name(self) -> None:
        rule = id_rule(self.target)
        lenient = keeps_own_ids(self.target)
        known = self.known
        places: list[tuple[int, int, str, bool]] = []
        kept: set[str] = set(known.kept) if known is not None else set()
        names: dict[str, None] = {}
        for at in self.answers:
            message = self.messages[at]
            own = lenient and same_service(message.origin, self.target)
            for n, part in enumerate(message.parts):
                if type(part) is not ToolCall:
                    continue
                names[part.name] = None
                keep = bool(part.id) and part.id not in kept and (rule.accepts(part.id) or (own and sendable(part.id)))
                if keep:
                    kept.add(part.id)
                places.append((at, n, part.id, keep))
        uses: dict[str, int] = {}
        if known is None:
            self.names = wire_names(names, self.target)
        else:
            self.names = known.names
            if not names.keys() <= known.names.keys():
                self.names = wire_names({**known.names, **names}, self.target)
            if not kept.isdisjoint(known.derived) or any(self.names[name] != was for name, was in known.names.items()):
                raise Unsettled
            uses, kept = dict(known.uses), kept | known.derived
        for at, n, given, keep in places:
            occurrence = uses[given] = uses.get(given, -1) + 1
            if keep:
                self.ids[at, n] = given
                continue
            attempt = 0
            while (made := rule.derive(given, occurrence, attempt)) in kept:
                attempt += 1
            kept.add(made)
            self.ids[at, n] = made

    # -- one message --------------------------------------------------------------------------------

    def _keep(self, message: Message, parts: list[Any], role: Role | None = None) -> None:
        """Put `message` out with `parts`: itself where nothing changed, nothing where nothing is left."""
        if not parts:
            return
        extra = message.extra
        foreign = message.origin is not None and not same_origin(message.origin, self.target)
        if extra and message.role == "assistant" and foreign:
            extra = {ns: values for ns, values in extra.items() if ns == "metadata"}
        if len(extra) == len(message.extra) and role in (None, message.role) and same_objects(parts, message.parts):
            self.out.append(message)
        else:
            self.out.append(new_message(role or message.role, parts, message.origin, extra))

    def _assistant(self, at: int, message: Message) -> None:
        own = same_origin(message.origin, self.target)
        parts: list[Any] = []
        for n, part in enumerate(message.parts):
            if type(part) is ToolCall:
                parts.append(self._call(part, self.ids[at, n], own))
                continue
            kept = self._assistant_part(part, message, own)
            if kept is not None and (not self._empty(kept) or self._signed(kept)):
                parts.append(kept)
        if self.target.dialect in NOT_LAST_THINKING:
            while parts and type(parts[-1]) is ThinkingPart:
                parts.pop()
        elif self.target.dialect == "openai-chat" and all(type(part) is ThinkingPart for part in parts):
            parts = []  # reasoning is a field beside content there, and no message by itself
        self._keep(message, parts)
        if at in self.answers:
            self._results(at, message)

    def _call(self, call: ToolCall, wire_id: str, own: bool) -> ToolCall:
        update: dict[str, Any] = {}
        if call.id != wire_id:
            update["id"] = wire_id
        if (name := self.names[call.name]) != call.name:
            update["name"] = name
        if call.error is not None or call.raw_arguments is not None:
            update.update(arguments={}, raw_arguments=None, error=None)
        elif (arguments := clean_arguments(call.arguments)) is not call.arguments:
            update["arguments"] = arguments
        if call.extra and not own:
            update["extra"] = lasting_extra(call.extra)
        return call.model_copy(update=update) if update else call

    def _assistant_part(self, part: Any, message: Message, own: bool) -> Any:
        """The part as this target may read it in an assistant message; None when it is left out."""
        kind = type(part)
        if kind is TextPart:
            return cleaned(part if own else plain_text(part))
        if kind is ThinkingPart:
            return self._thinking(part, message, own)
        if kind is RefusalPart:
            if own and self.target.dialect == "openai-responses":
                return part
            return TextPart.model_construct(type="text", text=clean_text(part.text), citations=[], extra={})
        if kind is ServerToolPart:
            if own:
                return part
            self._warn(
                f"a {part.name or 'server tool'!r} block of {who(message)} was left out: it can only go back to its origin"
            )
            return None
        if kind is MediaPart:
            if own and (self.target.dialect.startswith(("google", "openai-responses")) or part.kind == "audio"):
                return part  # what the model made itself goes back as the wire has it
            return self._placeholder(part, "an assistant message")
        return part

    def _thinking(self, part: ThinkingPart, message: Message, own: bool) -> ThinkingPart | None:
        opaque = bool(part.signature or part.opaque or part.redacted or part.extra)
        if not opaque and not part.text:
            return None
        if self.target.dialect == "anthropic":
            keep = own and bool(part.signature or part.opaque)
        elif opaque:
            keep = own
        else:
            origin = message.origin
            keep = same_service(origin, self.target) or origin is None or origin.provider is None
        if not keep:
            why = "it has no signature" if own else "it can only go back to its origin"
            self._warn(f"reasoning of {who(message)} was left out: {why}")
            return None
        kept: ThinkingPart = cleaned(part)
        return kept

    def _results(self, at: int, message: Message) -> None:
        answers = self.answers[at]
        given = iter(answers.results)
        results: list[Any] = []
        apart: list[Any] = []
        for n, call in enumerate(message.parts):
            if type(call) is not ToolCall:
                continue
            result = next(given)
            if result is None:
                self.repairs += 1
                results.append(made_result(call, self.ids[at, n], self.names[call.name]))
            else:
                results.append(self._result(result, self.ids[at, n], self.names[call.name], apart))
        if answers.surplus:
            self._warn(f"{answers.surplus} repeated tool result(s) were left out: a call has one, the latest real one")
        self.repairs += answers.surplus + answers.moved
        standing = answers.standing
        if standing is not None and same_objects(results, standing.parts):
            self.out.append(standing)
        else:
            extra = answers.extra if standing is None else standing.extra
            self.out.append(new_message("tool", results, extra=extra))
        if apart:
            self.out.append(new_message("user", apart))

    def _result(self, result: ToolResult, wire_id: str, name: str, apart: list[Any]) -> ToolResult:
        """The result under the call's id and name; media that the target wants elsewhere go to `apart`."""
        content: list[Any] = []
        for part in result.content:
            if isinstance(part, MediaPart):
                content.append(self._media_in_result(part, name, apart))
            elif part.text:
                content.append(cleaned(part))
        update: dict[str, Any] = {}
        if len(content) != len(result.content) or any(a is not b for a, b in zip(content, result.content, strict=True)):
            update["content"] = content
        if result.tool_call_id != wire_id:
            update["tool_call_id"] = wire_id
        if result.name != name:
            update["name"] = name
        return result.model_copy(update=update) if update else result

    def _media_in_result(self, part: MediaPart, tool: str, apart: list[Any]) -> Any:
        target = self.target
        if not accepts_media(part, target):
            return self._placeholder(part, "a tool result")
        if part.kind in result_media(target):
            return part
        if target.provider in NO_USER_AFTER_RESULTS:
            return self._placeholder(part, "a tool result")
        label = f"{part.kind} {part.name!r}" if part.name else part.kind
        apart.append(TextPart(text=f"[The {label} that {tool} returned:]"))
        apart.append(part)
        return TextPart(text=f"[The {label} is in the next message.]")

    def _user(self, at: int, message: Message) -> None:
        parts: list[Any] = []
        for n, part in enumerate(message.parts):
            if isinstance(part, ToolResult):
                if (at, n) in self.orphans:
                    self.repairs += 1
                    self._warn("a tool result whose call is not in the history was turned into text")
                    parts.extend(self._orphan(part))
            elif isinstance(part, MediaPart):
                parts.append(part if accepts_media(part, self.target) else self._placeholder(part, "a message"))
            elif isinstance(part, RefusalPart):
                parts.append(TextPart(text=clean_text(part.text)))
            elif isinstance(part, TextPart):
                parts.append(cleaned(part))
            elif isinstance(part, ServerToolPart):
                # What a caller wrote for one provider only (an approval, a file for its container) says so in `extra`.
                if self.target.dialect in part.extra or self.target.provider in part.extra:
                    parts.append(part)
                else:
                    self._warn(
                        f"a {part.name or 'server tool'!r} block of a user message was left out: it is not for {self.target.provider}"
                    )
        self._keep(message, [part for part in parts if not self._empty(part)], "user")

    def _orphan(self, result: ToolResult) -> list[Any]:
        tool = f" {clean_text(result.name)}" if result.name else ""
        head = f"[Result of an earlier call of the tool{tool}, which is no longer in this conversation:]"
        parts: list[Any] = [TextPart(text=f"{head}\n{clean_text(result.text)}".rstrip())]
        for part in result.content:
            if type(part) is MediaPart:
                parts.append(part if accepts_media(part, self.target) else self._placeholder(part, "a tool result"))
        return parts

    def _placeholder(self, part: MediaPart, where: str) -> TextPart:
        facts = ", ".join(fact for fact in (part.name, part.mime_type) if fact)
        described = f"{part.kind} ({facts})" if facts else part.kind
        self._warn(
            f"{self.target.provider}/{self.target.model} does not read {part.kind} in {where}: replaced by a placeholder"
        )
        return TextPart(text=f"[{described} left out: this model does not read it here]")

    def _empty(self, part: Any) -> bool:
        if type(part) is not TextPart:
            return False
        # Anthropic refuses blank text blocks as well as empty ones (C026).
        return not (part.text.strip() if self.target.dialect == "anthropic" else part.text)

    def _signed(self, part: Any) -> bool:
        """Whether a part carries a thought signature, which Google wants back even on an empty text (C050)."""
        return self.target.dialect.startswith("google") and any("thought_signature" in v for v in part.extra.values())

    def _warn(self, text: str) -> None:
        self.warnings[text] = None


__all__ = ["CONTINUED", "INTERRUPTED", "Handoff", "handoff"]

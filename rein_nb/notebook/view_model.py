"""The view model: a deterministic reducer from agent events to what the reader should see, and what changed.

`ViewState` is the whole of what is drawn: blocks in order, a footer, a status. `apply` takes one event, brings the state up to date and
returns the operations that a display must follow. It does no I/O, keeps foreign text as it came (rendering masks and cleans it) and costs
O(size of the event), so a stream of n deltas costs O(n).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from rein_nb.agent import events as ev
from rein_nb.ir import (
    Citation,
    Completion,
    ErrorInfo,
    MediaPart,
    Message,
    PartDone,
    RefusalDelta,
    RefusalPart,
    ServerToolPart,
    StreamError,
    StreamRetry,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ThinkingPart,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
    ToolResult,
)
from rein_nb.notebook.footer import Footer
from rein_nb.notebook.hints import next_step, stop_note

BlockKind: TypeAlias = Literal[
    "system", "user", "text", "thinking", "refusal", "tool", "server_tool", "media", "error", "retry", "notice"
]
ToolState: TypeAlias = Literal[
    "writing", "ready", "approval", "running", "ok", "error", "denied", "interrupted", "timed_out", "incomplete"
]
RunStatus: TypeAlias = Literal["waiting", "running", "done", "stopped", "failed"]


@dataclass(slots=True)
class Question:
    """A call that a sub-agent asked about, drawn on the card of the call that is the sub-agent.

    Attributes
    ----------
    answer
        ``allowed`` or ``denied``; empty while it is open, and where it is not known.
    """

    call: ToolCall
    answer: str = ""


@dataclass(slots=True)
class ToolView:
    """A tool call as its card shows it.

    Attributes
    ----------
    state
        ``writing`` while arguments stream in; ``ready`` when they are whole; ``incomplete`` when they never became so.
    progress, fraction
        What the running tool last reported; fraction in 0..1.
    duration_s
        Seconds; None when the tool never ran.
    reason
        Why it waits for approval.
    questions
        What a sub-agent asked in this call, the last one open while the state is ``approval``.
    """

    name: str = ""
    call_id: str = ""
    call: ToolCall | None = None
    state: ToolState = "writing"
    progress: str = ""
    fraction: float | None = None
    result: ToolResult | None = None
    duration_s: float | None = None
    reason: str | None = None
    questions: list[Question] = field(default_factory=list)

    @property
    def question(self) -> Question | None:
        """The sub-agent's question that waits for a decision."""
        return self.questions[-1] if self.state == "approval" and self.questions else None

    @property
    def asking_id(self) -> str:
        """What a decision names: this call, or the sub-agent's question. A late second click must not decide the next one."""
        return self.call_id if self.question is None else f"{self.call_id}#{len(self.questions)}"


@dataclass(slots=True)
class Block:
    """One thing in the transcript. `pieces` is growing text: an answer, thinking, or a tool call's argument text."""

    id: str
    kind: BlockKind
    turn: int = 0
    pieces: list[str] = field(default_factory=list)
    done: bool = False
    citations: list[Citation] = field(default_factory=list)
    tool: ToolView | None = None
    server_tool: ServerToolPart | None = None
    media: MediaPart | None = None
    title: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)


@dataclass(slots=True)
class Op:
    """One change.

    ``add`` a block, ``text`` appended to it, ``set`` its text anew, ``done`` it will not grow, ``change`` of its other fields,
    ``footer`` and ``status`` of the whole.
    """

    kind: Literal["add", "text", "set", "done", "change", "footer", "status"]
    block: str = ""
    text: str = ""

    def to_dict(self) -> dict[str, str]:
        """The operation as JSON data, without empty fields."""
        return {key: value for key, value in (("op", self.kind), ("block", self.block), ("text", self.text)) if value}


@dataclass(slots=True)
class ViewState:
    """Everything that is drawn of one run.

    Attributes
    ----------
    show_prompt
        Whether the messages that started the run are drawn; a ``%%agent`` cell shows its prompt itself.
    open
        Blocks of the current turn by the part's index in the stream.
    """

    show_prompt: bool = True
    label: str = ""
    status: RunStatus = "waiting"
    blocks: list[Block] = field(default_factory=list)
    by_id: dict[str, Block] = field(default_factory=dict)
    footer: Footer = field(default_factory=Footer)
    open: dict[int, Block] = field(default_factory=dict)
    calls: dict[str, Block] = field(default_factory=dict)
    prompts: list[Message] = field(default_factory=list)
    turn: int = 0
    last_error: str = ""
    retries: set[tuple[int, int]] = field(default_factory=set)

    def add(self, kind: BlockKind, **fields: Any) -> Block:
        """Append a block."""
        block = Block(id=f"b{len(self.blocks)}", kind=kind, turn=self.turn, **fields)
        self.blocks.append(block)
        self.by_id[block.id] = block
        return block


def apply(state: ViewState, event: ev.AgentEvent) -> list[Op]:
    """Bring `state` up to date with one event; the operations say what changed. Unknown events change nothing."""
    handler = _HANDLERS.get(type(event))
    return handler(state, event) if handler is not None else []


def _agent_start(state: ViewState, event: ev.AgentStart) -> list[Op]:
    state.footer.model, state.footer.provider = event.model, event.provider
    state.status = "running"
    state.prompts = list(event.messages)
    ops: list[Op] = []
    if state.show_prompt:
        if event.system:
            ops.append(Op("add", state.add("system", pieces=[event.system], done=True).id))
        for message in event.messages:
            ops += _whole_message(state, message)
    return [*ops, Op("status"), Op("footer")]


def _turn_start(state: ViewState, event: ev.TurnStart) -> list[Op]:
    state.turn = event.turn
    state.open.clear()
    if event.model and event.model != state.footer.model:
        state.footer.model = event.model
        return [Op("footer")]
    return []


def _message_start(state: ViewState, event: ev.MessageStart) -> list[Op]:
    message = event.message
    if message.role == "assistant" or message.tool_results:
        return []
    return [] if _is_prompt(state, message) else _whole_message(state, message)


def _is_prompt(state: ViewState, message: Message) -> bool:
    """Whether the message is one of those that started the run, which are drawn (or left out) at the start."""
    for position, prompt in enumerate(state.prompts):
        if prompt is message or prompt == message:
            del state.prompts[position]
            return True
    return False


def _whole_message(state: ViewState, message: Message) -> list[Op]:
    ops: list[Op] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            kind: BlockKind = {"user": "user", "assistant": "text"}.get(message.role, "system")  # type: ignore[assignment]
            ops.append(Op("add", state.add(kind, pieces=[part.text], citations=list(part.citations), done=True).id))
        else:
            ops += _settle_part(state, part, None)
    return ops


def _message_update(state: ViewState, event: ev.MessageUpdate) -> list[Op]:
    inner = event.event
    handler = _STREAM_HANDLERS.get(type(inner))
    return handler(state, inner) if handler is not None else []


def _delta(kind: BlockKind) -> Callable[[ViewState, Any], list[Op]]:
    def handle(state: ViewState, event: Any) -> list[Op]:
        block = state.open.get(event.index)
        ops: list[Op] = []
        if block is None:
            block = state.open[event.index] = state.add(kind)
            ops.append(Op("add", block.id))
        block.pieces.append(event.delta)
        ops.append(Op("text", block.id, event.delta))
        return ops

    return handle


def _call_start(state: ViewState, event: ToolCallStart) -> list[Op]:
    block = state.open.get(event.index)
    if block is not None and block.tool is not None:
        block.tool.name, block.tool.call_id = event.name or block.tool.name, event.id or block.tool.call_id
        return [Op("change", block.id)]
    block = state.open[event.index] = state.add("tool", tool=ToolView(name=event.name, call_id=event.id))
    return [Op("add", block.id)]


def _call_delta(state: ViewState, event: ToolCallDelta) -> list[Op]:
    block = state.open.get(event.index)
    ops: list[Op] = []
    if block is None:
        block = state.open[event.index] = state.add("tool", tool=ToolView())
        ops.append(Op("add", block.id))
    block.pieces.append(event.delta)
    return [*ops, Op("text", block.id, event.delta)]


def _call_done(state: ViewState, event: ToolCallDone) -> list[Op]:
    return _settle_part(state, event.tool_call, state.open.get(event.index), event.index)


def _part_done(state: ViewState, event: PartDone) -> list[Op]:
    return _settle_part(state, event.part, state.open.get(event.index), event.index)


def _settle_part(state: ViewState, part: Any, block: Block | None, index: int | None = None) -> list[Op]:
    """Make a block say exactly what the whole part says; a part that was not streamed gets its block here."""
    new = block is None
    if block is None:
        block = state.add(_KIND[type(part)])
        if index is not None:
            state.open[index] = block
    ops = [Op("add", block.id)] if new else []
    if isinstance(part, TextPart | ThinkingPart | RefusalPart):
        ops += _settle_text(block, part.text, new)
        if isinstance(part, TextPart) and part.citations != block.citations:
            block.citations = list(part.citations)
            ops.append(Op("change", block.id))
        if isinstance(part, ThinkingPart) and part.redacted and not part.text and block.title != "withheld":
            block.title = "withheld"
            ops.append(Op("change", block.id))
    elif isinstance(part, ToolCall):
        view = block.tool = block.tool or ToolView()
        if view.call is None or view.call != part:
            view.call, view.name, view.call_id = part, part.name, part.id
            if view.state == "writing":
                view.state = "incomplete" if part.error else "ready"
            state.calls[part.id] = block
            ops.append(Op("change", block.id))
    elif isinstance(part, ServerToolPart):
        block.server_tool = part
        ops.append(Op("change", block.id))
    elif isinstance(part, MediaPart):
        block.media = part
        ops.append(Op("change", block.id))
    if not block.done:
        block.done = True
        ops.append(Op("done", block.id))
    # A display draws an added block from the state, so the operations on a new block say nothing more.
    return ops[:1] if new else ops


def _settle_text(block: Block, whole: str, new: bool) -> list[Op]:
    have = block.text
    if have == whole:
        return []
    if not new and whole.startswith(have) and not block.done:
        block.pieces.append(whole[len(have) :])
        return [Op("text", block.id, whole[len(have) :])]
    block.pieces = [whole]
    return [Op("set", block.id)]


def _stream_error(state: ViewState, event: StreamError) -> list[Op]:
    return _cut(state) + _error_block(state, event.error)


def _cut(state: ViewState) -> list[Op]:
    """The stream is over: whatever is still open will not grow."""
    ops: list[Op] = []
    for block in state.open.values():
        if not block.done:
            block.done = True
            if block.tool is not None and block.tool.state == "writing":
                block.tool.state = "incomplete"
                ops.append(Op("change", block.id))
            ops.append(Op("done", block.id))
    return ops


def _error_block(state: ViewState, error: ErrorInfo) -> list[Op]:
    if error.kind == "cancelled":
        return []
    text = f"{error.kind}: {error.message}"
    if text == state.last_error:
        return []
    state.last_error = text
    facts = [f"HTTP {error.status}"] if error.status else []
    facts += [error.code] if error.code else []
    block = state.add(
        "error",
        pieces=[error.message],
        title=", ".join([error.kind.replace("_", " "), *facts]),
        hint=next_step(error),
        done=True,
    )
    return [Op("add", block.id)]


def _message_end(state: ViewState, event: ev.MessageEnd) -> list[Op]:
    message = event.message
    if message.role != "assistant":
        return []
    ops = _settle_message(state, message)
    if event.completion is not None:
        ops += _completion(state, event.completion)
    return ops


def _settle_message(state: ViewState, message: Message) -> list[Op]:
    """Match the whole message's parts with this turn's blocks, in order and by kind: what was not streamed is added."""
    waiting = list(state.open.values())
    ops: list[Op] = []
    for part in message.parts:
        kind = _KIND[type(part)]
        block = next((b for b in waiting if b.kind == kind), None)
        if block is not None:
            waiting.remove(block)
        ops += _settle_part(state, part, block)
    return ops


def _completion(state: ViewState, completion: Completion) -> list[Op]:
    ops = _cut(state)
    if completion.error is not None:
        ops += _error_block(state, completion.error)
    for warning in completion.warnings:
        ops.append(Op("add", state.add("notice", pieces=[warning], title="warning", done=True).id))
    return ops


def _retry(state: ViewState, attempt: int, wait_s: float, error: ErrorInfo | None) -> list[Op]:
    if (state.turn, attempt) in state.retries:
        return []
    state.retries.add((state.turn, attempt))
    why = f": {error.message}" if error is not None else ""
    block = state.add("retry", pieces=[f"Attempt {attempt + 1} in {wait_s:.1f} s{why}"], title="retry", done=True)
    return [Op("add", block.id)]


def _approval(state: ViewState, event: ev.ApprovalRequested) -> list[Op]:
    asking = state.calls.get(event.asked_by) if event.asked_by is not None else None
    if asking is not None and asking.tool is not None:
        asking.tool.state, asking.tool.reason = "approval", event.reason
        asking.tool.questions.append(Question(event.call))
        return [Op("change", asking.id)]

    def change(view: ToolView) -> None:
        view.state, view.reason = "approval", event.reason

    return _change_call(state, event.call, change)


def _tool_start(state: ViewState, event: ev.ToolExecutionStart) -> list[Op]:
    def change(view: ToolView) -> None:
        view.state = "running"

    return _change_call(state, event.call, change)


def _tool_update(state: ViewState, event: ev.ToolExecutionUpdate) -> list[Op]:
    block = state.calls.get(event.call_id)
    if block is None or block.tool is None or block.tool.result is not None:
        return []
    if (question := block.tool.question) is not None:  # it is decided: the sub-agent goes on
        status = event.data.get("status") if isinstance(event.data, dict) else None
        question.answer = {"running": "allowed", "denied": "denied"}.get(str(status), question.answer)
        block.tool.state, block.tool.reason = "running", None
    block.tool.progress, block.tool.fraction = event.message or block.tool.progress, event.fraction
    return [Op("change", block.id)]


def _tool_end(state: ViewState, event: ev.ToolExecutionEnd) -> list[Op]:
    def change(view: ToolView) -> None:
        view.state, view.result, view.duration_s = event.result.status, event.result, event.duration_s

    return _change_call(state, event.call, change)


def _change_call(state: ViewState, call: ToolCall, change: Callable[[ToolView], None]) -> list[Op]:
    block = state.calls.get(call.id)
    kind: Literal["change", "add"] = "change"
    if block is None or block.tool is None:
        block = state.calls[call.id] = state.add("tool", tool=ToolView(name=call.name, call_id=call.id), done=True)
        kind = "add"
    assert block.tool is not None
    block.tool.call, block.tool.name = call, call.name
    change(block.tool)
    return [Op(kind, block.id)]


def _notice(state: ViewState, event: ev.Notice) -> list[Op]:
    return [Op("add", state.add("notice", pieces=[event.message], title=event.kind, done=True).id)]


def _turn_end(state: ViewState, event: ev.TurnEnd) -> list[Op]:
    state.footer.add(event.completion, event.other_calls)
    return [*_cut(state), Op("footer")]


def _agent_end(state: ViewState, event: ev.AgentEnd) -> list[Op]:
    result = event.result
    ops = _cut(state)
    if result.error is not None:
        ops += _error_block(state, result.error)
    note = stop_note(result.stop_reason)
    if note and not (result.stop_reason == "error" and state.last_error):
        ops.append(Op("add", state.add("notice", pieces=[note], title=result.stop_reason, done=True).id))
    state.status = {"cancelled": "stopped", "error": "failed"}.get(result.stop_reason, "done")  # type: ignore[assignment]
    state.footer.settle(result)
    return [*ops, Op("status"), Op("footer")]


_KIND: dict[type[Any], BlockKind] = {
    TextPart: "text", ThinkingPart: "thinking", RefusalPart: "refusal", ToolCall: "tool", ServerToolPart: "server_tool", MediaPart: "media",
}  # fmt: skip

_HANDLERS: dict[type[Any], Callable[[ViewState, Any], list[Op]]] = {
    ev.AgentStart: _agent_start,
    ev.TurnStart: _turn_start,
    ev.MessageStart: _message_start,
    ev.MessageUpdate: _message_update,
    ev.MessageEnd: _message_end,
    ev.Retry: lambda state, e: _retry(state, e.attempt, e.wait_s, e.error),
    ev.ApprovalRequested: _approval,
    ev.ToolExecutionStart: _tool_start,
    ev.ToolExecutionUpdate: _tool_update,
    ev.ToolExecutionEnd: _tool_end,
    ev.Notice: _notice,
    ev.TurnEnd: _turn_end,
    ev.AgentEnd: _agent_end,
}

_STREAM_HANDLERS: dict[type[Any], Callable[[ViewState, Any], list[Op]]] = {
    TextDelta: _delta("text"),
    ThinkingDelta: _delta("thinking"),
    RefusalDelta: _delta("refusal"),
    ToolCallStart: _call_start,
    ToolCallDelta: _call_delta,
    ToolCallDone: _call_done,
    PartDone: _part_done,
    StreamRetry: lambda state, e: _retry(state, e.attempt, e.wait_s, e.error),
    StreamError: _stream_error,
}

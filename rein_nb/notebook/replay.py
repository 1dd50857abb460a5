"""A finished run, completion, message or history as a view state: its events are played again through the one reducer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rein_nb.agent import events as ev
from rein_nb.agent.result import AgentResult
from rein_nb.ir import Completion, Message, ToolCall, ToolResult
from rein_nb.notebook.footer import Footer
from rein_nb.notebook.view_model import ViewState, apply


def state_of(source: Any) -> ViewState:
    """The view state of an `AgentResult`, `Completion`, `Message`, a sequence of messages or events, a session or agent.

    Raises
    ------
    TypeError
        For anything else.
    """
    if isinstance(source, ViewState):
        return source
    if isinstance(source, AgentResult):
        return _play(result_events(source), ViewState(label=source.label))
    if isinstance(source, Completion):
        state = _play(_completion_events(source), ViewState())
        state.status = "failed" if source.error is not None else "done"
        return state
    if isinstance(source, Message):
        return messages_state([source])
    if (
        isinstance(source, Sequence)
        and not isinstance(source, str)
        and all(isinstance(item, Message) for item in source)
    ):
        return messages_state(source)
    if isinstance(source, Iterable) and not isinstance(source, str | bytes | dict):
        items = list(source)
        if all(isinstance(item, ev.Event) for item in items):
            return _play(items, ViewState())
    if isinstance(getattr(source, "messages", None), list):
        return messages_state(source.messages)
    raise TypeError(
        f"cannot draw a {type(source).__name__}: expected an AgentResult, a Completion, a Message, a list of messages or agent events"
    )


def _play(events: Iterable[Any], state: ViewState) -> ViewState:
    for event in events:
        apply(state, event)
    return state


def _completion_events(completion: Completion) -> list[ev.Event]:
    return [
        ev.TurnStart(turn=1, model=completion.model or ""),
        ev.MessageEnd(turn=1, message=completion.message, completion=completion),
        ev.TurnEnd(turn=1, completion=completion),
    ]


def result_events(result: AgentResult) -> list[ev.Event]:
    """The events of a finished run, without its deltas."""
    prompts = []
    for message in result.new_messages:
        if message.role == "assistant":
            break
        prompts.append(message)
    out: list[ev.Event] = [
        ev.AgentStart(
            run_id=result.run_id, model=result.model, provider=result.provider, system=result.system, messages=prompts
        )
    ]
    later = [message for message in result.new_messages[len(prompts) :] if message.role != "tool"]
    for turn in result.turns:
        while later and later[0].role != "assistant":
            out.append(ev.MessageStart(turn=turn.number, message=later.pop(0)))
        if later:
            later.pop(0)
        out += [
            ev.TurnStart(turn=turn.number, model=turn.completion.model or ""),
            ev.MessageEnd(turn=turn.number, message=turn.completion.message, completion=turn.completion),
        ]
        for run in turn.tools:
            out.append(
                ev.ToolExecutionEnd(turn=turn.number, call=run.call, result=run.result, duration_s=run.duration_s)
            )
        out.append(ev.TurnEnd(turn=turn.number, completion=turn.completion))
    out.append(ev.AgentEnd(result=result))
    return out


def messages_state(messages: Sequence[Message]) -> ViewState:
    """A plain history; results are joined to their calls."""
    state = ViewState(status="done", footer=Footer())
    for number, message in enumerate(messages):
        if message.role == "assistant":
            apply(state, ev.TurnStart(turn=number))
            apply(state, ev.MessageEnd(turn=number, message=message))
        elif message.tool_results:
            for result in message.tool_results:
                apply(state, ev.ToolExecutionEnd(turn=number, call=_call_of(state, result), result=result))
        else:
            apply(state, ev.MessageStart(turn=number, message=message))
    return state


def _call_of(state: ViewState, result: ToolResult) -> ToolCall:
    block = state.calls.get(result.tool_call_id)
    if block is not None and block.tool is not None and block.tool.call is not None:
        return block.tool.call
    return ToolCall(id=result.tool_call_id, name=result.name or "")

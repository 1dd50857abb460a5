"""An agent as a tool of another agent."""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rein_nb.agent.approvals import Decide
from rein_nb.agent.events import (
    AgentEvent,
    ApprovalRequested,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    TurnStart,
)
from rein_nb.agent.state import raise_for
from rein_nb.ir import ToolResult, sanitize_tool_name
from rein_nb.tools import Tool, ToolContext
from rein_nb.tools.render import to_result

if TYPE_CHECKING:
    from rein_nb.agent.agent import Agent


MAX_DEPTH = 8
"""How deep agents may ask agents: one that is a tool of its own would go on without end."""

_depth: ContextVar[int] = ContextVar("rein_nb_agent_depth", default=0)


def agent_tool(agent: Agent, name: str | None, description: str | None, options: dict[str, Any]) -> Tool:
    """A tool whose call is a run of a fork of `agent`; stopping the caller stops it, and its progress is the caller's."""

    async def ask(
        prompt: Annotated[str, "The task, complete in itself: the agent sees nothing else of this conversation."],
        ctx: ToolContext[Any],
    ) -> Any:
        depth = _depth.get()
        if depth >= MAX_DEPTH:
            raise RuntimeError(f"agents ask agents {MAX_DEPTH} deep already: do this without asking another one")
        sub = agent.fork()
        sub._always_allowed = agent._always_allowed  # what is allowed for good is so for its next call, too
        asked = {"signal": ctx.token, "on_event": (*agent._setup.on_event, _Follower(ctx))}
        run = sub._new_run(prompt, asked, watched=ctx.interactive)
        run.nested = True
        token = _depth.set(depth + 1)
        try:
            result = raise_for(run, await sub._shielded(run))
        finally:
            _depth.reset(token)
            ctx.add_usage(run.spent())  # with what its own sub-agents spent, however it ended
        details = {
            "run_id": result.run_id, "model": result.model, "stop_reason": result.stop_reason,
            "usage": result.usage.model_dump(mode="json", exclude={"raw"}), "turns": len(result.turns),
        }  # fmt: skip
        answer = result.text if agent._setup.output_type is None else result.output
        rendered = to_result(ctx.call, answer, 10**9)
        if not result.ok:
            note = f"\n[The agent did not finish: {result.stop_reason}.]"
            rendered = to_result(ctx.call, f"{result.text}{note}", 10**9)
        return ToolResult(
            tool_call_id=ctx.call.id, content=rendered.content, details=details, is_error=not result.ok,
            status="ok" if result.ok else "error",
        )  # fmt: skip

    first_line = (agent.system or "").strip().splitlines()[:1]
    made = name or sanitize_tool_name(agent._setup.label) or "ask_agent"
    described = description or (
        f"Ask another agent. {first_line[0]}" if first_line else "Ask another agent to do a task."
    )
    return Tool(ask, name=made, description=described, **options)


def _of_call(event: AgentEvent) -> str | None:
    """The id of the run's own call that an event is about; a question that a sub-agent asks is about the call that is the sub-agent."""
    if isinstance(event, ApprovalRequested):
        return event.asked_by or event.call.id
    if isinstance(event, ToolExecutionUpdate):
        return event.call_id
    return event.call.id if isinstance(event, ToolExecutionStart | ToolExecutionEnd) else None


class _Follower:
    """Tells the outer run of the inner one: its progress, and one by one the questions that it has to ask."""

    def __init__(self, ctx: ToolContext[Any]) -> None:
        self._ctx = ctx
        self._open: ApprovalRequested | None = None
        self._waiting: deque[ApprovalRequested] = deque()
        self._always: set[str] = set()

    def __call__(self, event: AgentEvent) -> None:
        if isinstance(event, TurnStart):
            self._tell(f"turn {event.turn}", event)
            return
        call_id = _of_call(event)
        if call_id is None:
            return
        # A call has one question open at a time: whatever is told of it next says that this one is answered.
        self._waiting = deque(question for question in self._waiting if _of_call(question) != call_id)
        answered = self._open is not None and _of_call(self._open) == call_id
        if answered:
            self._open = None
        if isinstance(event, ApprovalRequested):
            self._waiting.append(event)
        elif isinstance(event, ToolExecutionStart):
            self._tell(f"calls {event.call.name}", event)
        elif isinstance(event, ToolExecutionEnd) and answered:
            self._tell(f"{event.call.name}: {event.result.status}", event, event.result.status)
        elif isinstance(event, ToolExecutionUpdate) and answered:
            status = event.data.get("status") if isinstance(event.data, dict) else None
            self._tell(event.message, event, str(status or "running"))
        self._put()

    def _put(self) -> None:
        while self._open is None and self._waiting:
            question = self._waiting.popleft()
            if question.call.name not in self._always:  # else it is answered already
                self._open = replace(question, decide=self._decider(question))
                if self._ctx.on_question is not None:
                    self._ctx.on_question(self._open)
                elif question.begin is not None:
                    question.begin()

    def _decider(self, question: ApprovalRequested) -> Decide:
        def decide(verdict: Literal["allow", "deny", "always"], reason: str | None = None) -> None:
            if verdict == "always":
                self._always.add(question.call.name)
            if question.decide is not None:
                question.decide(verdict, reason)

        return decide

    def _tell(self, words: str, event: AgentEvent, status: str = "running") -> None:
        if self._open is None:  # progress would take the place of the question
            self._ctx.progress(words, data={"run_id": event.run_id, "status": status})

"""An agent as a tool of another agent."""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rein_nb.agent.approvals import Decide
from rein_nb.agent.events import AgentEvent, ApprovalRequested, ToolExecutionEnd, ToolExecutionStart, TurnStart
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


class _Follower:
    """Tells the outer run of the inner one: its progress, and one by one the questions that it has to ask."""

    def __init__(self, ctx: ToolContext[Any]) -> None:
        self._ctx = ctx
        self._open: ApprovalRequested | None = None
        self._waiting: deque[ApprovalRequested] = deque()
        self._always: set[str] = set()

    def __call__(self, event: AgentEvent) -> None:
        if isinstance(event, ApprovalRequested):
            self._waiting.append(event)
        elif isinstance(event, ToolExecutionStart):
            self._settled(event, f"calls {event.call.name}", always=True)
        elif isinstance(event, ToolExecutionEnd):
            self._settled(event, f"{event.call.name}: {event.result.status}")
        elif isinstance(event, TurnStart):
            self._tell(f"turn {event.turn}", event)
        while self._open is None and self._waiting:
            question = self._waiting.popleft()
            if question.call.name not in self._always:  # else it is answered already
                self._open = replace(question, decide=self._decider(question))
                if self._ctx.on_question is not None:
                    self._ctx.on_question(self._open)

    def _decider(self, question: ApprovalRequested) -> Decide:
        def decide(verdict: Literal["allow", "deny", "always"], reason: str | None = None) -> None:
            if verdict == "always":
                self._always.add(question.call.name)
            if question.decide is not None:
                question.decide(verdict, reason)

        return decide

    def _settled(self, event: ToolExecutionStart | ToolExecutionEnd, words: str, always: bool = False) -> None:
        """A call runs, or was refused: nobody need be asked about it any more."""
        mine = self._open is not None and self._open.call.id == event.call.id
        if mine:
            self._open = None
        self._waiting = deque(question for question in self._waiting if question.call.id != event.call.id)
        if mine or always:
            self._tell(words, event)

    def _tell(self, words: str, event: AgentEvent) -> None:
        if self._open is None:  # progress would take the place of the question
            status = event.result.status if isinstance(event, ToolExecutionEnd) else "running"
            self._ctx.progress(words, data={"run_id": event.run_id, "status": status})

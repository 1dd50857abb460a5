"""An agent as a tool of another agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from rein_nb.agent.events import AgentEvent, ToolExecutionStart, TurnStart
from rein_nb.agent.state import raise_for
from rein_nb.ir import ToolResult, sanitize_tool_name
from rein_nb.tools import Tool, ToolContext
from rein_nb.tools.render import to_result

if TYPE_CHECKING:
    from rein_nb.agent.agent import Agent


def agent_tool(agent: Agent, name: str | None, description: str | None, options: dict[str, Any]) -> Tool:
    """A tool whose call is a run of a fork of `agent`; stopping the caller stops it, and its progress is the caller's."""

    async def ask(
        prompt: Annotated[str, "The task, complete in itself: the agent sees nothing else of this conversation."],
        ctx: ToolContext[Any],
    ) -> Any:
        def follow(event: AgentEvent) -> None:
            if isinstance(event, TurnStart):
                ctx.progress(f"turn {event.turn}", data={"run_id": event.run_id})
            elif isinstance(event, ToolExecutionStart):
                ctx.progress(f"calls {event.call.name}", data={"run_id": event.run_id})

        sub = agent.fork()
        run = sub._new_run(prompt, {"signal": ctx.token, "on_event": (*agent._setup.on_event, follow)})
        try:
            result = raise_for(run, await sub._shielded(run))
        finally:
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

"""The agent: a loop that a researcher can leave running.

Lives here: `Agent`, the loop and its collaborators (turns, execution, hooks, approvals, limits, structured output, context, healing),
the events it tells its listeners, and the result it leaves behind.

May import: everything up to `tools`. May not know: notebooks, pandas, the store (they listen).
"""

from rein_nb.agent.agent import Agent
from rein_nb.agent.context import Context
from rein_nb.agent.events import AgentEvent
from rein_nb.agent.handle import AgentRun
from rein_nb.agent.healing import Healed, heal
from rein_nb.agent.hooks import AbortRun, Deny, ModelRequest
from rein_nb.agent.limits import Limits
from rein_nb.agent.result import AgentResult, ToolRun, Turn
from rein_nb.agent.streams import EventStream

__all__ = [
    "AbortRun",
    "Agent",
    "AgentEvent",
    "AgentResult",
    "AgentRun",
    "Context",
    "Deny",
    "EventStream",
    "Healed",
    "Limits",
    "ModelRequest",
    "ToolRun",
    "Turn",
    "heal",
]

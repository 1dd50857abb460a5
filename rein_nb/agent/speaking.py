"""Speaking to a run that is going on."""

from __future__ import annotations

from rein_nb.agent.arguments import Prompt, as_user_message
from rein_nb.agent.state import RunState


class SpeaksToRun:
    """What may be said to a run, from any thread."""

    _run: RunState

    def cancel(self, reason: str | None = None) -> None:
        """Stop the run at once. Its events still end with `AgentEnd`, the result says ``cancelled``, and the transcript stays valid."""
        self._run.stop("cancelled", reason)

    def steer(self, message: Prompt) -> None:
        """Say something to the running agent: it reads it before its next model call.

        Raises
        ------
        InvalidRequest
            When there is nothing to say, or the run is over.
        """
        self._run.say(self._run.steering, as_user_message(message))

    def follow_up(self, message: Prompt) -> None:
        """Say something that the agent takes up when it would otherwise be done.

        Raises
        ------
        InvalidRequest
            When there is nothing to say, or the run is over.
        """
        self._run.say(self._run.follow_ups, as_user_message(message))

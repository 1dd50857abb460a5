"""Approvals: who decides whether a tool call may run.

A policy is ``"auto"`` (ask for tools that require it), ``"never"`` or ``"allow"`` (ask for nothing), ``"always"`` or ``"ask"`` (ask for every
call), ``"deny"`` (refuse every call), a function of the call that decides by itself, or a dict from tool name to any of these (``"*"`` for the
rest). Asking means an `ApprovalRequested` event
whose ``decide`` anybody may call from any thread. Where nobody listens, asking is denying.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias, cast

from rein_nb.agent.asking import as_flag, ask
from rein_nb.agent.hooks import AbortRun, Deny, own_arguments
from rein_nb.ir import InvalidRequest, ToolCall
from rein_nb.stream import CancellationToken
from rein_nb.tools import Tool, ToolContext
from rein_nb.tools.errors import describe_error
from rein_nb.tools.execute import EndsRun

Verdict: TypeAlias = Literal["allow", "deny", "ask", "always"]
Policy: TypeAlias = str | Callable[..., Any | Awaitable[Any]] | Mapping[str, Any] | None
Decide: TypeAlias = Callable[[Literal["allow", "deny", "always"], str | None], None]

_WORDS = ("auto", "never", "always", "allow", "ask", "deny")


def check_policy(policy: Policy) -> None:
    """Raise at once for a policy that could never be used.

    Raises
    ------
    InvalidRequest
        Saying what would be right.
    """
    if policy is None or callable(policy):
        return
    if isinstance(policy, Mapping):
        for inner in policy.values():
            check_policy(inner)
        return
    if policy not in _WORDS:
        raise InvalidRequest(
            f"approval must be one of {', '.join(map(repr, _WORDS))}, a function of the call, or a dict by tool name, not {policy!r}"
        )


async def judge(policy: Policy, tool: Tool, call: ToolCall, ctx: ToolContext[Any]) -> tuple[Verdict, str | None]:
    """(verdict, reason) of the policy for one call.

    Raises
    ------
    AbortRun
        When an approval function wants the run to end.
    """
    if isinstance(policy, Mapping):
        return await judge(policy.get(call.name, policy.get("*")), tool, call, ctx)
    if policy in ("never", "allow"):
        return "allow", None
    if policy in ("always", "ask"):
        return "ask", None
    if policy == "deny":
        return "deny", f"calls of {call.name} are not allowed here"
    if policy is None or policy == "auto":
        try:
            needed = await _needed(tool, call)
        except (AbortRun, EndsRun):
            raise
        except Exception as exc:
            return "ask", f"its own check failed: {describe_error(exc)}"
        return ("ask", None) if needed else ("allow", None)
    assert callable(policy)
    try:
        shown = own_arguments(call)
        answer = await (ask(policy, shown, ctx) if _takes_context(policy) else ask(policy, shown))
    except (AbortRun, EndsRun):
        raise
    except Exception as exc:
        return "deny", f"the approval function failed: {describe_error(exc)}"
    flag = as_flag(answer)
    if flag is not None or answer is None:
        return ("allow" if flag else "deny"), None
    if isinstance(answer, Deny):
        return "deny", answer.reason
    if isinstance(answer, str) and answer in ("allow", "always", "deny", "ask"):
        return cast(Verdict, answer), None
    return "deny", answer if isinstance(answer, str) else f"the approval function returned {type(answer).__name__}"


async def _needed(tool: Tool, call: ToolCall) -> bool:
    check = tool.requires_approval
    if not callable(check):
        return check
    # Validators are the user's own functions, too.
    for seen in await ask(lambda: list(tool.judged(call.arguments))):
        if await ask(check, seen):
            return True
    return False


def _takes_context(policy: Callable[..., Any]) -> bool:
    """Whether a function of a call wants the context too: a second argument that has no default, or is called so."""
    try:
        found = inspect.signature(policy).parameters.values()
    except (TypeError, ValueError):
        return True
    if any(one.kind is one.VAR_POSITIONAL for one in found):
        return True
    positional = [one for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len(positional) > 1 and (
        positional[1].default is inspect.Parameter.empty or positional[1].name in ("ctx", "context")
    )


class Question:
    """One open request for a decision. Only the first answer counts; it may come from any thread.

    Parameters
    ----------
    loop
        The run's.
    timeout_s
        Seconds after `begin` at which it is denied; None for never.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_s: float | None = None) -> None:
        self._loop = loop
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._answer: asyncio.Future[tuple[Verdict, str | None]] = loop.create_future()

    def decide(self, verdict: Literal["allow", "deny", "always"], reason: str | None = None) -> None:
        """Answer: ``allow`` this call, ``deny`` it, or allow the tool ``always``."""
        if verdict not in ("allow", "deny", "always"):
            raise ValueError(f"a decision is 'allow', 'deny' or 'always', not {verdict!r}")

        def settle() -> None:
            if not self._answer.done():
                self._answer.set_result((verdict, reason))

        self._soon(settle)

    def begin(self) -> None:
        """Have the time run: the question is before those who can answer it. In the loop's thread."""
        if self._timeout_s is not None and self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._expired, self._timeout_s)

    def _expired(self, timeout_s: float) -> None:
        if not self._answer.done():
            self._answer.set_result(("deny", f"nobody decided within {timeout_s:g} s"))

    def _soon(self, work: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:  # the loop is closed: the run is long over
            return

    async def at_once(self) -> tuple[Verdict, str | None] | None:
        """The decision, when one was made while the question was asked; else None, and later ones are void."""
        await asyncio.sleep(0)
        self._end()
        if self._answer.done():
            return self._answer.result()
        self._answer.cancel()
        return None

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def wait(self, token: CancellationToken) -> tuple[Verdict, str | None] | None:
        """The decision; None when the run was stopped first."""
        stop: asyncio.Future[None] = self._loop.create_future()

        def stopped() -> None:
            if not stop.done():
                stop.set_result(None)

        detach = token.on_cancel(lambda: self._soon(stopped))
        try:
            await asyncio.wait((self._answer, stop), return_when=asyncio.FIRST_COMPLETED)
        finally:
            detach()
            self._end()
            if not stop.done():
                stop.cancel()
        return self._answer.result() if self._answer.done() else None

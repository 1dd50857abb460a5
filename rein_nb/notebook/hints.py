"""What the reader can do next: one sentence for each kind of fault and each reason a run ended early."""

from __future__ import annotations

from rein_nb.ir import ErrorInfo

_NEXT: dict[str, str] = {
    "authentication": "Check the provider's API key: it is missing, wrong or expired.",
    "permission_denied": "The key is valid but may not do this: check the account's rights and credit.",
    "not_found": "Check the model's name and the base URL.",
    "rate_limited": "Wait and run the cell again, or ask for fewer tokens at once.",
    "context_overflow": "Shorten the conversation (reset the session), or choose a model with a larger context.",
    "content_filtered": "The provider's policy refused this prompt: rephrase it or choose another model.",
    "bad_request": "The provider refused the request as it is: its message above says which field.",
    "overloaded": "The provider is out of capacity: run the cell again later, or choose another model.",
    "server_error": "The provider failed: run the cell again.",
    "connection_failed": "Check the network and the base URL, then run the cell again.",
    "timed_out": "Run the cell again, or raise the timeout.",
    "stream_cut": "The answer above is incomplete: run the cell again.",
    "malformed_response": "The provider broke its own protocol: run the cell again, or report it to the provider.",
}

_STOPPED: dict[str, str] = {
    "length": "The answer was cut at the token limit: raise max_tokens to get the rest.",
    "content_filter": "The provider's content filter ended the answer.",
    "cancelled": "Stopped. What was received is kept.",
    "error": "The run ended with an error. What was received is kept.",
    "max_turns": "Stopped at the limit of turns: raise turns in the agent's limits to go on.",
    "max_tool_calls": "Stopped at the limit of tool calls: raise tool_calls in the agent's limits to go on.",
    "max_tokens": "Stopped at the token budget: raise tokens in the agent's limits to go on.",
    "max_cost": "Stopped at the cost budget: raise usd in the agent's limits to go on.",
    "max_time": "Stopped at the time limit: raise seconds in the agent's limits to go on.",
    "output_invalid": "The model did not give an output of the asked type.",
}


def next_step(error: ErrorInfo) -> str:
    """What to do about a fault; empty when nothing useful is known."""
    hint = _NEXT.get(error.kind, "")
    if error.kind in ("rate_limited", "overloaded") and error.retry_after_s:
        return f"The server asks to wait {error.retry_after_s:.0f} s. {hint}"
    return hint


def stop_note(stop_reason: str) -> str:
    """A sentence for a run that did not simply complete; empty otherwise."""
    return _STOPPED.get(stop_reason, "")

"""rein_nb: the Jupyter-first research toolkit for LLM agents.

Everything public is importable from here and loaded when it is first used, so that ``import rein_nb`` loads no SDK, no pandas and
no widget library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE: dict[str, tuple[str, ...]] = {
    "rein_nb.ir": (
        "AuthenticationError", "BadRequest", "Citation", "Completion", "ConnectionFailed", "ContentFiltered", "ContextOverflow",
        "ErrorInfo", "FinishReason", "InvalidRequest", "MalformedResponse", "MediaPart", "Message", "NotFound", "Options", "Origin",
        "OutputFormat", "Overloaded", "PartDone", "PermissionDenied", "ProviderError", "RateLimited", "RefusalDelta",
        "RefusalPart", "ReinError", "Request", "RequestCancelled", "ServerError", "ServerToolPart", "StreamChunk", "StreamCut",
        "StreamDone", "StreamError", "StreamEvent", "StreamRetry", "StreamStart", "TextDelta", "TextPart", "ThinkingDelta", "ThinkingPart",
        "TimedOut", "Timing", "ToolCall", "ToolCallDelta", "ToolCallDone", "ToolCallStart", "ToolChoice", "ToolResult", "ToolSpec",
        "TurnOutcome", "UnsupportedOption", "Usage", "deltas", "normalize_finish_reason", "redact", "sanitize_tool_name",
    ),
    "rein_nb.stream": ("Accumulator", "CancellationToken", "Cancelled"),
    "rein_nb.providers": ("register_provider",),
    "rein_nb.llm": ("LLM", "Config"),
    "rein_nb.tools": ("Tool", "ToolContext", "Toolset", "tool"),
    "rein_nb.agent": ("Agent", "AgentEvent", "AgentResult", "Limits"),
    "rein_nb.store": ("Session", "Store"),
    "rein_nb.frames": ("messages_from_frame", "to_frame"),
    "rein_nb.compare": ("Comparison", "acompare", "compare"),
    "rein_nb.notebook": ("allow_nested_loops", "load_ipython_extension", "unload_ipython_extension"),
}  # fmt: skip
_HOME = {name: module for module, names in _WHERE.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605

if TYPE_CHECKING:
    from rein_nb.agent import Agent, AgentEvent, AgentResult, Limits
    from rein_nb.compare import Comparison, acompare, compare
    from rein_nb.frames import messages_from_frame, to_frame
    from rein_nb.ir import (
        AuthenticationError,
        BadRequest,
        Citation,
        Completion,
        ConnectionFailed,
        ContentFiltered,
        ContextOverflow,
        ErrorInfo,
        FinishReason,
        InvalidRequest,
        MalformedResponse,
        MediaPart,
        Message,
        NotFound,
        Options,
        Origin,
        OutputFormat,
        Overloaded,
        PartDone,
        PermissionDenied,
        ProviderError,
        RateLimited,
        RefusalDelta,
        RefusalPart,
        ReinError,
        Request,
        RequestCancelled,
        ServerError,
        ServerToolPart,
        StreamChunk,
        StreamCut,
        StreamDone,
        StreamError,
        StreamEvent,
        StreamRetry,
        StreamStart,
        TextDelta,
        TextPart,
        ThinkingDelta,
        ThinkingPart,
        TimedOut,
        Timing,
        ToolCall,
        ToolCallDelta,
        ToolCallDone,
        ToolCallStart,
        ToolChoice,
        ToolResult,
        ToolSpec,
        TurnOutcome,
        UnsupportedOption,
        Usage,
        deltas,
        normalize_finish_reason,
        redact,
        sanitize_tool_name,
    )
    from rein_nb.llm import LLM, Config
    from rein_nb.notebook import allow_nested_loops, load_ipython_extension, unload_ipython_extension
    from rein_nb.providers import register_provider
    from rein_nb.store import Session, Store
    from rein_nb.stream import Accumulator, CancellationToken, Cancelled
    from rein_nb.tools import Tool, ToolContext, Toolset, tool


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home)
    value = module if home.endswith("." + name) else getattr(module, name)
    # `compare` and `llm` are both a room and a name in it: the name wins.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

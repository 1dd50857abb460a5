"""rein_nb: the Jupyter-first research toolkit for LLM agents.

Everything public is importable from here and loaded when it is first used, so that ``import rein_nb`` loads no SDK, no pandas and
no widget library.
"""

from __future__ import annotations

import sys
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
    "rein_nb.store": ("RecordingMiss", "Session", "Store", "StoreError", "record", "replay"),
    "rein_nb.frames": ("messages_from_frame", "to_frame"),
    "rein_nb.compare": ("Comparison", "acompare", "compare"),
    "rein_nb.compare.sweep": ("Sweep", "asweep", "scorers", "sweep"),
    "rein_nb.notebook": ("allow_nested_loops", "load_ipython_extension", "unload_ipython_extension"),
}  # fmt: skip
_HOME = {name: module for module, names in _WHERE.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])

if TYPE_CHECKING:
    from rein_nb.agent import (
        Agent as Agent,
    )
    from rein_nb.agent import (
        AgentEvent as AgentEvent,
    )
    from rein_nb.agent import (
        AgentResult as AgentResult,
    )
    from rein_nb.agent import (
        Limits as Limits,
    )
    from rein_nb.compare import (
        Comparison as Comparison,
    )
    from rein_nb.compare import (
        acompare as acompare,
    )
    from rein_nb.compare import (
        compare as compare,
    )
    from rein_nb.compare.sweep import (
        Sweep as Sweep,
    )
    from rein_nb.compare.sweep import (
        asweep as asweep,
    )
    from rein_nb.compare.sweep import (
        scorers as scorers,
    )
    from rein_nb.compare.sweep import (
        sweep as sweep,
    )
    from rein_nb.frames import (
        messages_from_frame as messages_from_frame,
    )
    from rein_nb.frames import (
        to_frame as to_frame,
    )
    from rein_nb.ir import (
        AuthenticationError as AuthenticationError,
    )
    from rein_nb.ir import (
        BadRequest as BadRequest,
    )
    from rein_nb.ir import (
        Citation as Citation,
    )
    from rein_nb.ir import (
        Completion as Completion,
    )
    from rein_nb.ir import (
        ConnectionFailed as ConnectionFailed,
    )
    from rein_nb.ir import (
        ContentFiltered as ContentFiltered,
    )
    from rein_nb.ir import (
        ContextOverflow as ContextOverflow,
    )
    from rein_nb.ir import (
        ErrorInfo as ErrorInfo,
    )
    from rein_nb.ir import (
        FinishReason as FinishReason,
    )
    from rein_nb.ir import (
        InvalidRequest as InvalidRequest,
    )
    from rein_nb.ir import (
        MalformedResponse as MalformedResponse,
    )
    from rein_nb.ir import (
        MediaPart as MediaPart,
    )
    from rein_nb.ir import (
        Message as Message,
    )
    from rein_nb.ir import (
        NotFound as NotFound,
    )
    from rein_nb.ir import (
        Options as Options,
    )
    from rein_nb.ir import (
        Origin as Origin,
    )
    from rein_nb.ir import (
        OutputFormat as OutputFormat,
    )
    from rein_nb.ir import (
        Overloaded as Overloaded,
    )
    from rein_nb.ir import (
        PartDone as PartDone,
    )
    from rein_nb.ir import (
        PermissionDenied as PermissionDenied,
    )
    from rein_nb.ir import (
        ProviderError as ProviderError,
    )
    from rein_nb.ir import (
        RateLimited as RateLimited,
    )
    from rein_nb.ir import (
        RefusalDelta as RefusalDelta,
    )
    from rein_nb.ir import (
        RefusalPart as RefusalPart,
    )
    from rein_nb.ir import (
        ReinError as ReinError,
    )
    from rein_nb.ir import (
        Request as Request,
    )
    from rein_nb.ir import (
        RequestCancelled as RequestCancelled,
    )
    from rein_nb.ir import (
        ServerError as ServerError,
    )
    from rein_nb.ir import (
        ServerToolPart as ServerToolPart,
    )
    from rein_nb.ir import (
        StreamChunk as StreamChunk,
    )
    from rein_nb.ir import (
        StreamCut as StreamCut,
    )
    from rein_nb.ir import (
        StreamDone as StreamDone,
    )
    from rein_nb.ir import (
        StreamError as StreamError,
    )
    from rein_nb.ir import (
        StreamEvent as StreamEvent,
    )
    from rein_nb.ir import (
        StreamRetry as StreamRetry,
    )
    from rein_nb.ir import (
        StreamStart as StreamStart,
    )
    from rein_nb.ir import (
        TextDelta as TextDelta,
    )
    from rein_nb.ir import (
        TextPart as TextPart,
    )
    from rein_nb.ir import (
        ThinkingDelta as ThinkingDelta,
    )
    from rein_nb.ir import (
        ThinkingPart as ThinkingPart,
    )
    from rein_nb.ir import (
        TimedOut as TimedOut,
    )
    from rein_nb.ir import (
        Timing as Timing,
    )
    from rein_nb.ir import (
        ToolCall as ToolCall,
    )
    from rein_nb.ir import (
        ToolCallDelta as ToolCallDelta,
    )
    from rein_nb.ir import (
        ToolCallDone as ToolCallDone,
    )
    from rein_nb.ir import (
        ToolCallStart as ToolCallStart,
    )
    from rein_nb.ir import (
        ToolChoice as ToolChoice,
    )
    from rein_nb.ir import (
        ToolResult as ToolResult,
    )
    from rein_nb.ir import (
        ToolSpec as ToolSpec,
    )
    from rein_nb.ir import (
        TurnOutcome as TurnOutcome,
    )
    from rein_nb.ir import (
        UnsupportedOption as UnsupportedOption,
    )
    from rein_nb.ir import (
        Usage as Usage,
    )
    from rein_nb.ir import (
        deltas as deltas,
    )
    from rein_nb.ir import (
        normalize_finish_reason as normalize_finish_reason,
    )
    from rein_nb.ir import (
        redact as redact,
    )
    from rein_nb.ir import (
        sanitize_tool_name as sanitize_tool_name,
    )
    from rein_nb.llm import (
        LLM as LLM,
    )
    from rein_nb.llm import (
        Config as Config,
    )
    from rein_nb.notebook import (
        allow_nested_loops as allow_nested_loops,
    )
    from rein_nb.notebook import (
        load_ipython_extension as load_ipython_extension,
    )
    from rein_nb.notebook import (
        unload_ipython_extension as unload_ipython_extension,
    )
    from rein_nb.providers import (
        register_provider as register_provider,
    )
    from rein_nb.store import (
        RecordingMiss as RecordingMiss,
    )
    from rein_nb.store import (
        Session as Session,
    )
    from rein_nb.store import (
        Store as Store,
    )
    from rein_nb.store import (
        StoreError as StoreError,
    )
    from rein_nb.store import (
        record as record,
    )
    from rein_nb.store import (
        replay as replay,
    )
    from rein_nb.stream import (
        Accumulator as Accumulator,
    )
    from rein_nb.stream import (
        CancellationToken as CancellationToken,
    )
    from rein_nb.stream import (
        Cancelled as Cancelled,
    )
    from rein_nb.tools import (
        Tool as Tool,
    )
    from rein_nb.tools import (
        ToolContext as ToolContext,
    )
    from rein_nb.tools import (
        Toolset as Toolset,
    )
    from rein_nb.tools import (
        tool as tool,
    )


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home)
    value = module if home.endswith("." + name) else getattr(module, name)
    # `compare` is both a room and a function in it; the room can be called like the function.
    globals()[name] = value
    return value


_SHOWN = (
    ("rein_nb.agent.result", "AgentResult"),
    ("rein_nb.agent.agent", "Agent"),
    ("rein_nb.ir.completion", "Completion"),
    ("rein_nb.ir.messages", "Message"),
    ("rein_nb.store.session", "Session"),
    ("rein_nb.compare.comparison", "Comparison"),
)
"""Module and name of the types that show themselves as transcripts in a cell."""


def _show_in_cells() -> None:
    """Have results show themselves as transcripts when they are a cell's last value. Costs nothing outside of IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return

    def bundle(obj: Any, include: Any = None, exclude: Any = None) -> Any:
        return import_module("rein_nb.notebook").mimebundle(obj, include, exclude)

    for module, name in _SHOWN:
        shell.display_formatter.mimebundle_formatter.for_type_by_name(module, name, bundle)


_show_in_cells()


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

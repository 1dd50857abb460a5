"""Tool-call fragments of a Chat stream, put to the calls they belong to.

The interface promises an ``index`` on every fragment, an ``id`` and a name on the first. Servers break each of these promises, so a
fragment is placed by the first rule that fits:

1. A known index: the same call; but an id *and* a name that are both new there open another call (Gemini sends index 0 for every
   call), and so does a second object right behind a complete one. A new id alone is a continuation, and the first id stays (C004); a
   repeated name is ignored (C003).
2. A new index: a new call, or the call that already has this id.
3. No index: the call with this id, else a new call if an id or a name is given (C001), else the call before.

Only what is needed for this is kept: ids, names, and the last character of the arguments.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON, Extra

_KNOWN = frozenset({"index", "id", "type", "function", "custom"})
_KNOWN_FUNCTION = frozenset({"name", "arguments", "index"})


class _Call:
    """One call while it streams."""

    __slots__ = ("closed", "custom", "extra", "id", "last", "name", "part")

    def __init__(self, part: tuple[int, str, int]) -> None:
        self.part = part
        self.id = ""
        self.name = ""
        self.last = ""
        self.custom = False
        self.closed = False
        self.extra: dict[str, Any] = {}


class CallTracker:
    """The tool calls of one choice.

    Parameters
    ----------
    choice
        The choice's index; parts get the keys ``(choice, "call", n)``.
    namespace
        Of the provider, for what is kept in `extra`.
    names
        Wire name to our name, for tools that had to be renamed.
    """

    __slots__ = ("_by_id", "_by_index", "_calls", "_choice", "_names", "_namespace")

    def __init__(self, choice: int, namespace: str, names: Mapping[str, str] | None = None) -> None:
        self._choice = choice
        self._namespace = namespace
        self._names = names or {}
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def feed(self, fragments: JSON, *, whole: bool = False) -> list[d.Delta]:
        """Deltas for one list of fragments. `whole`: each is a complete call of its own."""
        out: list[d.Delta] = []
        if isinstance(fragments, dict):
            fragments = [fragments]
        for fragment in fragments if isinstance(fragments, list) else ():
            if isinstance(fragment, dict):
                self._fragment(fragment, whole, out)
        return out

    def quick(self, fragment: dict[str, Any]) -> d.ToolArgs | None:
        """The delta for a fragment that holds nothing but argument text for a known call; None where it holds more.

        Raises
        ------
        KeyError, TypeError, AttributeError
            Where it is no such fragment.
        """
        function = fragment["function"]
        text = function["arguments"]
        call = self._by_index[fragment["index"]]
        if len(fragment) != 2 or len(function) != 1 or type(text) is not str or call.custom or not text:
            return None
        call.last = text[-1] if not text[-1].isspace() else (text.rstrip()[-1:] or call.last)
        return d.ToolArgs(text, call.part)

    def legacy(self, function: dict[str, Any], *, whole: bool = False) -> list[d.Delta]:
        """Deltas for the ``function_call`` field that came before ``tool_calls``."""
        if not function.get("name") and not function.get("arguments"):
            return []
        out: list[d.Delta] = []
        self._fragment({"index": -1, "function": function}, whole, out)
        call = self._calls[-1]
        if "legacy" not in call.extra:
            call.extra["legacy"] = "function_call"
            out.append(self._extra_delta(call))
        return out

    def close_inputs(self) -> list[d.Delta]:
        """Deltas that complete the input of custom calls, once the turn has ended well."""
        out: list[d.Delta] = []
        for call in self._calls:
            if call.custom and call.last and not call.closed:
                call.closed = True
                out.append(d.ToolArgs('"}', call.part))
        return out

    def make_ids(self, seed: str) -> list[d.Delta]:
        """Deltas with ids for calls that came without (Gemini, Ollama).

        An id is made from `seed` (the response's id) and the call's place, so that a replay gives the same one.
        """
        out: list[d.Delta] = []
        for n, call in enumerate(self._calls):
            if not call.id:
                digest = hashlib.sha256(f"{seed}/{self._choice}/{n}/{call.name}".encode("utf-8", "surrogatepass"))
                call.id = f"call_{digest.hexdigest()[:24]}"
                out.append(d.ToolOpen(call.part, id=call.id))
        return out

    def _fragment(self, fragment: dict[str, Any], whole: bool, out: list[d.Delta]) -> None:
        function = fragment.get("function")
        custom = fragment.get("custom")
        function = function if isinstance(function, dict) else {}
        is_custom = (
            isinstance(custom, dict) and bool(custom.get("name") or custom.get("input")) and not function.get("name")
        )
        body = custom if is_custom else function
        assert isinstance(body, dict)
        id, name = _text(fragment.get("id")), _text(body.get("name"))
        name = self._names.get(name, name)
        arguments = body.get("input" if is_custom else "arguments")
        index = fragment.get("index", function.get("index"))
        call = None if whole else self._place(index, id, name, arguments)
        new = call is None
        if call is None:
            call = _Call((self._choice, "call", len(self._calls)))
            self._calls.append(call)
            if type(index) is int:
                self._by_index[index] = call
        if id and id not in self._by_id:
            self._by_id[id] = call
        news_id, news_name = (id if not call.id else ""), (name if not call.name else "")
        call.id, call.name = call.id or id, call.name or name
        if new or news_id or news_name:
            out.append(d.ToolOpen(call.part, id=news_id or None, name=news_name or None))
        if is_custom and not call.custom:
            call.custom = True
            call.extra["type"] = "custom"
            out.append(self._extra_delta(call))
        self._arguments(call, arguments, out)
        self._unknown(call, fragment, function, out)

    def _place(self, index: JSON, id: str, name: str, arguments: JSON) -> _Call | None:
        """The call that a fragment continues; None when it opens one."""
        if type(index) is int:
            call = self._by_index.get(index)
            if call is None:
                return self._by_id.get(id) if id and not name else None
            known = self._by_id.get(id) if id else None
            if known is not None:
                return known
            if id and call.id and name:
                return None
            begins = isinstance(arguments, dict) or (isinstance(arguments, str) and arguments.lstrip()[:1] == "{")
            if name and not id and call.name and (name != call.name or (call.last == "}" and begins)):
                return None
            return call
        if id:
            return self._by_id.get(id) or self._unnamed(name)
        last = self._calls[-1] if self._calls else None
        if name and last is not None:
            begins = not isinstance(arguments, str) or arguments.lstrip()[:1] in ("", "{")
            return None if begins or name != last.name else last
        return last

    def _unnamed(self, name: str) -> _Call | None:
        """A call that has neither an id yet nor a name other than this one: its id comes late."""
        last = self._calls[-1] if self._calls else None
        return last if last is not None and not last.id and not last.last and last.name in ("", name) else None

    def _arguments(self, call: _Call, arguments: JSON, out: list[d.Delta]) -> None:
        if arguments is None or arguments == "":
            return
        if call.custom:
            # Free text: carried as {"input": text}, escaped piece by piece, so that it streams and is JSON at the end.
            piece = json.dumps(arguments if isinstance(arguments, str) else json.dumps(arguments), ensure_ascii=False)[
                1:-1
            ]
            out.append(d.ToolArgs(piece if call.last else '{"input": "' + piece, call.part))
            call.last = '"'
        elif isinstance(arguments, str):
            stripped = arguments.rstrip()
            call.last = stripped[-1] if stripped else call.last
            out.append(d.ToolArgs(arguments, call.part))
        elif isinstance(arguments, dict):
            call.last = "}"
            out.append(d.ToolArgsObject(arguments, call.part))
        else:
            call.last = "]"
            out.append(d.ToolArgs(json.dumps(arguments), call.part))

    def _unknown(self, call: _Call, fragment: dict[str, Any], function: dict[str, Any], out: list[d.Delta]) -> None:
        """Fields beyond the interface (thought signatures among them), kept for replay."""
        changed = False
        for key, value in fragment.items():
            if key not in _KNOWN and value is not None and call.extra.get(key) != value:
                call.extra[key] = value
                changed = True
        inner = {k: v for k, v in function.items() if k not in _KNOWN_FUNCTION and v is not None}
        if inner and call.extra.get("function") != inner:
            call.extra["function"] = {**call.extra.get("function", {}), **inner}
            changed = True
        if changed:
            out.append(self._extra_delta(call))

    def _extra_delta(self, call: _Call) -> d.PartExtra:
        extra: Extra = {self._namespace: dict(call.extra)}
        return d.PartExtra(extra, call.part, kind="tool_call")


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else ""

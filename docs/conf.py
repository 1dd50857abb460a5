"""Settings of the site. ``python -m docs.build`` (or ``sphinx-build -c docs . docs/_build/html``) builds it.

The source folder is the whole checkout, so that one relative link serves GitHub and the site: pages of `docs/`, the notebooks, and the READMEs.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent
sys.path[:0] = [str(REPO), str(HERE / "_ext")]

from rein_nb import __version__  # noqa: E402

project = "rein_nb"
author = "the rein_nb authors"
copyright = author
version = release = __version__
language = "en"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "rein_site",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/**.rst",
    "docs/**.png",
    "docs/**.svg",
    "notebooks/*.ipynb",
    "README.md",
    "README.zh.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
]
exclude_patterns = ["docs/_*", ".venv", "**/.ipynb_checkpoints"]

# Markdown and notebooks. What is shown was saved with the notebook; nothing is executed here.
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
nb_mime_priority_overrides = [("html", "image/svg+xml", 5)]
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 4
myst_update_mathjax = False
suppress_warnings = ["mystnb.unknown_mime_type"]  # the transcript as data; its HTML stands beside it

# The reference.
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
autosummary_generate = False
default_role = "py:obj"
toc_object_entries_show_parents = "hide"

# How it looks. Everything that a page needs is in the build: nothing is fetched.
html_theme = "pydata_sphinx_theme"
html_title = "rein_nb"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_baseurl = ""
html_theme_options = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

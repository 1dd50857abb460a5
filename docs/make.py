"""Writes what the documentation has from the code: ``python docs/make.py``; ``--check`` only says which files are out of date."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPTS = ("reference/make_cli.py", "reference/make_options.py", "diagrams/make_diagrams.py")
"""Each has `files`: paths, and what should be in them."""


def script(path: str) -> Any:
    """A script of the documentation as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, HERE / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def files() -> dict[Path, str]:
    """Every file that is made, and what should be in it."""
    return {path: text for name in SCRIPTS for path, text in script(name).files().items()}


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; name the files that are out of date")
    check = parser.parse_args().check
    stale = {
        path: text for path, text in files().items() if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        sys.stdout.write(f"{path.relative_to(HERE.parent)}\n")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())

"""How much ``pip install rein-nb`` adds on disk to an environment that has openai, anthropic, pandas and ipywidgets.

``python -m tests.benchmarks.installed_size`` builds the wheel, makes two environments with the pinned versions, and compares their packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import REPO

LIMIT_MIB = 25.0
ALONE = ("openai", "anthropic", "pandas", "ipywidgets")


def packages_of(folder: Path, name: str, *wanted: str) -> dict[str, float]:
    """MiB of each top-level name in the packages of a new environment."""
    uv = shutil.which("uv")
    assert uv is not None, "uv is not installed: pip install uv"
    place = folder / name
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, place], check=True)
    command = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        place / "bin" / "python",
        "-c",
        REPO / "constraints.txt",
        *wanted,
    ]
    subprocess.run(command, check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    sizes = {}
    for entry in packages.iterdir():
        files = [entry] if entry.is_file() else [file for file in entry.rglob("*") if file.is_file()]
        sizes[entry.name] = sum(file.stat().st_size for file in files) / 2**20
    return sizes


def main() -> int:
    """Print both sizes and what the difference is made of."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        subprocess.run(
            ["uv", "build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", folder, REPO], check=True
        )
        (wheel,) = folder.glob("*.whl")
        alone = packages_of(folder, "alone", *ALONE)
        with_ours = packages_of(folder, "ours", str(wheel))
    added = sum(with_ours.values()) - sum(alone.values())
    print(f"{', '.join(ALONE)}: {sum(alone.values()):.1f} MiB")
    print(f"rein-nb: {sum(with_ours.values()):.1f} MiB, so it adds {added:.1f} MiB (at most {LIMIT_MIB:g})")
    for name in sorted(with_ours.keys() - alone.keys(), key=lambda name: -with_ours[name])[:8]:
        print(f"    {with_ours[name]:6.1f}  {name}")
    return 0 if added <= LIMIT_MIB else 1


if __name__ == "__main__":
    sys.exit(main())

"""What the package says of itself."""

from __future__ import annotations

import re
import tomllib

from tests.support import REPO


def _project() -> dict:
    return tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_two_lists_of_pinned_versions_agree() -> None:
    lines = (REPO / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", pin) for pin in pins)
    assert set(_project()["tool"]["uv"]["constraint-dependencies"]) <= set(pins)


def test_every_direct_dependency_is_pinned() -> None:
    project = _project()
    wanted = [*project["project"]["dependencies"]]
    for extra in project["project"]["optional-dependencies"].values():
        wanted += extra
    for group in project["dependency-groups"].values():
        wanted += group
    names = {re.match(r"[A-Za-z0-9._-]+", item)[0].lower().replace("_", "-") for item in wanted} - {"rein-nb"}
    pinned = {
        pin.partition("==")[0].lower().replace("_", "-") for pin in project["tool"]["uv"]["constraint-dependencies"]
    }
    assert names - pinned == set()


def test_the_version_is_told_once_more_and_alike() -> None:
    import rein_nb

    assert _project()["project"]["version"] == rein_nb.__version__

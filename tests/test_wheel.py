"""What is built from the checkout can be installed in an empty environment, and works there.

The newest Python of those that the package is for is always tried; the others where ``REIN_NB_PYTHONS=all`` asks for it (about half a minute each), since each gets an
environment of its own with all dependencies.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest

from tests.support import REPO

pytestmark = pytest.mark.slow

VERSIONS = ("3.11", "3.12", "3.13")

UV = shutil.which("uv")

CONSUMER = '''\
from collections.abc import Iterator

import rein_nb as rn
from rein_nb.testing import ScriptedProvider


@rn.tool
def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


def ask() -> rn.AgentResult:
    call = rn.ToolCall(id="1", name="double", arguments={"n": 21})
    agent = rn.Agent(ScriptedProvider.llm(call, "It is 42."), tools=[double], limits=rn.Limits(turns=4))
    return agent.run("Twice 21?")


def words(llm: rn.LLM) -> Iterator[str]:
    for chunk in llm.stream("hi"):
        if chunk.type == "text":
            yield chunk.text


if __name__ == "__main__":
    result = ask()
    usage: rn.Usage = result.usage
    tokens: int | None = usage.output_tokens
    print(result.text, tokens, [run.result.text for run in result.tool_runs], "".join(words(ScriptedProvider.llm(["a ", "b"]))))
'''


def run(*command: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that must succeed. It sees neither this checkout nor this environment."""
    clean = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    }
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=600, check=False, env=clean | environment,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution."""
    if UV is None:
        pytest.skip("uv is not installed: pip install uv")
    out = tmp_path_factory.mktemp("dist")
    # With the Python that runs the tests: uv would else look for one of its own.
    run(UV, "build", "--quiet", "--python", sys.executable, "--out-dir", out, REPO)
    return out


def only(folder: Path, pattern: str) -> Path:
    """The one file of that name."""
    (found,) = folder.glob(pattern)
    return found


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    names = zipfile.ZipFile(only(built, "*.whl")).namelist()
    assert {name.split("/")[0] for name in names} <= {
        "rein_nb",
        f"{only(built, '*.whl').name.split('-py3')[0]}.dist-info",
    }
    assert "rein_nb/py.typed" in names
    assert {"rein_nb/notebook/static/widget.js", "rein_nb/notebook/static/widget.css"} <= set(names)
    assert {"rein_nb/_notebooks/01_first_light.ipynb", "rein_nb/_notebooks/02_compare.ipynb"} <= set(names)
    sources = {path.relative_to(REPO).as_posix() for path in (REPO / "rein_nb").rglob("*.py")}
    assert sources <= set(names)
    assert not [name for name in names if re.search(r"__pycache__|\.pyc$|/tests?/|\.DS_Store|\.orig$|\.log$", name)]


def test_the_source_distribution_has_what_git_has(built: Path) -> None:
    with tarfile.open(only(built, "*.tar.gz")) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    tracked = run("git", "ls-files", cwd=REPO).stdout.split("\n") if (REPO / ".git").exists() else []
    wanted = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "tests/conftest.py", "docs/conf.py", "notebooks/recordings/make.py"}  # fmt: skip
    assert wanted <= names
    if tracked:
        # What is new and not committed yet may be there as well.
        untracked = set(run("git", "ls-files", "--others", "--exclude-standard", cwd=REPO).stdout.split("\n"))
        assert not {name for name in names if name and name != "PKG-INFO"} - set(tracked) - untracked


def interpreter(version: str) -> str | None:
    """A Python of that version: on the path, or among pyenv's."""
    candidates = [shutil.which(f"python{version}")]
    roots = [os.environ.get("PYENV_ROOT"), *(str(Path.home() / name) for name in (".pyenv",))]
    for root in filter(None, roots):
        candidates += [str(path) for path in sorted(Path(root).glob(f"versions/{version}.*/bin/python"), reverse=True)]
    for candidate in filter(None, candidates):
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.startswith(f"Python {version}."):
            return candidate
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_works_in_an_empty_environment(version: str, built: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        warnings.warn(f"there is no Python {version} on this machine: the wheel is not tried on it", stacklevel=1)
        pytest.skip(f"there is no Python {version} on this machine")
    newest = next(other for other in reversed(VERSIONS) if interpreter(other) is not None)
    if version != newest and os.environ.get("REIN_NB_PYTHONS") != "all":
        pytest.skip(f"Python {version} is tried with REIN_NB_PYTHONS=all")
    assert UV is not None
    run(UV, "venv", "--quiet", "--python", python, tmp_path / "venv")
    inside = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(UV, "pip", "install", "--quiet", "--python", inside / "python", "-c", REPO / "constraints.txt", only(built, "*.whl"))  # fmt: skip
    where = run(inside / "python", "-c", "import rein_nb; print(rein_nb.__file__)", cwd=tmp_path).stdout
    assert where.startswith(str(tmp_path))
    assert run(inside / "rein-nb", "--version", cwd=tmp_path).stdout.startswith("rein-nb ")
    report = run(inside / "rein-nb", "doctor", cwd=tmp_path).stdout
    assert f"Python {version}." in report
    assert 'pip install "rein-nb[local]"' in report
    consumer = tmp_path / "consumer.py"
    consumer.write_text(CONSUMER, encoding="utf-8")
    assert run(inside / "python", consumer, cwd=tmp_path).stdout == "It is 42. 2 ['42'] a b\n"
    if version == newest:
        # The checker of this environment, the types of that one.
        run(sys.executable, "-m", "mypy", "--strict", "--python-executable", inside / "python", "--cache-dir", tmp_path / "cache", consumer, cwd=tmp_path)  # fmt: skip


def test_every_extra_is_explained() -> None:
    import tomllib

    extras = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    page = (REPO / "docs" / "reference" / "extras.md").read_text(encoding="utf-8")
    assert set(re.findall(r"(?m)^\| `(\w+)` \|", page)) == set(extras)
    assert set(re.findall(r"[\w-]+", extras["all"][0].partition("[")[2])) == set(extras) - {"all"}

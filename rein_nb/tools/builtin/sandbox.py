"""bubblewrap: a command that sees one folder and the system's programs, and nothing else.

Inside: the root folder at its own place, writable; the system's programs and libraries and this Python's installation, read-only; an empty
/tmp with the home folder in it; no network, no processes but its own, no environment but what is listed here. Paths are no matter of
checks there: what is not mounted does not exist.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from rein_nb.ir import redact
from rein_nb.ir.redaction import MASK
from rein_nb.tools.builtin.processes import MARK

HOME = "/tmp/home"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")

# Chosen one by one: /etc also holds password hashes and private keys.
_ETC = (
    "alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "fonts", "ssl/certs", "ssl/openssl.cnf",
    "ca-certificates", "pki/tls/certs", "pki/ca-trust", "magic", "locale.alias",
)  # fmt: skip

_KEPT_VARIABLES = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TZ")
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "COOKIE", "AUTH", "SESSION", "DSN")


def search_path() -> str:
    """This Python's programs first, then the system's."""
    return ":".join(
        dict.fromkeys([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"])
    )


def confined_environment() -> dict[str, str]:
    """All that a confined command gets to know of the environment."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {
        "LANG": "C.UTF-8", **kept, "PATH": search_path(), "HOME": HOME, "TMPDIR": "/tmp", "USER": "user", "LOGNAME": "user",
        "TERM": "dumb", "SHELL": "/bin/bash", "PYTHONDONTWRITEBYTECODE": "1", "GIT_TERMINAL_PROMPT": "0",
    }  # fmt: skip


def scrubbed_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what looks like a secret, by name or by value; for commands that are not confined."""
    source = os.environ if environment is None else environment
    kept = {
        name: value
        for name, value in source.items()
        if not any(word in name.upper() for word in _SECRET_WORDS) and MASK not in str(redact(f"{name}={value}"))
    }
    return {**kept, "TERM": "dumb", "GIT_TERMINAL_PROMPT": "0", MARK: uuid.uuid4().hex}


def confined_command(command: list[str], root: Path | None, bwrap: str, *, nested: bool | None = None) -> list[str]:
    """The command line that runs `command` in the sandbox.

    Parameters
    ----------
    command
        Program and arguments.
    root
        The folder that stays writable, absolute and without symbolic links; None for none.
    bwrap
        Path of bubblewrap.
    nested
        Whether user namespaces may be made inside; by default only where bubblewrap cannot forbid it.
    """
    nested = not _can_forbid_nesting(bwrap) if nested is None else nested
    # /proc is read-only too: for a user who is root outside, its files under sys/ would be writable.
    line = [
        bwrap, "--unshare-all", *([] if nested else ["--unshare-user", "--disable-userns"]), "--die-with-parent", "--cap-drop", "ALL",
        "--clearenv", "--hostname", "sandbox", "--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev",
        "--tmpfs", "/tmp", "--dir", HOME, "--dir", "/run", "--dir", "/etc",
    ]  # fmt: skip
    for place in _SYSTEM:
        line += _system_place(place)
    for name in _ETC:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for prefix in _python_places():
        line += ["--ro-bind", prefix, prefix]
    if root is not None:
        line += ["--bind", str(root), str(root), "--chdir", str(root)]
    line += ["--remount-ro", "/"]
    for name, value in confined_environment().items():
        line += ["--setenv", name, value]
    return [*line, "--", *command]


def _system_place(place: str) -> list[str]:
    if os.path.islink(place):  # merged /usr: /bin is a link to usr/bin
        return ["--symlink", os.readlink(place), place]
    return ["--ro-bind", place, place] if os.path.isdir(place) else []


def _python_places() -> list[str]:
    """Where this Python is installed, if that is not among the system's places and holds nobody's home folder."""
    home = Path(os.path.expanduser("~")).resolve()
    found: list[str] = []
    for prefix in dict.fromkeys([sys.base_prefix, sys.prefix]):
        place = Path(prefix).resolve()
        if (
            len(place.parts) < 3
            or place == home
            or place in home.parents
            or any(str(place).startswith(f"{s}/") for s in _SYSTEM)
        ):
            continue
        found.append(str(place))
    return found


@functools.cache
def _can_forbid_nesting(bwrap: str) -> bool:
    return _trial(bwrap, nested=False) is None


@functools.cache
def unavailable_because() -> str | None:
    """Why commands cannot be confined here; None when they can. Tried once, by running a command that does nothing."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return "bubblewrap (bwrap) is not installed"
    return None if _can_forbid_nesting(bwrap) else _trial(bwrap, nested=True)


def _trial(bwrap: str, *, nested: bool) -> str | None:
    line = confined_command(["/bin/sh", "-c", ":"], None, bwrap, nested=nested)
    try:
        tried = subprocess.run(line, env={}, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as exc:
        return f"bubblewrap cannot be run ({type(exc).__name__})"
    if tried.returncode != 0:
        return f"bubblewrap does not work here: {tried.stderr.strip()[:200] or f'exit status {tried.returncode}'}"
    return None

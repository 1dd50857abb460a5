"""A folder that paths cannot leave.

A path is walked component by component from an open descriptor of the root, each step with ``O_NOFOLLOW``, so nothing that is swapped
between a check and its use can lead outside: there is no check apart from the use. Symbolic links are read and resolved here, against the
descriptors walked so far; one that leads out of the root is refused without looking at its target. ``..`` goes back along the walked
descriptors and is never given to the kernel. When another folder has come to stand at the root's path, that one is opened, as long as no
symbolic link leads there.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from rein_nb.tools.builtin.descriptors import DIRECTORY_FLAGS, FILE_FLAGS, Held, open_without_links

MAX_PATH = 4096
MAX_NAME = 255
_MAX_LINKS = 40
_DRIVE = re.compile(r"[A-Za-z]:([\\/]|$)")


class PathRefused(ValueError):
    """A path is malformed or leads out of the folder. The message says nothing about what lies outside."""


class NotAFile(OSError):
    """There is something of that name inside the folder, but it cannot be used as it was asked for."""


def spelled(path: str) -> str:
    """A path below a root, written so that `Root.parts` takes it for one: a name may begin like a home folder or a drive."""
    return f"./{path}" if path.startswith("~") or _DRIVE.match(path) or not path.strip() else path


class Root:
    """A folder, held open.

    Parameters
    ----------
    path
        The folder; made absolute and resolved once, so a later ``chdir`` changes nothing.
    hard_links
        Whether files that have further names (hard links) may be read. Those names may lie outside, so they are refused by default. They
        are never written to.

    Raises
    ------
    NotADirectoryError, FileNotFoundError
        When it is no folder.
    ValueError
        For the root of the whole file system, which confines nothing.
    NotImplementedError
        On systems without ``openat`` (Windows).
    """

    def __init__(self, path: str | os.PathLike[str] = ".", *, hard_links: bool = False) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise NotImplementedError(
                "the file tools confine paths with openat and O_NOFOLLOW, which this system lacks; leave them out with include="
            )
        self.path = Path(os.path.realpath(os.path.expanduser(path)))
        if self.path == Path(self.path.anchor):
            raise ValueError("the root folder must not be the root of the file system: that would confine nothing")
        self.hard_links = hard_links
        self._given = Path(os.path.abspath(os.path.expanduser(path)))
        self._folder = Held(os.open(self.path, DIRECTORY_FLAGS))

    def __repr__(self) -> str:
        return f"Root({str(self.path)!r})"

    def close(self) -> None:
        """Close the descriptor; the root cannot be used afterwards."""
        self._folder.close()

    def _held(self) -> Held:
        """The folder that stands at the path now, open.

        Raises
        ------
        FileNotFoundError
            When there is none any more.
        ValueError
            When the root was closed.
        """
        folder = self._folder
        if not folder.close.alive:
            raise ValueError("this root was closed; make a new one")
        try:
            if os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(folder.descriptor)):
                return folder
            self._folder = Held(open_without_links(self.path))
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            why = "the root folder is gone, or something else stands in its place; make it again"
            raise FileNotFoundError(errno.ENOENT, why, str(self.path)) from None
        return self._folder

    # -- paths ------------------------------------------------------------------------------------

    def parts(self, path: str) -> list[str]:
        """The components of a path below the root, ``..`` taken out by the letter.

        Raises
        ------
        PathRefused
            For a path that is malformed or leads out of the root.
        """
        if not isinstance(path, str) or not path.strip():
            raise PathRefused("a path is needed; '.' is the folder itself")
        if "\0" in path or any(0xD800 <= ord(letter) <= 0xDFFF for letter in path):
            raise PathRefused("a path must not contain NUL or unpaired surrogates")
        if len(path.encode()) > MAX_PATH or any(len(part.encode()) > MAX_NAME for part in path.split("/")):
            raise PathRefused(f"the path is too long (at most {MAX_PATH} bytes, {MAX_NAME} in one name)")
        if path.startswith("~") or _DRIVE.match(path) or "\\" in path:
            raise self._outside(path)
        if path.startswith("/"):
            path = self._below(path)
        out: list[str] = []
        for part in path.split("/"):
            if part in ("", "."):
                continue
            if part != "..":
                out.append(part)
            elif out:
                out.pop()
            else:
                raise self._outside(path)
        return out

    def _below(self, path: str) -> str:
        if not path.startswith("//"):
            for root in (self.path, self._given):
                prefix = f"{root}/"
                if path == str(root) or path.startswith(prefix):
                    return path[len(prefix) :] or "."
        raise self._outside(path)

    @staticmethod
    def _outside(path: str) -> PathRefused:
        shown = path if len(path) <= 80 else path[:77] + "..."
        return PathRefused(f"{shown!r} is not a path inside the folder; paths are relative to it, with / between names")

    # -- walking ----------------------------------------------------------------------------------

    @contextmanager
    def _walk(self, path: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """(descriptor of the folder, last name) with every symbolic link resolved; the name is ``.`` for the root itself.

        The last component may not exist; when it does it is no symbolic link at the moment it was looked at.
        """
        pending = self.parts(path)[::-1]
        root = self._held()  # stays open as long as it is referred to here
        opened: list[int] = []
        links = 0
        try:
            while pending:
                name = pending.pop()
                here = opened[-1] if opened else root.descriptor
                if name == "..":
                    if not opened:
                        raise self._outside(path)
                    os.close(opened.pop())
                    continue
                target = _link_target(name, here)
                if target is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        raise PathRefused(f"{path!r} goes through too many symbolic links")
                    pending += self._link_parts(path, target, opened)[::-1]
                    continue
                if not pending:
                    yield here, name
                    return
                opened.append(self._enter(name, here, path, create))
            # Everything was resolved away: the path is a folder that is open already.
            yield opened[-1] if opened else root.descriptor, "."
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _link_parts(self, path: str, target: str, opened: list[int]) -> list[str]:
        """The components that a link stands for; an absolute one starts again at the root."""
        if target.startswith("/"):
            try:
                below = self._below(target)
            except PathRefused:
                raise self._outside(path) from None
            while opened:
                os.close(opened.pop())
            return [part for part in below.split("/") if part not in ("", ".")]
        return [part for part in target.split("/") if part not in ("", ".")]

    def _enter(self, name: str, here: int, path: str, create: bool) -> int:
        try:
            return os.open(name, DIRECTORY_FLAGS, dir_fd=here)
        except FileNotFoundError:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "there is no such folder", path) from None
        except OSError as exc:
            raise _described(exc, path) from None
        try:
            os.mkdir(name, 0o777, dir_fd=here)
        except FileExistsError:  # somebody else made it in between; opening it says whether it is a folder
            pass
        except OSError as exc:
            raise _described(exc, path, making=True) from None
        try:
            return os.open(name, DIRECTORY_FLAGS, dir_fd=here)
        except OSError as exc:
            raise _described(exc, path) from None

    # -- using ------------------------------------------------------------------------------------

    @contextmanager
    def open_dir(self, path: str = ".") -> Iterator[int]:
        """A descriptor of a folder.

        Raises
        ------
        PathRefused, FileNotFoundError, NotAFile
            When there is no such folder inside.
        """
        with self._walk(path) as (here, name):
            try:
                descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=here)
            except OSError as exc:
                raise _described(exc, path) from None
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    @contextmanager
    def open_file(self, path: str) -> Iterator[IO[bytes]]:
        """A regular file, open for reading.

        Raises
        ------
        PathRefused, FileNotFoundError, NotAFile
            When there is no such file inside, or it is a device, a pipe, a socket, or has further names.
        """
        with self._walk(path) as (here, name), self.open_at(here, name, path) as file:
            yield file

    @contextmanager
    def open_at(self, here: int, name: str, path: str) -> Iterator[IO[bytes]]:
        """As `open_file`, for a name in an open folder; `path` is for messages."""
        # Looked at before it is opened too: opening a device can have effects.
        self._check(_lstat(name, here, path), path)
        try:
            descriptor = os.open(name, os.O_RDONLY | FILE_FLAGS, dir_fd=here)
        except OSError as exc:
            raise _described(exc, path) from None
        with open(descriptor, "rb") as file:
            self._check(os.fstat(file.fileno()), path)
            yield file

    def _check(self, found: os.stat_result, path: str, *, writing: bool = False) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise NotAFile(errno.EISDIR, "is a folder, not a file", path)
        if not stat.S_ISREG(found.st_mode):
            raise NotAFile(errno.EINVAL, "is not a regular file (a link, device, pipe or socket)", path)
        if found.st_nlink > 1 and (writing or not self.hard_links):
            what = "written" if writing else "read"
            raise NotAFile(
                errno.EPERM,
                f"has further names (hard links), which may lie outside the folder, so it is not {what}",
                path,
            )

    def write(self, path: str, data: bytes, *, expect: os.stat_result | None = None) -> bool:
        """Put a whole file in place at once, missing folders included; True when it is a new file.

        The content goes into a new file beside it, which then takes the name: whatever the name stands for at that moment is replaced,
        not written through.

        Parameters
        ----------
        path
            Where.
        data
            The content.
        expect
            The state in which the file was read; raises when it has changed since.

        Raises
        ------
        PathRefused, NotAFile
            When the path leads outside, or there is something that is no plain file.
        """
        with self._walk(path, create=True) as (here, name):
            if name == "." or path.endswith("/"):
                raise NotAFile(errno.EISDIR, "is a folder, not a file", path)
            old = self._existing(here, name, path)
            temporary = f".{secrets.token_hex(8)}.tmp"
            try:
                self._fill(here, temporary, data, old, path)
                if expect is not None and not _same(expect, self._existing(here, name, path)):
                    raise NotAFile(errno.EAGAIN, "was changed by somebody else meanwhile; read it again", path)
                self._put(temporary, name, here, path)
            except BaseException:
                _unlink(temporary, here)
                raise
            return old is None

    @staticmethod
    def _put(temporary: str, name: str, here: int, path: str) -> None:
        try:
            os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
        except OSError as exc:
            raise _described(exc, path) from None

    def _existing(self, here: int, name: str, path: str) -> os.stat_result | None:
        try:
            found = _lstat(name, here, path)
        except FileNotFoundError:
            return None
        self._check(found, path, writing=True)
        # Replacing a file needs no right to write into it; who took that right away wants it to stay as it is.
        if not found.st_mode & 0o222 or not os.access(name, os.W_OK, dir_fd=here):
            whose = "" if found.st_uid == os.geteuid() else ", of another user"
            mode = f"mode {stat.S_IMODE(found.st_mode):04o}{whose}"
            raise NotAFile(errno.EACCES, f"is write-protected ({mode}), so it is not changed", path)
        return found

    @staticmethod
    def _fill(here: int, temporary: str, data: bytes, old: os.stat_result | None, path: str) -> None:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE_FLAGS, 0o666, dir_fd=here)
        except OSError as exc:
            raise _described(exc, path, making=True) from None
        with open(descriptor, "wb") as file:
            if old is not None:
                _keep_owner(file.fileno(), old)
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) & 0o777)
            file.write(data)


def _keep_owner(descriptor: int, old: os.stat_result) -> None:
    now = os.fstat(descriptor)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with suppress(OSError):  # only the administrator gives files away, and in a container not to everybody
            os.fchown(descriptor, old.st_uid, old.st_gid)


def _same(expect: os.stat_result, found: os.stat_result | None) -> bool:
    if found is None:
        return False
    return (expect.st_ino, expect.st_size, expect.st_mtime_ns) == (found.st_ino, found.st_size, found.st_mtime_ns)


def _unlink(name: str, here: int) -> None:
    try:
        os.unlink(name, dir_fd=here)
    except FileNotFoundError:
        return


def _link_target(name: str, here: int) -> str | None:
    """What a symbolic link says; None when the name is none."""
    try:
        return os.readlink(name, dir_fd=here)
    except OSError:  # EINVAL: no link; ENOENT and the rest show up when it is opened
        return None


def _lstat(name: str, here: int, path: str) -> os.stat_result:
    try:
        return os.stat(name, dir_fd=here, follow_symlinks=False)
    except OSError as exc:
        raise _described(exc, path) from None


_WORDS = {
    errno.ENOENT: "there is no such file or folder",
    errno.ENOTDIR: "is not a folder",
    errno.ELOOP: "became a symbolic link while it was opened",
    errno.EACCES: "may not be accessed",
    errno.EPERM: "may not be accessed",
    errno.EISDIR: "is a folder, not a file",
    errno.ENXIO: "is a pipe or socket, not a regular file",
}


def _described(exc: OSError, path: str, *, making: bool = False) -> OSError:
    """The error with the path as it was given: descriptors' messages name only the last component."""
    words = _WORDS.get(exc.errno or 0, exc.strerror or "cannot be opened")
    if making and exc.errno in (errno.EACCES, errno.EPERM):
        words = "cannot be written: its folder is write-protected"
    kind = FileNotFoundError if exc.errno == errno.ENOENT else NotAFile
    return kind(exc.errno or errno.EIO, words, path)

"""Which kind of file system a path is on: SQLite's write-ahead log needs memory shared by all its users."""

from __future__ import annotations

import os
import re
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path

_MOUNT_TABLE = Path("/proc/self/mounts")

_NETWORK = frozenset(
    {"9p", "acfs", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs", "gfs2", "glusterfs", "gpfs"}
    | {"lustre", "macfuse", "mfs", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "osxfuse", "panfs", "pvfs2"}
    | {"smb3", "smbfs", "vboxsf", "virtiofs", "webdav", "weka", "wekafs"}
)
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.ntfs-3g", "fuse.ext4", "fuse.mergerfs"})

_DARWIN_MOUNT = re.compile(r".+? on (?P<point>/.*) \((?P<kind>[^,()]+)[^()]*\)")

_warned: set[tuple[int, str, str]] = set()


class NetworkFileSystemWarning(UserWarning):
    """A store was put on a file system that several machines share."""


class FileMountWarning(UserWarning):
    """A store's file is a mount of its own, so that its log lies elsewhere."""


def warn_if_mounted_alone(path: Path) -> None:
    """Warn, once for each file in each process, when the file itself is a mount point, as in a container."""
    target = os.path.realpath(path)
    seen = (os.getpid(), str(path), "")
    if seen in _warned or all(mount != target for mount, _ in _mounts()):
        return
    _warned.add(seen)
    warnings.warn(
        f"{path} is mounted as a single file: its log {path.name}-wal is not beside the real one, goes with the "
        "container, and nobody outside sees it. Mount the directory instead",
        FileMountWarning,
        stacklevel=5,  # of `SampleStore.open`
    )


def filesystem_type(path: str | os.PathLike[str]) -> str:
    """Return the type of the file system that holds ``path``, as the system names it (``"ext4"``, ``"nfs4"``).

    The path need not exist. Linux is asked by its mount table, macOS by ``mount``; empty on other systems.
    """
    target = os.path.realpath(path)
    best, found = "", ""
    for mount, kind in _mounts():
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):  # the later of equals hides the earlier
            best, found = mount, kind
    return found


def is_network(kind: str) -> bool:
    """Tell whether a file system of this type may be shared by several machines."""
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def warn_of_network(path: Path, kind: str, journal_mode: str) -> None:
    """Warn, once for each file and journal mode in each process, that a store lies on a network file system."""
    seen = (os.getpid(), str(path), journal_mode)
    if seen in _warned:
        return
    _warned.add(seen)
    if journal_mode == "wal":
        how = (
            "the store is in write-ahead-log mode, which works only while all its users are on one machine. It leaves "
            "that mode when it is opened for writing while nobody else has it open"
        )
    else:
        how = (
            "the store uses a rollback journal there, which is slower, has readers and the writer wait for each "
            "other, and relies on that file system's locks"
        )
    warnings.warn(
        f"{path} is on a network file system ({kind}): {how}. Use a local disk, or PostgreSQL "
        "(postgresql+psycopg://HOST/DB) when several machines write",
        NetworkFileSystemWarning,
        stacklevel=5,  # of `SampleStore.open`
    )


def _mounts() -> Iterator[tuple[str, str]]:
    """Yield mount points and the types of their file systems, in the order of mounting."""
    try:
        lines = _MOUNT_TABLE.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        for line in _darwin_mounts().splitlines():
            match = _DARWIN_MOUNT.fullmatch(line)
            if match is not None:
                yield match["point"], match["kind"]
        return
    for line in lines:
        fields = line.split(" ")
        if len(fields) >= 3:
            yield _unescape(fields[1]), fields[2]


def _darwin_mounts() -> str:
    """Return what ``mount`` says on macOS: ``host:/runs on /Volumes/runs (nfs, nodev, nosuid)``."""
    if os.uname().sysname != "Darwin":
        return ""
    try:
        done = subprocess.run(["/sbin/mount"], stdin=subprocess.DEVNULL, capture_output=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(done.stdout)


def _unescape(field: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        field = field.replace(code, character)
    return field

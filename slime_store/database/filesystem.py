"""Which kind of file system a path is on: SQLite's write-ahead log needs memory shared by all its users."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

_MOUNT_TABLE = Path("/proc/self/mounts")

_NETWORK = frozenset(
    {"9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "gfs", "gfs2", "glusterfs", "gpfs", "lustre", "mfs"}
    | {"ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf", "wekafs"}
)
_LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs", "fuse.ntfs-3g", "fuse.ext4", "fuse.mergerfs"})

_warned: set[tuple[int, str]] = set()


class NetworkFileSystemWarning(UserWarning):
    """A store was put on a file system that several machines share."""


def filesystem_type(path: str | os.PathLike[str]) -> str:
    """Return the type of the file system that holds ``path``, as the mount table names it (``"ext4"``, ``"nfs4"``).

    The path need not exist. Empty where there is no mount table to read (other systems than Linux).
    """
    try:
        lines = _MOUNT_TABLE.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    target = os.path.realpath(path)
    best, found = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = _unescape(fields[1])
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):  # the later of equals hides the earlier
            best, found = mount, fields[2]
    return found


def is_network(kind: str) -> bool:
    """Tell whether a file system of this type may be shared by several machines."""
    return kind in _NETWORK or (kind.startswith("fuse.") and kind not in _LOCAL_FUSE)


def warn_if_network(path: Path, kind: str) -> None:
    """Warn, once for each directory in each process, that a store lies on a network file system."""
    seen = (os.getpid(), str(path.parent))
    if is_network(kind) and seen not in _warned:
        _warned.add(seen)
        warnings.warn(
            f"{path} is on a network file system ({kind}): the store uses a rollback journal there, which is slower, "
            "and relies on that file system's locks. Use a local disk, or PostgreSQL "
            "(postgresql+psycopg://HOST/DB) when several machines write",
            NetworkFileSystemWarning,
            stacklevel=4,
        )


def _unescape(field: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        field = field.replace(code, character)
    return field

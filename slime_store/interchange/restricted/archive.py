"""The zip file that ``torch.save`` writes: an uncompressed pickle and one uncompressed record for each storage.

The file is mapped into memory, privately: what is not looked at is not read, tensors are views of the map, and
writing to one changes no file. A file that another process shortens while it is mapped ends this process (SIGBUS), as
with every mapped file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from slime_store.blobs import is_held
from slime_store.database import is_database
from slime_store.errors import InvalidDumpError

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, lengths of name and of extra field
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C.to_bytes(10, "little")  # at the head of what torch wrote before 1.6
_TAR_MAGIC_AT = 257


class TorchArchive:
    """A file of ``torch.save``, mapped.

    Attributes:
        path: for messages.
        size_bytes: of the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Map the file and read its directory.

        Raises:
            InvalidDumpError: not a readable file, or not one that ``torch.save`` writes.
        """
        self.path = os.fspath(path)
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):  # opening a pipe would wait for its other end
                raise InvalidDumpError(self.path, "it is not a regular file")
            if is_held(self.path) or is_database(Path(self.path)):
                raise InvalidDumpError(self.path, "it is part of a database, not a file of torch.save")
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                if status.st_size == 0:
                    raise InvalidDumpError(self.path, "the file is empty (0 bytes)")
                self.size_bytes = status.st_size
                self.buffer = mmap.mmap(file.fileno(), self.size_bytes, access=mmap.ACCESS_COPY)
                self._view = memoryview(self.buffer)
                self._records = self._read_directory(file)
        except OSError as error:
            raise InvalidDumpError(self.path, f"it cannot be read ({error.strerror or error})") from error
        if self._text("byteorder", sys.byteorder) != sys.byteorder:
            raise InvalidDumpError(self.path, "its tensors are in the byte order of another kind of machine")

    def digest(self) -> bytes:
        """Return the SHA-256 of the whole file. To be asked for before anything that the file holds is changed."""
        digest = hashlib.sha256(self._view).digest()
        self._let_go(0, self.size_bytes)
        return digest

    def pickle(self) -> tuple[memoryview, Callable[[int], None]]:
        """Return the bytes of the pickle, checked against their checksum, and a function to let go of the first ones.

        Raises:
            InvalidDumpError: they are damaged, or the file holds none.
        """
        start, size = self.record("data.pkl")
        self._let_go(start, size)
        return self._view[start : start + size], lambda count: self._let_go(start, count)

    def record(self, name: str) -> tuple[int, int]:
        """Return (start, size) of a record in ``buffer``, checked against its checksum.

        Raises:
            InvalidDumpError: there is no such record, or it is damaged.
        """
        info = self._records.get(name)
        if info is None:
            raise InvalidDumpError(self.path, f"it lacks the record {name!r}; it is not a file of torch.save")
        start = self._start_of(info)
        # torch writes 0 where checksums are switched off
        if info.CRC and zlib.crc32(self._view[start : start + info.file_size]) != info.CRC:
            raise InvalidDumpError(self.path, f"the record {name!r} is damaged (its checksum differs)")
        return start, info.file_size

    def _let_go(self, start: int, size: int) -> None:
        """Give the memory of a part back to the system, which reads it again if it is needed again."""
        if hasattr(mmap, "MADV_DONTNEED"):
            first, last = -(-start // mmap.PAGESIZE), (start + size) // mmap.PAGESIZE  # whole pages inside it
            if last > first:
                self.buffer.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)

    def _text(self, name: str, default: str) -> str:
        if name not in self._records:
            return default
        start, size = self.record(name)
        return bytes(self._view[start : start + min(size, 100)]).decode("latin-1").strip()

    def _read_directory(self, file: Any) -> dict[str, zipfile.ZipInfo]:
        head = bytes(self._view[:512])
        if not head.startswith(b"PK\x03\x04"):
            raise InvalidDumpError(self.path, _why_not_zip(head))
        try:
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, ValueError, EOFError, struct.error, NotImplementedError) as error:
            raise InvalidDumpError(self.path, f"it is damaged or cut off ({error})") from None
        records: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            _, _, name = info.filename.partition("/")  # the first part is the name that the file had
            if name in records:
                raise InvalidDumpError(self.path, f"it holds the record {name!r} twice")
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
                raise InvalidDumpError(self.path, f"the record {name!r} is compressed, as torch.save never does it")
            records[name] = info
        if sum(info.file_size for info in infos) > self.size_bytes:
            raise InvalidDumpError(self.path, "its records are larger than the file")
        return records

    def _start_of(self, info: zipfile.ZipInfo) -> int:
        try:
            signature, name_size, extra_size = _LOCAL_HEADER.unpack_from(self._view, max(0, info.header_offset))
        except struct.error:
            signature, name_size, extra_size = b"", 0, 0
        start: int = info.header_offset + _LOCAL_HEADER.size + name_size + extra_size
        if signature != b"PK\x03\x04" or info.header_offset < 0 or start + info.file_size > self.size_bytes:
            raise InvalidDumpError(self.path, f"the record {info.filename!r} lies outside the file")
        return start


def _why_not_zip(head: bytes) -> str:
    advice = "load it with torch in a place where you trust it, and save it again"
    if _LEGACY_MAGIC in head[:32]:
        return f"it is in the format that torch used before 1.6, which only runs as a pickle; {advice}"
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return f"it is in the tar format that torch used before 0.2, which only runs as a pickle; {advice}"
    if head[:1] == b"\x80":
        return f"it is a bare pickle, not a file of torch.save; {advice}"
    return "it is not a file of torch.save"

"""Writes ``assets/schema-NNNN.tar.gz``: a store as the slime_store of that schema wrote it. Needs the history in git.

    python -m tests.migrations.make_assets 0007=COMMIT

A file that is there is never written again: what was released once must be read for ever.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COMMITS = {
    "0001": "8033281",
    "0002": "b2e4ff3",
    "0003": "4f5031c",
    "0004": "2440fd9",
    "0005": "c4150d5",
    "0006": "af4f430",
}
"""For each revision a commit whose newest migration it was, as it is today."""

_FILL = """
import socket, sys
socket.gethostname = lambda: "trainer-0"
from slime_store.blobs import payload
payload.FILE_BYTES = 300  # side files, in a store of a few kilobytes
from slime_store import SampleStore
import old_content
with SampleStore.open(sys.argv[1]) as store:
    old_content.fill(store)
"""


def make(revision: str, commit: str) -> None:
    """Fill a store with the code of a commit, and pack it."""
    target = HERE / "assets" / f"schema-{revision}.tar.gz"
    if target.exists():
        sys.exit(f"{target} is there")
    with tempfile.TemporaryDirectory() as name:
        code, place = Path(name) / "code", Path(name) / "place"
        place.mkdir()
        archive = subprocess.run(
            ["git", "archive", commit], cwd=HERE.parents[1], capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(code)
        (code / "old_content.py").write_bytes((HERE / "old_content.py").read_bytes())
        environment = {**os.environ, "PYTHONPATH": str(code)}
        command = [sys.executable, "-c", _FILL, str(place / "store.db")]
        subprocess.run(command, cwd=code, env=environment, check=True)
        with tarfile.open(target, "x:gz") as tar:
            for path in sorted(place.rglob("*")):
                tar.add(path, path.relative_to(place), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


if __name__ == "__main__":
    for given in sys.argv[1:] or [f"{revision}={commit}" for revision, commit in COMMITS.items()]:
        make(*given.split("="))

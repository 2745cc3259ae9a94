"""What may be fed with any bytes: each decoder, as a function that may raise our own errors and nothing else.

``fuzzing.py`` feeds them under a fuzzer that is guided by coverage. What such runs kept is under ``seeds/``, which
``test_fuzzed.py`` replays.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from slime_store.codecs.arrays import DTYPES, EncodedArray, decode_array
from slime_store.codecs.documents import DocumentDecoder
from slime_store.codecs.registry import codec_ids
from slime_store.errors import BlobMissingError, StoreError
from slime_store.interchange import read_dump
from slime_store.mapping.nesting import nest
from slime_store.mapping.packs import unpack
from tests.interchange.archives import write_archive

SEEDS = Path(__file__).parent / "seeds"
_SCRATCH = tempfile.TemporaryDirectory()


class _Blobs:
    """Gives a few bytes under any name of one hex digit."""

    def get(self, name: str) -> bytes:
        if not isinstance(name, str) or len(name) != 1:
            raise BlobMissingError(str(name))
        return bytes(range(16)) * ord(name)


def codecs(data: bytes) -> None:
    """The first four bytes choose the codec, the dtype and the shape; the rest is the array."""
    if len(data) < 4:
        return
    names = sorted(DTYPES)
    codec = codec_ids()[data[0] % len(codec_ids())]
    decode_array(codec, names[data[1] % len(names)], (data[2], data[3])[: 1 + data[0] % 2], data[4:])


def packs(data: bytes) -> None:
    """A pack's layout, a NUL, the pack."""
    layout, _, content = data.partition(b"\0")
    for codec in ("zstd.1", "bits.1", "raw.1"):
        for dtype in ("uint8", "float32"):
            encoded = EncodedArray(codec, dtype, (), content)
            try:
                for _ in unpack(encoded, layout.decode("utf-8", "replace"), 0):
                    pass
            except StoreError:
                continue


def documents(data: bytes) -> None:
    """A document as a store holds it."""
    text = data.decode("utf-8", "replace")
    DocumentDecoder(_Blobs()).document(text)
    DocumentDecoder(_Blobs()).document(text, only={"a", "n"})


def nestings(data: bytes) -> None:
    """The nesting of a rollout of three samples."""
    nest(data.decode("utf-8", "replace"), [1, 2, 3])


def pickles(data: bytes) -> None:
    """The pickle inside a file of torch.save."""
    read_dump(write_archive(Path(_SCRATCH.name) / "1.pt", data, {"data/0": bytes(64)}))


def files(data: bytes) -> None:
    """A whole file that is to be imported."""
    path = Path(_SCRATCH.name) / "2.pt"
    path.write_bytes(data)
    read_dump(path)


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (codecs, packs, documents, nestings, pickles, files)
}


def run(name: str, data: bytes) -> bool:
    """Feed a decoder; tell whether it took the bytes. Any error but our own comes through."""
    try:
        TARGETS[name](data)
    except StoreError:
        return False
    return True


def seeds(name: str) -> list[bytes]:
    """Return the inputs that are kept for a decoder."""
    return [path.read_bytes() for path in sorted((SEEDS / name).iterdir())]


def write_first_seeds() -> None:
    """Write honest inputs, where a fuzzer begins."""
    import torch
    from PIL import Image

    from slime_store.codecs.arrays import encode_array
    from slime_store.codecs.documents import DocumentEncoder
    from slime_store.mapping.packs import PackBuilder, to_piece
    from slime_store.testing import make_train_output
    from tests.codecs.documents.test_documents import Blobs
    from tests.interchange.archives import dump_of, pickle_in, saved

    found: dict[str, list[bytes]] = {name: [] for name in TARGETS}
    for n, array in enumerate((np.arange(6), np.ones(9, bool), np.linspace(0, 1, 5))):
        encoded = encode_array(array)
        head = [codec_ids().index(encoded.codec_id), sorted(DTYPES).index(encoded.dtype), array.size, 1]
        found["codecs"].append(bytes(head) + encoded.data)
        builder = PackBuilder("tokens")
        piece = to_piece(array.tolist() if n else array, copy=True)
        assert piece is not None
        builder.add(0, piece)
        for pack in getattr(builder, "packs", []) or getattr(builder, "_packs", []):
            found["packs"].append(pack.layout.encode() + b"\0" + pack.encode().data)
    rich: list[Any] = [
        {"a": (1, {2}), "n": float("nan"), 7: 2**70, "b": b"\xff", "t": torch.ones(2).to(torch.bfloat16)},
        {"image": Image.new("P", (3, 2)), "o": np.array(["a", None], object), "s": "\ud83d\0"},
        make_train_output(1, 1, n_tokens=3).samples[0][0],
    ]
    for value in rich:
        found["documents"].append(DocumentEncoder(Blobs(), strict=False).document({"a": value}).encode())
    found["nestings"] = [json.dumps(shape).encode() for shape in ([3], [[1], [2]], [{"$tuple": [1]}, [[2]]])]
    file = saved(Path(_SCRATCH.name) / "3.pt", dump_of(make_train_output(1, 1, n_tokens=3).samples))
    found["pickles"], found["files"] = [pickle_in(file)], [file.read_bytes()]
    for name, each in found.items():
        (SEEDS / name).mkdir(parents=True, exist_ok=True)
        for n, data in enumerate(each):
            (SEEDS / name / f"honest-{n}").write_bytes(data)


if __name__ == "__main__":
    write_first_seeds()

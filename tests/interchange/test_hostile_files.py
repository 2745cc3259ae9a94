"""A dump is a stranger's file: whatever is in it, none of its code runs (case I1)."""

from __future__ import annotations

import contextlib
import copyreg
import functools
import operator
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from slime_store import Sample
from slime_store.errors import InvalidDumpError, UntrustedPickleError
from slime_store.interchange import import_path, load_pt, read_dump
from slime_store.testing import assert_same, make_train_output
from slime_store.testing.contract.opening import run_of
from tests.interchange.archives import dump_of, dumps, pickle_in, records_in, saved, write_archive
from tests.services.commands import invoke


class Calls:
    """Pickles as a call of a function, and what pickle does to the result."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> Any:
        return self.reduced


class InMain:
    """Runs a command when its state is set."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        os.system(state["command"])


def touch(marker: Path) -> str:
    return f"touch {marker}"


def make_main_class() -> Any:
    """Return the class above as one that the file's maker had in a script."""
    InMain.__module__, InMain.__qualname__ = "__main__", "InMain"
    sys.modules["__main__"].InMain = InMain  # type: ignore[attr-defined]
    return InMain


def with_state(marker: Path) -> Any:
    value = make_main_class().__new__(InMain)
    value.__dict__["command"] = touch(marker)
    return value


def hooked_tensor(marker: Path) -> Any:
    """A tensor rebuilt by a function of torch that loads a pickle inside the pickle."""
    return Calls(torch.storage._load_from_bytes, pickle.dumps(Calls(os.system, touch(marker))))


RUNNING = {
    "os.system": lambda marker: Calls(os.system, touch(marker)),
    "subprocess": lambda marker: Calls(subprocess.getoutput, touch(marker)),
    "eval": lambda marker: Calls(eval, f"__import__('os').system({touch(marker)!r})"),
    "exec": lambda marker: Calls(exec, f"import os; os.system({touch(marker)!r})"),
    "open": lambda marker: Calls(open, str(marker), "w"),
    "partial": lambda marker: Calls(functools.partial(os.system, touch(marker))),
    "methodcaller": lambda marker: Calls(operator.methodcaller("touch"), Path(marker)),
    "a function of a class by getattr": lambda marker: Calls(Path.touch, Path(marker)),
    "inside a tuple as a key": lambda marker: {(1, Calls(os.system, touch(marker))): 1},
    "state of a class in __main__": with_state,
    "torch's own loader": hooked_tensor,
    "a default factory": lambda marker: Calls(defaultdict, functools.partial(os.system, touch(marker)), [("a", 1)]),
    "numpy writing a file": lambda marker: Calls(np.save, str(marker), 1),
    "array writing a file": lambda marker: Calls(np.ndarray.tofile, np.arange(3), str(marker)),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what the payloads leave open
@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("shape", RUNNING)
def test_i1_code_in_a_dump_does_not_run(tmp_path: Path, shape: str, protocol: int) -> None:
    marker = tmp_path / "marker"
    file = saved(tmp_path / "1.pt", {"rollout_id": 1, "samples": [], "x": RUNNING[shape](marker)}, protocol)
    for read in (load_pt, read_dump):
        with pytest.raises(UntrustedPickleError, match=r"trust=True.*--trust") as caught:
            read(file)
        assert "." in caught.value.name
    assert not marker.exists() and not Path(f"{marker}.npy").exists()
    if shape != "torch's own loader":  # which newer versions of torch have made harmless
        load_pt_with_trust(file)
        assert marker.exists() or Path(f"{marker}.npy").exists() or shape == "a default factory"  # it would have run


def load_pt_with_trust(file: Path) -> None:
    with contextlib.suppress(InvalidDumpError):
        load_pt(file, trust=True)


def test_i1_a_hostile_dump_is_refused_by_the_store_and_named(store_url: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    content = dump_of(make_train_output(1, 1).samples)
    content["samples"][0]["metadata"]["x"] = Calls(os.system, touch(marker))
    file = saved(tmp_path / "7.pt", content)
    with run_of(store_url) as run:
        (failed,) = import_path(run, file).failed
        assert "posix.system" in failed.reason and "--trust" in failed.reason
        assert run.rollouts() == []
    done = invoke("--store", store_url, "import", str(file), "--run", "contract")
    assert done.exit_code == 1 and "posix.system" in done.stderr and "--trust" in done.stderr
    assert not marker.exists()
    done = invoke("--store", store_url, "import", str(file), "--run", "contract", "--trust")
    assert done.exit_code == 0 and marker.exists()


# -- pickles that no pickler writes ------------------------------------------------------------------

MARK, STOP, PROTO = b"(", b".", b"\x80\x02"


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def named(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def called(module: str, name: str, *args: bytes) -> bytes:
    return named(module, name) + MARK + b"".join(args) + b"tR"


ORDERED = called("collections", "OrderedDict")
STORAGE = MARK + text("storage") + named("torch", "FloatStorage") + text("0") + text("cpu") + b"K\x02tQ"
TENSOR = called("torch._utils", "_rebuild_tensor_v2", STORAGE, b"K\x00", b"K\x02\x85", b"K\x01\x85", b"\x89", ORDERED)
PLAIN_DTYPE = called("numpy", "dtype", text("V8"), b"\x89", b"\x88")
OBJECT_DTYPE = called("numpy", "dtype", text("O8"), b"\x89", b"\x88")
OBJECT_STATE = MARK + b"K\x03" + text("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K?tb"


LONG_INTEGER = b"\x8b\x00\x00\x04\x00" + b"\x7f" * (1 << 18)
MANY = MARK + b"K\x01" * 65 + b"t"


def array_of(dtype: bytes, content: bytes, shape: bytes = b"K\x01\x85") -> bytes:
    shell = called("numpy._core.multiarray", "_reconstruct", named("numpy", "ndarray"), b"K\x00\x85", b"C\x01b")
    return shell + MARK + b"K\x01" + shape + dtype + b"\x89" + content + b"tb"


def fields_of_objects() -> bytes:
    """A dtype of one field of objects, with flags that say it has none: eight raw bytes would become a pointer."""
    field = MARK + OBJECT_DTYPE + OBJECT_STATE + b"K\x00t"
    fields = b"}" + text("a") + field + b"s"
    return PLAIN_DTYPE + MARK + b"K\x03" + text("|") + b"N" + text("a") + b"\x85" + fields + b"K\x08K\x01K\x00tb"


FORGED: dict[str, bytes] = {
    "INST": MARK + text("touch marker") + b"iposix\nsystem\n",
    "OBJ": MARK + named("posix", "system") + text("touch marker") + b"o",
    "EXT1": b"\x82\x01" + MARK + text("touch marker") + b"tR",
    "NEWOBJ_EX": named("collections", "OrderedDict") + b")}\x92",
    "DUP": b"]2",
    "PERSID": b"P/etc/passwd\n",
    "a persistent id that is text": text("/etc/passwd") + b"Q",
    "a persistent id of another kind": MARK + text("module") + text("os") + b"tQ",
    "a persistent id with a path": STORAGE.replace(text("0"), text("../../../etc/passwd")),
    "a storage larger than its record": STORAGE.replace(b"K\x02tQ", b"K\x03tQ"),
    "a storage of a negative size": STORAGE.replace(b"K\x02tQ", b"J\xfe\xff\xff\xfftQ"),
    "a tensor beyond its storage": TENSOR.replace(b"K\x02\x85", b"K\x03\x85"),
    "a tensor with a negative stride": TENSOR.replace(b"K\x01\x85", b"J\xff\xff\xff\xff\x85"),
    "a tensor of terabytes": TENSOR.replace(b"K\x02\x85", b"J\xff\xff\xff\x7f\x85").replace(b"K\x01\x85", b"K\x00\x85"),
    "BUILD of a tensor": TENSOR + MARK + STORAGE + b"K\x00)}tb",
    "BUILD of a class": named("collections", "OrderedDict") + b"N}" + text("items") + b"Ns\x86b",
    "BUILD of a class by __dict__": named("fractions", "Fraction") + b"}" + text("__eq__") + b"Nsb",
    "BUILD of a dtype": named("torch", "float32") + b"}b",
    "BUILD of a list": b"]}" + text("append") + b"Nsb",
    "BUILD of an OrderedDict": ORDERED + b"}" + text("items") + b"Nsb",
    "BUILD twice": called("types", "SimpleNamespace") + b"}b}b",
    "attributes with underscores": called("types", "SimpleNamespace") + b"}" + text("__class__") + b"Nsb",
    "a sample's class": called("slime.utils.types", "Sample") + b"}" + text("__setstate__") + b"Nsb",
    "a sample without state": called("slime.utils.types", "Sample"),
    "items for a class": named("collections", "deque") + MARK + b"K\x01e",
    "items for a datetime": called("datetime", "timedelta") + MARK + b"K\x01e",
    "a class as a value": named("uuid", "UUID"),
    "getattr of a value": called("__builtin__", "getattr", text("a"), text("upper")),
    "getattr of an allowed class": called("__builtin__", "getattr", named("uuid", "UUID"), text("__init__")),
    "bytes in another encoding": called("_codecs", "encode", text("a"), text("zlib_codec")),
    "bytearray of a size": called("__builtin__", "bytearray", b"J\xff\xff\xff\x7f"),
    "a factory that is no type": called("collections", "defaultdict", named("torch", "float32")),
    "a time zone outside its directory": called(
        "__builtin__", "getattr", named("zoneinfo", "ZoneInfo"), text("_unpickle")
    )
    + MARK
    + text("../../../etc/passwd")
    + b"\x88tR",
    "a fraction of long integers": called("fractions", "Fraction", LONG_INTEGER, LONG_INTEGER),
    "a range of long integers": called("__builtin__", "xrange", b"K\x00", LONG_INTEGER, b"K\x03"),
    "a duration of long integers": called("datetime", "timedelta", b"K\x00", b"K\x00", LONG_INTEGER),
    "a tensor of 65 dimensions": TENSOR.replace(b"K\x02\x85", MANY).replace(b"K\x01\x85", MANY),
    "a sparse tensor of 65 dimensions": called(
        "torch._utils", "_rebuild_sparse_tensor", text("sparse_coo"), MARK + TENSOR + TENSOR + MANY + b"t"
    ),
    "a torch.Size of 65 dimensions": called("torch", "Size", MANY),
    "an array of 65 dimensions": array_of(PLAIN_DTYPE + OBJECT_STATE, b"C\x01A", MANY),
    "a number with an exponent": called("fractions", "Fraction", text("1e999999999")),
    "raw bytes as objects": array_of(fields_of_objects(), b"C\x08" + b"\x41" * 8),
    "objects from bytes": array_of(OBJECT_DTYPE + OBJECT_STATE, b"C\x08" + b"\x41" * 8),
    "a dtype of code": called("numpy", "dtype", text("O,O"), b"\x89", b"\x88") + OBJECT_STATE,
    "an array of another size": array_of(PLAIN_DTYPE + OBJECT_STATE, b"C\x08" + b"A" * 8, b"K\x02\x85"),
    "an image of another size": named("PIL.Image", "Image")
    + b")\x81]("
    + b"}"
    + text("RGB")
    + b"K\x02K\x02\x86N"
    + b"C\x01a"
    + b"eb",
    "an image that is no image": called("PIL.Image", "Image", text("/etc/passwd")),
    "a memo index of four billion": b"]r\xff\xff\xff\xff",
    "text beyond the end": b"X\xff\xff\xff\xff",
    "bytes beyond the end": b"\x8e" + b"\xff" * 8,
    "a name without end": b"cos",
    "a value more than there are": b"0",
    "a cycle through a call": b"]q\x00" + named("__builtin__", "set") + b"h\x00\x85R" + b"q\x01ah\x01",
}


@pytest.mark.parametrize("shape", FORGED)
def test_i1_a_forged_pickle_is_refused(tmp_path: Path, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copyreg.add_extension("posix", "system", 1)
    try:
        with pytest.raises(InvalidDumpError, match=r"pickle|damaged|refers|lacks"):
            load_pt(write_archive(tmp_path / "1.pt", PROTO + FORGED[shape] + STOP, {"data/0": bytes(8)}))
    finally:
        copyreg.remove_extension("posix", "system", 1)
    assert {path.name for path in tmp_path.iterdir()} == {"1.pt"}
    assert OrderedDict(a=1).items() and hasattr(OrderedDict, "items")  # nothing of ours was changed


def test_i1_the_forged_parts_load_where_nothing_is_wrong_with_them(tmp_path: Path) -> None:
    value = load_pt(write_archive(tmp_path / "1.pt", PROTO + TENSOR + STOP, {"data/0": struct.pack("<2f", 1.5, 2.5)}))
    assert torch.equal(value, torch.tensor([1.5, 2.5]))
    objects = array_of(OBJECT_DTYPE + OBJECT_STATE, b"](K\x07e")
    assert load_pt(write_archive(tmp_path / "2.pt", PROTO + objects + STOP)).tolist() == [7]


def test_i1_hooks_of_a_tensor_are_not_kept(tmp_path: Path) -> None:
    hooks = ORDERED + text("hook") + called("collections", "Counter") + b"s"
    data = called("torch._utils", "_rebuild_tensor_v2", STORAGE, b"K\x00", b"K\x02\x85", b"K\x01\x85", b"\x88", hooks)
    value = load_pt(write_archive(tmp_path / "1.pt", PROTO + data + STOP, {"data/0": bytes(8)}))
    assert type(value) is torch.Tensor and not value.requires_grad and value._backward_hooks is None


@pytest.mark.parametrize("depth", [64, 20_000])
def test_i1_sharing_and_nesting_without_bounds_are_refused(tmp_path: Path, depth: int) -> None:
    doubled = b"]" + b"K\x01a" * 1000 + b"".join(b"q\x00](h\x00h\x00e" for _ in range(depth))
    nested = b"(" * depth + b"t" * depth
    for data in (doubled, nested) if depth > 64 else (doubled,):
        with pytest.raises(InvalidDumpError, match=r"more values|too deeply"):
            load_pt(write_archive(tmp_path / "1.pt", PROTO + data + STOP))


BOMBS: dict[str, Any] = {
    "one text in many places": lambda: ["x" * 100_000] * 100_000,
    "one text in many samples": lambda: [{"response": text} for text in ["x" * 100_000] for _ in range(10_000)],
    "one array in many places": lambda: [[array] for array in [np.zeros(100_000)] for _ in range(10_000)],
    "tensors that repeat one element": lambda: [torch.tensor([float(i)]).expand(1 << 27) for i in range(8)],
}


@pytest.mark.parametrize("name", BOMBS)
def test_i1_a_small_file_does_not_stand_for_more_than_a_store_holds(name: str, tmp_path: Path) -> None:
    file = saved(tmp_path / "1.pt", {"samples": BOMBS[name]()})
    with pytest.raises(InvalidDumpError, match="more values than a file of its size"):
        load_pt(file)


SHARED_BYTES = 200_000
GET = [b"h" + bytes([n]) for n in range(4)]


def kept(value: bytes, number: int) -> bytes:
    """Put a value into the memo."""
    return value + b"q" + bytes([number]) + b"0"


LATIN = kept(text("x" * SHARED_BYTES), 0)
RAW = kept(b"B" + struct.pack("<I", SHARED_BYTES) + b"x" * SHARED_BYTES, 0)
LONG = kept(b"\x8b" + struct.pack("<I", SHARED_BYTES) + b"\x7f" * SHARED_BYTES, 0)
NUMBERS = kept(b"](" + b"".join(b"M" + struct.pack("<H", n) for n in range(20_000)) + b"e", 0)
PAIRS = kept(b"}(" + b"".join(b"M" + struct.pack("<H", n) + b"N" for n in range(20_000)) + b"u", 0)
PIXELS = b"J" + struct.pack("<i", 1000) + b"J" + struct.pack("<i", SHARED_BYTES // 1000) + b"\x86"
IMAGE = RAW + kept(b"](}" + text("L") + PIXELS + b"Nh\x00e", 2)
PARTS: dict[str, tuple[bytes, bytes, bytes]] = {  # what comes before, a name, what is done with it many times
    "bytearrays of the same bytes": (RAW, named("builtins", "bytearray"), GET[1] + GET[0] + b"\x85R"),
    "bytes of the same text": (LATIN + kept(text("latin1"), 2), named("_codecs", "encode"), b"h\x01h\x00h\x02\x86R"),
    "arrays of the same bytes": (
        RAW,
        named("array", "_array_reconstructor"),
        b"h\x01(" + named("array", "array") + text("B") + b"K\x00h\x00tR",
    ),
    "images of the same pixels": (IMAGE, named("PIL.Image", "Image"), b"h\x01)\x81h\x02b"),
    "decimals of the same digits": (
        kept(text("7" * SHARED_BYTES), 0),
        named("decimal", "Decimal"),
        b"h\x01h\x00\x85R",
    ),
    "paths of the same name": (LATIN, named("pathlib", "PurePosixPath"), b"h\x01h\x00\x85R"),
    "exceptions of the same text": (LATIN, named("builtins", "ValueError"), b"h\x01h\x00\x85R"),
    "namespaces of the same text": (LATIN, named("types", "SimpleNamespace"), b"h\x01)R}" + text("a") + b"h\x00sb"),
    "sets of the same numbers": (NUMBERS, named("builtins", "set"), b"h\x01h\x00\x85R"),
    "counters of the same numbers": (PAIRS, named("collections", "Counter"), b"h\x01h\x00\x85R"),
    "deques of the same numbers": (NUMBERS, named("collections", "deque"), b"h\x01h\x00\x85R"),
    "ordered dicts of the same key": (LATIN, named("collections", "OrderedDict"), b"h\x01)Rh\x00Ns"),
    "dicts of the same key": (LATIN, b"N", b"}h\x00Ns"),
    "the same long integer": (LONG, b"N", b"h\x00"),
    "ranges of the same long integer": (LONG, named("builtins", "range"), b"h\x01h\x00\x85R"),
    "the same list of empty lists": (kept(b"](" + b"]" * 10_000 + b"e", 0), b"N", b"h\x00"),
}


@pytest.mark.parametrize("what", PARTS)
def test_i1_whatever_is_made_of_what_is_shared_counts(what: str, tmp_path: Path) -> None:
    before, name, often = PARTS[what]
    data = PROTO + before + kept(name, 1) + b"}" + text("samples") + b"](" + often * 3000 + b"es" + STOP
    file = write_archive(tmp_path / "1.pt", data)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidDumpError, match=r"more values than a file of its size|integers that are too long"):
            load_pt(file)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000 + 250 * file.stat().st_size
    finally:
        tracemalloc.stop()


def test_i1_tensors_of_a_record_that_is_not_aligned_share_one_copy(tmp_path: Path) -> None:
    tensor = TENSOR.replace(b"K\x02tQ", b"J" + struct.pack("<i", 250_000) + b"tQ")
    for n in range(0, 16, 5):
        file = write_archive(
            tmp_path / "1.pt", PROTO + b"(" + tensor * 30 + b"t" + STOP, {"x" * n: b"", "data/0": bytes(1_000_000)}
        )
        loaded = load_pt(file)
        assert len({each.untyped_storage().data_ptr() for each in loaded}) == 1 and loaded[0].tolist() == [0, 0]


def test_i1_honest_values_of_every_kind_are_not_too_many(tmp_path: Path) -> None:
    shared = np.arange(5000)
    values: list[Any] = [
        [OrderedDict() for _ in range(500)],
        [defaultdict(list) for _ in range(500)],
        [set(range(n % 50)) for n in range(100)],
        set(range(5000)),
        [Image.new("1", (999, 99)) for _ in range(9)],
        [bytearray(1000) for _ in range(90)],
        [{"image": shared, "again": [shared, shared[:10]]} for _ in range(200)],
        [10**3000 + n for n in range(30)],
        [whole[n:] for whole in [torch.arange(50_000)] for n in range(40)],
    ]
    for protocol in (2, 5):
        for value in values:
            assert_same(load_pt(saved(tmp_path / "1.pt", value, protocol)), value)


def test_i1_what_a_group_shares_and_a_tensor_repeats_is_no_bomb(tmp_path: Path) -> None:
    position_ids, image = torch.arange(1000).expand(3, 1000), torch.ones(1000)
    group = [{"prompt": "x" * 1000, "positions": position_ids, "image": image} for _ in range(64)]
    assert_same(load_pt(saved(tmp_path / "1.pt", {"samples": group}))["samples"], group)


def chain(first: int, bottom: bytes = b"K\x01\x85", level: bytes = b"h%c\x86") -> bytes:
    """Put a tuple of eighty levels onto the stack, each of which holds the one below twice, and all into the memo."""
    levels = (level.replace(b"%c", bytes([n])) + b"q" + bytes([n + 1]) for n in range(first, first + 80))
    return bottom + b"q" + bytes([first]) + b"".join(levels)


def frozen(first: int) -> bytes:
    """The same of frozensets, ``{below, (below,)}``."""
    return chain(first, b"(\x91", b"0(h%ch%c\x85\x91")


TUPLES = chain(0)
KEYS: dict[str, bytes] = {
    "a key": b"}" + TUPLES + b"Ns",
    "keys": b"}(K\x01N" + TUPLES + b"Nu",
    "a key twice": b"}(" + TUPLES + b"N" + chain(100) + b"Nu",
    "a key inside a key": b"}" + TUPLES + b"\x85K\x01\x86Ns",
    "an element": b"\x8f(" + TUPLES + b"\x90",
    "an element of a frozenset": b"(" + TUPLES + b"\x91",
    "frozensets in frozensets, twice": b"}(" + frozen(0) + b"N" + frozen(100) + b"Nu",
    "an element of a set that is called": named("builtins", "set") + b"](" + TUPLES + b"e\x85R",
    "an element of a frozenset that is called": named("builtins", "frozenset") + b"](" + TUPLES + b"e\x85R",
    "a key of an OrderedDict": ORDERED + TUPLES + b"Ns",
    "a key of a Counter": named("collections", "Counter") + b"}" + TUPLES + b"Ns\x85R",
    "a key of slices": b"}" + named("builtins", "slice") + b"(" + TUPLES + b"NNtRNs",
    "one large key many times": b"(" + b"K\x01" * 1000 + b"tq\x000}(" + b"h\x00N" * 3000 + b"u",
    "one long integer many times": LONG + b"}(" + b"h\x00N" * 3000 + b"u",
}


@pytest.mark.parametrize("what", KEYS)
def test_i1_keys_are_not_hashed_for_longer_than_the_file_is_long(what: str, tmp_path: Path) -> None:
    file = write_archive(tmp_path / "1.pt", b"\x80\x04" + KEYS[what] + STOP)
    with pytest.raises(InvalidDumpError, match="more values than a file of its size"):
        load_pt(file)


# -- zip files ---------------------------------------------------------------------------------------


def rewritten(file: Path, name: str, content: bytes, **options: Any) -> Path:
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, content, **options)
    return file


@pytest.fixture
def honest(tmp_path: Path) -> Path:
    return saved(tmp_path / "1.pt", {"a": torch.arange(4)})


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_i1_a_record_that_is_there_twice_or_compressed_is_refused(honest: Path, tmp_path: Path) -> None:
    data, records = pickle_in(honest), records_in(honest)
    with pytest.raises(InvalidDumpError, match="twice"):
        load_pt(rewritten(write_archive(tmp_path / "2.pt", data, records), "archive/data.pkl", b"x"))
    with pytest.raises(InvalidDumpError, match="twice"):
        load_pt(rewritten(write_archive(tmp_path / "3.pt", data, records), "other/data.pkl", b"x"))
    bomb = rewritten(
        write_archive(tmp_path / "4.pt", data), "archive/data/0", bytes(10_000), compress_type=zipfile.ZIP_DEFLATED
    )
    with pytest.raises(InvalidDumpError, match="compressed"):
        load_pt(bomb)


def test_i1_names_with_paths_write_nothing(honest: Path, tmp_path: Path) -> None:
    rewritten(honest, "../../evil.txt", b"x")
    rewritten(honest, "/tmp/evil.txt", b"x")
    assert torch.equal(load_pt(honest)["a"], torch.arange(4))
    assert [path.name for path in tmp_path.iterdir()] == ["1.pt"]


def test_i1_a_damaged_or_cut_file_is_refused(honest: Path, tmp_path: Path) -> None:
    content = honest.read_bytes()
    at = content.index(torch.arange(4).numpy().tobytes())
    for what, data in {
        "checksum differs": content[:at] + b"\xff" + content[at + 1 :],
        "damaged or cut off": content[: len(content) // 2],
        "not a file of torch.save": b"hello",
        "0 bytes": b"",
        "bare pickle": pickle.dumps({"samples": []}),
    }.items():
        (tmp_path / "2.pt").write_bytes(data)
        with pytest.raises(InvalidDumpError, match=what):
            load_pt(tmp_path / "2.pt")
    for missing in (tmp_path / "3.pt", tmp_path):
        with pytest.raises(InvalidDumpError, match=r"read|regular"):
            load_pt(missing)


def test_i1_the_older_formats_of_torch_are_refused_by_name(tmp_path: Path) -> None:
    torch.save({"samples": []}, tmp_path / "1.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(InvalidDumpError, match=r"before 1\.6"):
        load_pt(tmp_path / "1.pt")
    tar = b"storages".ljust(257, b"\0") + b"ustar".ljust(300, b"\0")
    (tmp_path / "2.pt").write_bytes(tar)
    with pytest.raises(InvalidDumpError, match=r"before 0\.2"):
        load_pt(tmp_path / "2.pt")


def test_i1_nothing_is_imported_because_a_file_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("evil_module", "PIL.EvilImagePlugin"):
        data = PROTO + named(name, "Evil") + b")\x81}b" + STOP
        with pytest.raises(InvalidDumpError):
            load_pt(write_archive(tmp_path / "1.pt", data))
    assert "evil_module" not in sys.modules


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("text", ["S0", "U0"])
def test_a_dtype_that_repeats_what_has_no_bytes_is_refused(tmp_path: Path, text: str, shape: tuple[int, ...]) -> None:
    reader = np.array(0).__reduce__()[0].__module__
    dtype = np.dtype((np.dtype([("a", text)]), (1 << 24,)))
    whole = Calls(sys.modules[reader].scalar, dtype, b"")  # type: ignore[attr-defined]
    if shape:
        whole = Calls(sys.modules[reader]._reconstruct, np.ndarray, (0,), b"b", state=(1, shape, dtype, False, b""))  # type: ignore[attr-defined]
    file = write_archive(tmp_path / "1.pt", pickle.dumps({"samples": [whole]}, 2), {})
    with pytest.raises(InvalidDumpError, match="without bytes"):
        load_pt(file)


@pytest.mark.parametrize("character", ["\0", "\ud800", "\U0001f600", "\x1f"], ids=["nul", "lone", "astral", "control"])
def test_i1_a_text_counts_by_what_it_takes_when_it_is_written(character: str, tmp_path: Path) -> None:
    def shared(one: str) -> Path:
        raw = (one * 20_000).encode("utf-8", "surrogatepass")
        data = b"}" + text("samples") + b"](X" + struct.pack("<I", len(raw)) + raw + b"q\x01" + b"h\x01" * 500 + b"es"
        return write_archive(tmp_path / "1.pt", PROTO + data + STOP)

    assert len(load_pt(shared("x"))["samples"]) == 501
    with pytest.raises(InvalidDumpError, match="more values than a file of its size"):
        load_pt(shared(character))


@pytest.mark.parametrize("how", ["flat", "nested", "lists"])
def test_i1_a_small_file_does_not_make_very_many_samples(how: str, tmp_path: Path) -> None:
    one = {"flat": b"}", "nested": b"](" + b"}" * 20 + b"e", "lists": b"]"}[how]
    data = kept(one, 1) + b"}" + text("samples") + b"](" + b"h\x01" * 20_000 + b"es"
    with pytest.raises(InvalidDumpError, match="more samples than a file of its size"):
        read_dump(write_archive(tmp_path / "1.pt", PROTO + data + STOP))


def test_i1_samples_as_slime_writes_them_are_never_too_many(tmp_path: Path) -> None:
    first = Sample().to_dict()
    samples = [{**first, "status": "pending", "index": i} for i in range(9_000)]
    file = write_archive(tmp_path / "1.pt", dumps({"rollout_id": 1, "samples": samples}))
    assert len(read_dump(file).output.samples) == 9_000
    assert file.stat().st_size > 3 * 20 * 9_000  # what the limit asks for, in lists of lists

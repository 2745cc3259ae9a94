"""What honest files hold comes back as torch itself would give it, without running their pickles."""

from __future__ import annotations

import datetime as dt
import io
import types
import uuid
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from slime_store.codecs.framed_image import FramedImage
from slime_store.interchange import load_pt
from slime_store.testing import assert_same, strategies
from slime_store.types import Record, Sample
from tests.interchange.archives import loaded_by_torch, saved


def opened(form: str, mode: str = "RGB", **options: Any) -> Image.Image:
    """Return an image as PIL opens it from a file."""
    file = io.BytesIO()
    Image.linear_gradient("L").resize((4, 3)).convert(mode).save(file, form, **options)
    image = Image.open(io.BytesIO(file.getvalue()))
    image.load()
    return image


def text_chunks() -> PngInfo:
    chunks = PngInfo()
    chunks.add_itxt("title", "Größe", "de", "Titel")
    return chunks


HONEST: dict[str, Any] = {
    "times": [
        dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.timezone.utc),
        dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
        dt.datetime(2026, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=-3), "here")),
        dt.date(2026, 1, 2),
        dt.time(1, 2, 3),
        dt.timedelta(1, 2, 3),
    ],
    "numbers": [Decimal("1.50"), Fraction(-1, 3), Fraction(4), 2**70, -(2**63), 1 + 2j, True, float("nan"), -0.0],
    "bytes": [b"\xff\x00", b"", bytearray(b"x"), bytearray(), array("d", [0.5]), array("H"), array("q", [-1])],
    "ranges": [range(1, 9, 2), slice(None, 3), ...],
    "containers": [
        {1, "a"},
        frozenset([1]),
        OrderedDict(b=1, a=[2]),
        defaultdict(list, {(1, 2): [3]}),
        defaultdict(None, {}),
        deque([1, 2], 3),
        Counter("abb"),
        types.SimpleNamespace(a=[1]),
    ],
    "names": [uuid.UUID(int=7), Path("/data/a.mp4"), PureWindowsPath("c:/x"), ValueError("bad", 3)],
    "keys": {Path("a"): 1, np.int64(3): 2, (1, Decimal(2)): 3, None: 4, uuid.UUID(int=1): 5},
    "arrays": [
        np.arange(6, dtype=np.int32).reshape(2, 3).T,
        np.array(["a", None, 3], object),
        np.array([[1.5, 2.5]], ">f4"),
        np.zeros(2, [("a", "<i4"), ("b", ">f8", (2,)), ("c", "U3")]),
        np.zeros(1, np.dtype([("a", "u1"), ("b", "f8")], align=True)),
        np.array(["2026-01-02", "NaT"], "M8[25s]"),
        np.array([], np.float16),
        np.zeros((0, 3), bool),
        np.array("x"),
        np.array([b"ab", b""]),
    ],
    "scalars": [np.float32(0.1), np.int64(2**40), np.bool_(True), np.str_("x"), np.str_(""), np.bytes_(b"x")],
    "times of numpy": [np.datetime64("2026-01-02"), np.timedelta64(3, "ms"), np.complex64(1j), np.dtype("<f4")],
    "tensors": [
        torch.arange(6.0).reshape(2, 3).T,
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2).to(torch.float8_e4m3fn),
        torch.ones(3, dtype=torch.uint16),
        torch.empty(0, 3),
        torch.tensor(7),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.zeros(1).expand(4),
        torch.ones(2, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
        torch.eye(2).to_sparse(),
        torch.Size([1, 2]),
        torch.bfloat16,
        torch.device("cpu"),
    ],
    "images": [
        opened("PNG"),
        opened("PNG", pnginfo=text_chunks()),
        opened("PNG", "P"),
        opened("JPEG"),
        opened("TIFF", dpi=(72.5, 72)),
        Image.new("1", (9, 2), 1),
        Image.new("I;16", (2, 2), 40000),
        FramedImage([Image.new("L", (2, 2), n) for n in range(3)], 1, "GIF"),
    ],
    "empty images": [Image.new("RGB", (0, 3)), Image.new("P", (2, 0))],
    "samples": [
        Sample(tokens=[1], status=Sample.Status.ABORTED, metadata={"nested": Sample("x")}),
        Sample.Status.FAILED,
        Sample.SpecInfo(1, 2, 3, 4),
        Record("miles.utils.types:AdapterRef", "dataclass", {"name": "a", "slot": 3}),
    ],
}


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("kind", HONEST)
def test_i1_honest_values_come_back_as_torch_gives_them(tmp_path: Path, kind: str, protocol: int) -> None:
    file = saved(tmp_path / "1.pt", {"value": HONEST[kind], "again": HONEST[kind]}, protocol)
    loaded = load_pt(file)
    expected = loaded_by_torch(file)
    assert_same(loaded, expected, sample_types=False)
    assert loaded["value"] is loaded["again"] or protocol < 0
    if kind == "images":
        assert [each.format for each in loaded["value"]] == [each.format for each in HONEST[kind]]


@given(value=strategies.documents(), protocol=st.sampled_from([2, 3, 4, 5]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_value_that_the_store_keeps_comes_back_as_torch_gives_it(tmp_path: Path, value: Any, protocol: int) -> None:
    file = saved(tmp_path / "1.pt", [value, {"again": value}], protocol)
    loaded = load_pt(file)
    try:
        assert_same(loaded, loaded_by_torch(file))
    except pytest.skip.Exception:
        assume(False)


@pytest.mark.filterwarnings("ignore:Sparse (CSR|CSC|BSR|BSC) tensor support")
@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_compressed_sparse_tensors_come_back(tmp_path: Path, layout: str) -> None:
    block = ((1, 1),) if layout.startswith("b") else ()
    value = getattr(torch.eye(2), f"to_sparse_{layout}")(*block)
    assert_same(load_pt(saved(tmp_path / "1.pt", value)), value)


def test_shared_storages_stay_shared_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    base = torch.arange(1000)
    file = saved(tmp_path / "1.pt", [base[:10], base[5:20], base.view(10, 100)])
    before = file.read_bytes()
    head, middle, whole = load_pt(file)
    assert torch.equal(whole, base.view(10, 100))
    middle[0] = -1
    assert head[5] == -1 and whole[0, 5] == -1
    assert file.read_bytes() == before


@pytest.mark.skipif(not hasattr(torch.serialization, "set_crc32_options"), reason="torch always writes checksums here")
def test_a_file_without_checksums_is_read(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        file = saved(tmp_path / "1.pt", {"a": torch.arange(3)})
    finally:
        torch.serialization.set_crc32_options(True)
    assert torch.equal(load_pt(file)["a"], torch.arange(3))


def test_values_that_refer_to_themselves_come_back_where_python_can_make_them(tmp_path: Path) -> None:
    value: list[Any] = [1]
    value.append({"self": value})
    loaded = load_pt(saved(tmp_path / "1.pt", value))
    assert loaded[1]["self"] is loaded

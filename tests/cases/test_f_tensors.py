"""Section F of the cases: tensors and token arrays, through the public door, on both databases."""

from __future__ import annotations

import pickle
import re
import sqlite3
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sqlalchemy import Engine, LargeBinary, MetaData, create_engine, event, select
from sqlalchemy.pool import Pool

from slime_store import RolloutFnTrainOutput, Sample, SampleFilter, SampleStore
from slime_store.testing import assert_same, make_sample
from slime_store.testing.contract.opening import loaded_train, opened, run_of
from tests.cases.children import in_a_new_process

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # of the tensors that the tests make

DTYPES = [
    name
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
    if isinstance(getattr(torch, name, None), torch.dtype)
]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda t: t,
    "large": lambda t: t.repeat(100, 1),  # more than what a document keeps inside
    "transposed": lambda t: t.t(),
    "strided": lambda t: t[:, 1:5:2],
    "expanded": lambda t: t[1:2].expand(5, 6),
    "without a dimension": lambda t: t[0, 0],
    "empty": lambda t: t[:0, :3],
    "empty in the middle": lambda t: t[:0].reshape(2, 0, 3),
}
PLACES = ("metadata", "multimodal_train_inputs", "rollout_routed_experts")


def _random_bits(name: str) -> torch.Tensor:
    """A 4 x 6 tensor with NaNs, infinities and -0.0 among its values."""
    dtype = getattr(torch, name)
    rng = np.random.default_rng(len(name))
    if name == "bool":
        return torch.from_numpy(rng.integers(0, 2, (4, 6)).astype(bool))
    return torch.from_numpy(rng.integers(0, 256, 24 * dtype.itemsize, dtype=np.uint8)).view(dtype).reshape(4, 6)


def _special_tensors() -> dict[str, torch.Tensor]:
    """Tensors of which ``.numpy()`` refuses most."""
    leaf = torch.randn(3, requires_grad=True)
    floats, complexes = torch.randn(4, 6), torch.randn(4, dtype=torch.complex64)
    return {
        "a leaf with grad": leaf,
        "a result with grad": leaf * 2,
        "a parameter": torch.nn.Parameter(torch.randn(2, 2)),
        "a lazy conjugate": complexes.conj(),
        "a lazy negative": complexes.conj().imag,
        "sparse": torch.sparse_coo_tensor(torch.tensor([[2, 0, 2]]), torch.tensor([1.0, 2.0, 3.0]), (4,)),
        "sparse bfloat16": torch.eye(3, dtype=torch.bfloat16).to_sparse(),
        "compressed rows": floats.to_sparse_csr(),
        "a view of a large storage": torch.randn(1000, 50)[7],
    }


@pytest.fixture(scope="module")
def every_tensor() -> dict[str, torch.Tensor]:
    tensors = {
        f"{name}, {layout}": transform(_random_bits(name)) for name in DTYPES for layout, transform in LAYOUTS.items()
    }
    return tensors | _special_tensors()


def _placed(place: str, name: str, tensor: torch.Tensor) -> Sample:
    return make_sample(0, **{place: tensor if place == "rollout_routed_experts" else {name: tensor}})


@pytest.mark.filterwarnings("ignore:ComplexHalf", "ignore:Sparse CSR")  # torch calls both experimental
@pytest.mark.parametrize("place", PLACES)
def test_f1_every_dtype_and_layout_comes_back_as_its_values_on_the_cpu(
    store_url: str, place: str, every_tensor: dict[str, torch.Tensor]
) -> None:
    groups = [[_placed(place, name, tensor)] for name, tensor in every_tensor.items()]
    with run_of(store_url) as run:
        run.record_train(0, groups)
    loaded = loaded_train(store_url, 0).samples
    for (name, tensor), [sample] in zip(every_tensor.items(), loaded, strict=True):
        value = getattr(sample, place)
        back = value if place == "rollout_routed_experts" else value[name]
        assert_same(back, tensor, path=name)
        assert type(back) is torch.Tensor and back.device.type == "cpu" and not back.requires_grad, name
        if back.layout is torch.strided and back.numel():
            back.view(-1).view(torch.uint8).zero_()  # its memory is its own and writable
    assert_same(loaded_train(store_url, 0).samples, groups)


N_VIEWS = 64
BIG = (N_VIEWS, 312, 256)  # float32, 20 MB, of which zstd saves nothing


@pytest.fixture(scope="module")
def big_tensor() -> torch.Tensor:
    bits = np.random.default_rng(0).integers(0, 2**32, BIG, dtype=np.uint32)
    return torch.from_numpy(bits.view(np.float32))


def _size_after(url: str, groups: list[list[Sample]]) -> int:
    with opened(url) as store:
        empty = store.stats().size_bytes
        store.run("contract").record_train(0, groups)
        return store.stats().size_bytes - empty


@pytest.mark.parametrize("place", PLACES)
def test_f2_views_of_one_big_tensor_cost_what_they_show(store_url: str, place: str, big_tensor: torch.Tensor) -> None:
    groups = [[_placed(place, "pixel_values", big_tensor[i : i + 1])] for i in range(N_VIEWS)]
    assert _size_after(store_url, groups) < 1.2 * big_tensor.nbytes
    assert_same(loaded_train(store_url, 0).samples, groups)


@pytest.mark.parametrize("place", PLACES)
def test_f2_one_view_of_a_big_tensor_costs_what_it_shows(store_url: str, place: str, big_tensor: torch.Tensor) -> None:
    view = big_tensor[3:4]
    assert _size_after(store_url, [[_placed(place, "pixel_values", view)]]) < view.nbytes + 500_000  # pages, indexes


# -- F5: a rollout of 16 samples x 8,000 tokens x 47 layers x top-4 int32: 6 MB a sample, 96 MB together

N_ROUTED, N_ROUTED_TOKENS = 16, 8_000


def _routing(seed: int, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 128, (N_ROUTED_TOKENS, 47, 4)).astype(dtype)


def _routed_sample(index: int, dtype: Any = np.int32) -> Sample:
    return make_sample(index, group_index=index, rollout_routed_experts=_routing(index, dtype))


def _peak_bytes(work: Callable[[], Any]) -> int:
    """Return by how much the memory of Python and numpy rose while this ran, at most."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak - before


def _measure(url: str) -> tuple[int, int]:
    """Return the peaks of recording the rollout and of loading one sample of it."""
    groups = [[_routed_sample(i)] for i in range(N_ROUTED)]
    with opened(url) as store:
        run = store.run("contract")
        run.record_train(99, [[make_sample(0)]])  # first, what is only done once: session, connections, imports
        recording = _peak_bytes(lambda: run.record_train(0, groups))
    loaded: list[Sample] = []
    with opened(url, read_only=True) as store:
        run = store.run("contract", create=False)
        run.load_train(99)
        loading = _peak_bytes(lambda: loaded.extend(run.iter_samples(SampleFilter(rollout_ids=0, group_index=7))))
    assert_same(loaded, groups[7])
    return recording, loading


def test_f5_recording_and_loading_one_sample_take_memory_of_samples_not_of_the_rollout(store_url: str) -> None:
    sample_bytes = N_ROUTED_TOKENS * 47 * 4 * 4
    recording, loading = in_a_new_process(_measure, store_url)
    # on SQLite what is compressed is in a file already; on PostgreSQL, a quarter of it here, it waits for the insert
    waiting = 0 if store_url.startswith("sqlite") else N_ROUTED * sample_bytes / 4
    assert recording < waiting + 2.5 * sample_bytes
    assert loading < 2.5 * sample_bytes


@pytest.mark.parametrize("container", ["ndarray", "tensor"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_f5_routing_keeps_its_dtype(sqlite_url: str, dtype: str, container: str) -> None:
    array = _routing(0, dtype)[:100]
    value = torch.from_numpy(array) if container == "tensor" else array
    with run_of(sqlite_url) as run:
        run.record_train(0, [[make_sample(0, rollout_routed_experts=value)]])
    assert_same(loaded_train(sqlite_url, 0).samples[0][0].rollout_routed_experts, value)


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Every statement that any database is sent while the test runs."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield sent
    event.remove(Engine, "before_cursor_execute", note)


def test_f5_questions_about_scalars_and_metadata_read_no_array(
    store_url: str, statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from slime_store.blobs import BlobDirectory

    groups = [[_routed_sample(i)] for i in range(2)]
    groups[0][0].multimodal_train_inputs = {"pixel_values": torch.ones(100_000)}
    with run_of(store_url) as run:
        run.record_train(0, RolloutFnTrainOutput(groups, {"loss": 1.0}))
    files: list[str] = []
    monkeypatch.setattr(BlobDirectory, "read", lambda self, name, *_: files.append(name))
    with opened(store_url, read_only=True) as store:
        run = store.run("contract", create=False)
        statements.clear()
        assert run.rollouts()[0].n_samples == 2
        assert store.runs()[0].n_rollouts == 1
        fields = ["reward", "status", "metadata", "weight_versions", "response", "prompt", "index"]
        samples = list(run.iter_samples(SampleFilter(reward_min=0.0), fields=fields))
    assert_same([sample.metadata for sample in samples], [group[0].metadata for group in groups])
    assert statements
    assert not [sent for sent in statements if re.search(r"\b(sample_arrays|blob_parts|blobs)\b", sent)]
    assert not files


# -- F6: sqlite3 refuses values beyond a limit, 1 GB by default and 1 MB here


@pytest.fixture
def strict_length_limit() -> Iterator[None]:
    """Every SQLite connection refuses values and rows of more than a megabyte."""
    if not hasattr(sqlite3.Connection, "setlimit"):
        pytest.skip("Python 3.10 cannot set SQLite's limits")

    def lower(connection: Any, _record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)

    event.listen(Pool, "connect", lower)
    yield
    event.remove(Pool, "connect", lower)


def _noise(n_bytes: int = 2_000_000) -> bytes:
    return np.random.default_rng(6).bytes(n_bytes)


BEYOND_THE_LIMIT: dict[str, Callable[[], dict[str, Any]]] = {
    "a tensor in metadata": lambda: {"metadata": {"t": torch.frombuffer(bytearray(_noise()), dtype=torch.uint8)}},
    "a routing table": lambda: {"rollout_routed_experts": np.frombuffer(_noise(), np.uint8).reshape(-1, 5, 4).copy()},
    "a routing tensor": lambda: {
        "rollout_routed_experts": torch.frombuffer(bytearray(_noise()), dtype=torch.int32).view(-1, 5, 4)
    },
    "tokens": lambda: {"tokens": np.frombuffer(_noise(), np.uint32).tolist()},
    "log-probs": lambda: {"rollout_log_probs": np.random.default_rng(0).normal(size=250_000).tolist()},
    "tokens of a middle size": lambda: {"tokens": np.frombuffer(_noise(700_000), np.uint32).tolist()},
    "bytes": lambda: {"metadata": {"b": _noise()}},
    "text in metadata": lambda: {"metadata": {"trace": _noise().decode("latin-1")}},
    "an image": lambda: {"multimodal_inputs": {"images": [Image.frombytes("L", (2000, 1000), _noise())]}},
    "pixels": lambda: {"multimodal_train_inputs": {"p": torch.frombuffer(bytearray(_noise()), dtype=torch.bfloat16)}},
}


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("place", ["file", "memory"])
@pytest.mark.parametrize("what", BEYOND_THE_LIMIT)
def test_f6_values_larger_than_the_database_takes_are_kept(
    sqlite_url: str, place: str, what: str, strict_length_limit: None
) -> None:
    groups = [[make_sample(0, **BEYOND_THE_LIMIT[what]()), make_sample(1)]]
    with opened(":memory:" if place == "memory" else sqlite_url) as store:
        run = store.run("contract")
        run.record_train(0, groups)
        assert_same(run.load_train(0).samples, groups)
        run.delete_rollout(0)
        assert store.stats().n_blobs == 0


def test_f6_the_limit_of_these_tests_is_really_lowered(tmp_path: Path, strict_length_limit: None) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with engine.connect() as connection, pytest.raises(Exception, match="too big"):
        connection.exec_driver_sql("SELECT ?", (_noise(),))
    engine.dispose()


# -- F7: stored bytes are neither pickles nor archives


def _everything() -> RolloutFnTrainOutput:
    tensor, array = torch.randn(50_000), np.arange(50_000.0).reshape(2, -1)
    sample = make_sample(
        0,
        rollout_routed_experts=torch.arange(400_000, dtype=torch.int32).reshape(-1, 2, 2),
        multimodal_inputs={"images": [Image.frombytes("RGB", (700, 600), _noise(1_260_000))]},
        multimodal_train_inputs={"pixel_values": torch.ones(4, 700, dtype=torch.bfloat16), "big": tensor},
        metadata={"array": array, "bytes": b"x" * 5000, "scalar": np.float32(0.1), "sparse": torch.eye(9).to_sparse()},
        odd=np.array(["a", None], object),
    )
    return RolloutFnTrainOutput([[sample, make_sample(1)]], {"loss": torch.tensor(1.0)})


def _stored_bytes(url: str) -> Iterator[tuple[str, bytes]]:
    """Every byte string in every table and every side file. A digest is a name, its first byte is chance."""
    engine = create_engine(url)
    metadata = MetaData()
    with engine.connect() as connection:
        metadata.reflect(connection, schema=None if url.startswith("sqlite") else "slime_store")
        for table in metadata.sorted_tables:
            for column in table.columns:
                if isinstance(column.type, LargeBinary) and column.name != "digest":
                    for value in connection.execute(select(column).where(column.is_not(None))).scalars():
                        yield f"{table.name}.{column.name}", bytes(value)
    engine.dispose()
    if url.startswith("sqlite"):
        for path in Path(url.removeprefix("sqlite:///") + "-blobs").glob("*/*"):
            yield "a side file", path.read_bytes()


def test_f7_no_stored_bytes_are_a_pickle_or_an_archive(store_url: str) -> None:
    with run_of(store_url) as run:
        run.record_train(0, _everything(), state={"buffer": [[make_sample(3)]]})
    places = set()
    for place, value in _stored_bytes(store_url):
        places.add(place)
        assert value[:1] != b"\x80", place
        assert value[:4] not in (b"PK\x03\x04", b"\x93NUM"), place
        assert b"cnumpy" not in value[:200] and b"torch" not in value[:200], place
    assert {"sample_arrays.data", "blob_parts.data"} <= places
    assert not store_url.startswith("sqlite") or "a side file" in places


def test_f7_loading_unpickles_nothing(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    output = _everything()
    with run_of(store_url) as run:
        run.record_train(0, output)

    def refuse(*_args: Any, **_options: Any) -> None:
        raise AssertionError("something was unpickled")

    with SampleStore.open(store_url) as store, monkeypatch.context() as patched:
        for module, name in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler"), (torch, "load"), (np, "load")):
            patched.setattr(module, name, refuse)
        loaded = store.run("contract").load_train(0)
    assert_same(loaded, output)

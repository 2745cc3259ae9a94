"""Values in rows for other programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from slime_store.interchange.values import as_array, plain


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.datetime64("2024-01-01", "ns"), "2024-01-01T00:00:00.000000000"),
        (np.timedelta64(5, "ns"), "5 nanoseconds"),
        (np.datetime64("2024-01-01", "D"), "2024-01-01"),
        (np.array([["2024-01-01"]], "M8[ns]"), [["2024-01-01T00:00:00.000000000"]]),
        (np.array("NaT", "M8[ns]"), None),
        (np.empty((0, 2), "M8[ns]"), []),
    ],
    ids=["datetime", "timedelta", "days", "array", "none", "empty"],
)
def test_moments_of_numpy_are_texts_whatever_their_unit(value: Any, expected: Any) -> None:
    assert plain(value) == expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_sparse", [False, True])
def test_complex_numbers_of_half_precision_are_widened_exactly(is_sparse: bool) -> None:
    tensor = torch.tensor([1 + 2j, 0j]).to(torch.complex32)
    array = as_array(tensor.to_sparse() if is_sparse else tensor)
    assert array.dtype == np.complex64 and array.tolist() == [1 + 2j, 0j]
    assert plain(tensor) == ["(1+2j)", "0j"] and as_array(tensor.conj()).tolist() == [1 - 2j, 0j]


DTYPES = sorted({str(each) for each in vars(torch).values() if isinstance(each, torch.dtype)})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["dense", "sparse", "rows"])
@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_of_any_type_has_rows(name: str, layout: str) -> None:
    dtype = getattr(torch, name.removeprefix("torch."))
    try:
        tensor = torch.empty(2, 2, dtype=dtype) if layout == "dense" else torch.zeros(2, 2, dtype=dtype)
        tensor = {"dense": tensor.clone, "sparse": tensor.to_sparse, "rows": tensor.to_sparse_csr}[layout]()
    except (RuntimeError, NotImplementedError, TypeError):
        tensor = torch.empty(2, 2, dtype=dtype)
    assert isinstance(plain(tensor), (list, str))


def test_a_tensor_without_values_is_said() -> None:
    assert isinstance(plain(torch.empty(2, device="meta")), str)

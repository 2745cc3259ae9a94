"""The tree of errors: one door, whatever file a class is in, and the way through pickles."""

from __future__ import annotations

import inspect
import pickle
import pickletools
import pkgutil
from importlib import import_module
from typing import Any

import pytest

from slime_store import errors
from slime_store.errors import StoreError

CLASSES = [getattr(errors, name) for name in errors.__all__]
_GIVEN = {"str": "some text", "int": 7, "int | None": 2, "str | None": "some", "tuple[int, ...]": (1, 2)}


def _made(kind: type[StoreError]) -> StoreError:
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    given: list[Any] = [_GIVEN.get(str(each.annotation), ("a", "b")) for each in parameters if each.kind < 2]
    return kind(*given)


def test_every_class_is_exported_under_one_name() -> None:
    found = set()
    for module in pkgutil.iter_modules(errors.__path__, "slime_store.errors."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, StoreError):
                found.add(value)
    assert found == set(CLASSES) and len(CLASSES) > 25
    assert {kind.__module__ for kind in CLASSES} == {"slime_store.errors"}


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_a_pickle_that_names_the_door(kind: type[StoreError]) -> None:
    error = _made(kind)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(error, protocol)
        again = pickle.loads(data)
        assert type(again) is kind and str(again) == str(error) and vars(again) == vars(error)
        texts = [argument for _, argument, _ in pickletools.genops(data) if isinstance(argument, str)]
        assert f"slime_store.errors {kind.__name__}" in texts or "slime_store.errors" in texts


def test_an_error_pickled_when_all_were_in_one_file_can_be_read() -> None:
    old = b"cslime_store.errors\nRunNotFoundError\n(S'a'\n(S'b'\nttR."
    error = pickle.loads(old)
    assert isinstance(error, errors.RunNotFoundError) and (error.run, error.known) == ("a", ("b",))


def test_what_is_only_read_is_not_said_to_be_written(store_url: str) -> None:
    from slime_store import RolloutFnTrainOutput, Sample
    from slime_store.testing.contract.opening import run_of

    with run_of(store_url) as run:
        run.record_train(0, RolloutFnTrainOutput([[Sample()]]))
        for read in (run.load_train, run.load_eval, run.rollout, run.unpin, run.load_batch):
            with pytest.raises(errors.InvalidOutputError) as caught:
                read("0")  # type: ignore[arg-type]
            assert str(caught.value) == "rollout_id: expected an integer of 64 bits, got '0'"

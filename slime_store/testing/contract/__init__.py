"""What every store must do, as a pytest suite. It uses the public door only.

Make a subclass, and a fixture that gives the URL of a new, empty database to each test: in the class, as
here, or in ``conftest.py``::

    from slime_store.testing.contract import StoreContract

    class TestSqlite(StoreContract):
        @pytest.fixture
        def store_url(self, tmp_path):
            return f"sqlite:///{tmp_path}/store.db"

Needs pytest and hypothesis. The whole suite takes half a minute on an embedded database.
"""

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in ("attempts", "questions", "round_trips", "safety")))

from slime_store.testing.contract.attempts import AttemptContract  # noqa: E402  (after the line above)
from slime_store.testing.contract.questions import QuestionContract  # noqa: E402
from slime_store.testing.contract.round_trips import RoundTripContract  # noqa: E402
from slime_store.testing.contract.safety import SafetyContract  # noqa: E402

__all__ = ["StoreContract"]


class StoreContract(RoundTripContract, AttemptContract, QuestionContract, SafetyContract):
    """The whole contract, over a fixture ``store_url``; see the module for how to run it."""

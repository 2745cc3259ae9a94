"""Helpers for testing code that works with a sample store, ours and yours.

* ``compare``: ``assert_same``, equality that also sees types, dtypes, NaN and -0.0
* ``factories``: realistic samples and rollouts, the same for the same seed
* ``strategies``: hypothesis strategies for samples, outputs and every value the store can keep
* ``contract``: what any store must do, as a pytest suite

``strategies`` and ``contract`` need hypothesis and pytest; they are not imported from here.
"""

from slime_store.testing.compare import assert_same, same
from slime_store.testing.factories import make_eval_output, make_sample, make_train_output

__all__ = ["assert_same", "make_eval_output", "make_sample", "make_train_output", "same"]

"""The views: what each holds and what its columns mean. Their SQL is in the migrations, frozen."""

from slime_store.models.views.base import View, ViewColumn
from slime_store.models.views.evals import EVAL_VIEWS
from slime_store.models.views.rollouts import ROLLOUT_VIEWS
from slime_store.models.views.samples import SAMPLE_VIEWS
from slime_store.models.views.versions import VERSION_VIEWS

VIEWS: dict[str, View] = {view.name: view for view in (*ROLLOUT_VIEWS, *SAMPLE_VIEWS, *EVAL_VIEWS, *VERSION_VIEWS)}
"""By name. A test compares them with what the migrations make, on both databases."""

__all__ = ["VIEWS", "View", "ViewColumn"]

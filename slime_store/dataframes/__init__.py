"""Answers as pandas data frames: ``samples_df``, ``weight_versions_df``, ``eval_summary_df`` and others.

Each takes a run, or a store for all of its runs, a ``SampleFilter``, and ``columns=``. docs/dataframes.md lists the
columns, which are declared data: an empty frame has the same ones, with the same dtypes.
"""

from slime_store.dataframes.building import Problem
from slime_store.dataframes.compare import eval_compare_df, eval_compare_summary_df
from slime_store.dataframes.evals import eval_summary_df
from slime_store.dataframes.groups import groups_df, prompts_df
from slime_store.dataframes.rollouts import metrics_df, rollouts_df
from slime_store.dataframes.samples import eval_df, samples_df
from slime_store.dataframes.weight_versions import weight_versions_df

__all__ = [
    "Problem",
    "eval_compare_df",
    "eval_compare_summary_df",
    "eval_df",
    "eval_summary_df",
    "groups_df",
    "metrics_df",
    "prompts_df",
    "rollouts_df",
    "samples_df",
    "weight_versions_df",
]

"""The page on data frames, made from their declarations.

``python -m slime_store.dataframes.reference > docs/dataframes.md`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from slime_store.dataframes.columns import DTYPES, Frame
from slime_store.dataframes.declared.aggregates import (
    EVAL_COMPARE,
    EVAL_COMPARE_SUMMARY,
    EVAL_SUMMARY,
    GROUPS,
    METRICS_LONG,
    METRICS_WIDE,
    PROMPTS,
    ROLLOUTS,
    WEIGHT_VERSIONS,
)
from slime_store.dataframes.declared.samples import EVAL, SAMPLES
from slime_store.dataframes.evals import DEFAULT_K, with_pass_at

FRAMES: tuple[Frame, ...] = (
    SAMPLES,
    with_pass_at(GROUPS, DEFAULT_K, None)[0],
    ROLLOUTS,
    WEIGHT_VERSIONS,
    EVAL,
    with_pass_at(EVAL_SUMMARY, DEFAULT_K, None, before="truncated_share")[0],
    EVAL_COMPARE,
    EVAL_COMPARE_SUMMARY,
    METRICS_WIDE,
    METRICS_LONG,
    PROMPTS,
)
"""Every frame, in the order of the page."""

_HEAD = """\
# Data frames

This page is made from the declarations in `slime_store/dataframes/declared/`, by
`python -m slime_store.dataframes.reference > docs/dataframes.md`; a test compares them.

```
from slime_store import SampleFilter
from slime_store.dataframes import samples_df, weight_versions_df

weight_versions_df(run)                                            # reward by weight version
samples_df(run, SampleFilter(rollout_ids=40, status="truncated"))  # the truncated samples of step 40
samples_df(run, columns=["index", "metadata.source", "reward.acc", ("reward", "nest", "x")])
```

Each function takes a run, or a store for all of its runs, and a `SampleFilter`. Its columns and their dtypes depend on
the call alone, never on the rows: an empty frame has the same ones. `columns=` chooses columns and their order;
`strict=False` gives (frame, problems), where a row that cannot be shown is left out and listed instead of raising.
Everything of one call is read in one transaction, which neither waits for a writer nor makes one wait.

| word | dtype | no value |
| --- | --- | --- |
"""

_WORDS = {
    "int": ("whole numbers", "`pd.NA`"),
    "float": ("numbers", "NaN"),
    "text": ("text, kept as Python objects on pandas 2 and 3 alike", "`pd.NA`"),
    "json": ("text: what is text as it is, anything else as JSON", "`pd.NA`"),
    "flag": ("True or False", "`pd.NA`"),
    "time": ("points in time, UTC", "`pd.NaT`"),
}
_TAIL = """
Text is what databases can keep and search: U+2400 stands for NUL, U+FFFD for a lone surrogate. In JSON, tuples and sets
are lists, NaN and infinities are the texts "nan", "inf" and "-inf", enum members are their value, and arrays, tensors,
images, texts of more than 64 KiB and lists of numbers of more than 1 KiB inside are as they are stored (docs/design.md,
"Exact documents"). A dict whose keys would be the same as texts is `{"$dict": [[key, value], ...]}`. Of a dict reward
the first 256 entries of each dict, to a depth of 8, are columns and can be asked for by `reward_key`.
`run.load_train` and `run.iter_samples` give exact values.

The columns marked * are only there when `columns=` asks for them.
"""


def page() -> str:
    """Return the whole page, in Markdown."""
    words = "".join(f"| {word} | `{DTYPES[word]}`: {says} | {none} |\n" for word, (says, none) in _WORDS.items())
    return _HEAD + words + _TAIL + "".join(line for frame in FRAMES for line in _section(frame))


def _section(frame: Frame) -> Iterator[str]:
    layout = {METRICS_WIDE: ', layout="wide"', METRICS_LONG: ', layout="long"'}.get(frame, "")
    yield f"\n## {frame.name}{layout}\n\n{frame.rows}\n\n"
    yield "| column | type | unit | meaning |\n| --- | --- | --- | --- |\n"
    for column in frame.columns:
        star = "" if column.default else " *"
        yield f"| `{column.name}`{star} | {column.kind} | {column.unit} | {_cell(column.meaning)} |\n"
    for family in frame.families:
        yield f"| `{family.name}.<key>` * | {family.kind} | | {_cell(family.meaning)} |\n"
    if frame.notes:
        yield f"\n{frame.notes}\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")

"""The command that shows rewards by weight version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from slime_store.cli.charts import chart_option
from slime_store.cli.drawing import Drawing, write_drawn
from slime_store.cli.filters import filter_options
from slime_store.cli.options import columns_option, examples, run_argument
from slime_store.cli.output import format_option, limit_option
from slime_store.cli.plots import Line, check_picture, plot_option
from slime_store.cli.stores import StoreOpener

if TYPE_CHECKING:
    from slime_store import SampleFilter

_COLUMNS = (
    "session",
    "kind",
    "weight_version",
    "ordinal",
    "n_samples",
    "n_none",
    "n_nan",
    "reward_mean",
    "reward_std",
    "truncated_share",
    "response_length_mean",
    "first_rollout_id",
    "last_rollout_id",
)


@click.command(
    "rewards",
    short_help="Rewards of a run by weight version.",
    epilog=examples(
        "rewards qwen3-4b-dapo --kind train",
        "rewards qwen3-4b-dapo --kind eval --dataset aime --by label",
        "rewards qwen3-4b-dapo --kind train --reward-key accuracy --plot rewards.png",
    ),
)
@run_argument
@click.option(
    "--by",
    type=click.Choice(["session", "label"]),
    default="session",
    show_default=True,
    help="A row for each version of each session, since labels begin anew at a restart; or for each label.",
)
@click.option(
    "--attribute",
    type=click.Choice(["last", "first", "each"]),
    default="last",
    show_default=True,
    help="Which version a sample that several ones generated counts for.",
)
@filter_options()
@plot_option
@chart_option
@columns_option("aggregates:WEIGHT_VERSIONS")
@limit_option
@format_option
@click.pass_obj
def show_rewards(
    opener: StoreOpener,
    run_name: str,
    by: Literal["session", "label"],
    attribute: Literal["last", "first", "each"],
    where: SampleFilter,
    picture: str | None,
    chart: bool | None,
    columns: list[str] | None,
    limit: int | None,
    form: str,
) -> None:
    """Show the rewards of RUN by weight version, in the order in which the versions were first used.

    Means leave out NaN and missing rewards, which n_nan and n_none count.
    """
    from slime_store.dataframes import weight_versions_df

    check_picture(picture)
    wanted = list(columns or _COLUMNS)
    drawn = ["kind", "ordinal", "reward_mean"]
    with opener.reading_run(run_name) as run:
        frame = weight_versions_df(
            run, where, columns=list(dict.fromkeys([*wanted, *drawn])), by=by, attribute=attribute
        )
    shown = frame[wanted]
    if columns is None and form == "table":
        shown = shown.drop(columns=[name for name in ("n_none", "n_nan") if not shown[name].any()])
    drawing = Drawing(
        "kind",
        _line,
        title=f"reward of {run_name}",
        x_label="weight version, in order of first use",
        y_label="mean reward",
        chart="mean reward by weight version",
    )
    write_drawn(shown, frame, drawing, form=form, limit=limit, picture=picture, chart=chart)


def _line(kind: str, part: Any) -> Line:
    known = part.dropna(subset=["ordinal"])
    return Line(kind, known["ordinal"].tolist(), known["reward_mean"].tolist())

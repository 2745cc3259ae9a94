"""Commands about evals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import click

from slime_store.cli.charts import chart_option
from slime_store.cli.drawing import Drawing, write_drawn
from slime_store.cli.filters import filter_options
from slime_store.cli.options import columns_option, examples, rollout_id_type, run_argument
from slime_store.cli.output import format_option, limit_option, write_frame
from slime_store.cli.plots import Line, check_picture, plot_option
from slime_store.cli.stores import StoreOpener

if TYPE_CHECKING:
    from slime_store import SampleFilter

_DRAWN = ("dataset", "rollout_id", "reward_mean", "ci_low", "ci_high")


def _number(_ctx: click.Context, _option: click.Parameter, value: float) -> float:
    if math.isnan(value):
        raise click.BadParameter("nan is no number")
    return value


_threshold_option = click.option(
    "--threshold",
    type=float,
    default=1.0,
    show_default=True,
    metavar="X",
    callback=_number,
    help="A reward of X or more is correct.",
)


@click.group("eval", short_help="Evals: their means, how two differ, and their samples.")
def evaluation() -> None:
    """Evals: their means, how two of them differ, and their samples as a file."""


@evaluation.command(
    "show",
    short_help="Show the mean reward of each eval, and pass@k.",
    epilog=examples(
        "eval show qwen3-4b-dapo",
        "eval show qwen3-4b-dapo --dataset aime -k 1 -k 8 --plot aime.svg",
    ),
)
@run_argument
@filter_options(without=("kind",))
@click.option("-k", "ks", type=click.IntRange(1), multiple=True, metavar="K", help="Also pass@K; repeat for more.")
@_threshold_option
@plot_option
@chart_option
@columns_option("aggregates:EVAL_SUMMARY", with_pass_at=True)
@limit_option
@format_option
@click.pass_obj
def show_evals(
    opener: StoreOpener,
    run_name: str,
    where: SampleFilter,
    ks: tuple[int, ...],
    threshold: float,
    picture: str | None,
    chart: bool | None,
    columns: list[str] | None,
    limit: int | None,
    form: str,
) -> None:
    """Show the mean reward of each eval of RUN and each dataset, with a 95 % interval and pass@k.

    The interval is over prompts, since samples of one prompt are not independent. pass@k is the unbiased estimate.
    """
    from slime_store.dataframes import eval_summary_df

    check_picture(picture)
    options: dict[str, Any] = {"k": sorted(set(ks))} if ks else {}
    with opener.reading_run(run_name) as run:
        needed = None if columns is None else list(dict.fromkeys([*columns, *_DRAWN]))
        frame = eval_summary_df(run, where, threshold=threshold, columns=needed, **options)
    chosen = frame if columns is None else frame[columns]
    if columns is None:
        chosen = chosen.drop(columns=["run", *(_boring(chosen, ks) if form == "table" else [])])
    drawing = Drawing(
        "dataset",
        _line,
        title=f"evals of {run_name}",
        x_label="rollout",
        y_label="mean reward, with its 95 % interval",
        chart="mean reward by eval",
    )
    write_drawn(chosen, frame, drawing, form=form, limit=limit, picture=picture, chart=chart)


@evaluation.command(
    "compare",
    short_help="Compare two evals prompt by prompt.",
    epilog=examples(
        "eval compare qwen3-4b-dapo 0 100",
        "eval compare qwen3-4b-dapo 0 100 --dataset aime --flips lost --columns prompt_id,before,after,prompt",
    ),
)
@run_argument
@click.argument("before", type=rollout_id_type)
@click.argument("after", type=rollout_id_type)
@click.option("--dataset", metavar="NAME", help="Only this one.")
@click.option("--flips", type=click.Choice(["gained", "lost"]), help="List only the prompts gained, or those lost.")
@click.option("--reward-key", multiple=True, metavar="KEY", help="Entry of a dict reward; repeat for nested dicts.")
@_threshold_option
@columns_option("aggregates:EVAL_COMPARE")
@limit_option
@format_option
@click.pass_obj
def compare_evals(
    opener: StoreOpener,
    run_name: str,
    before: int,
    after: int,
    dataset: str | None,
    flips: Literal["gained", "lost"] | None,
    reward_key: tuple[str, ...],
    threshold: float,
    columns: list[str] | None,
    limit: int | None,
    form: str,
) -> None:
    """Compare two evals of RUN prompt by prompt: which flipped from wrong to right, and from right to wrong.

    BEFORE and AFTER are rollout ids. A prompt is solved when at least half of its rewards are --threshold or more. In
    a table the means of each dataset come first, with the interval of their difference, and then the prompts that
    flipped. JSON and CSV hold the prompts alone, all of them unless --flips chooses.
    """
    from slime_store.dataframes import eval_compare_df, eval_compare_summary_df

    options: dict[str, Any] = {"dataset": dataset, "threshold": threshold, "reward_key": reward_key or None}
    with opener.reading_run(run_name) as run:
        wanted = columns or ["dataset", "prompt_id", "before", "after", "delta", "flip"]
        chosen = list(dict.fromkeys([*wanted, "flip"]))
        pairs = eval_compare_df(run, before, after, columns=chosen, **options)
        summary = eval_compare_summary_df(run, before, after, **options) if form == "table" else None
    if flips is not None:
        pairs = pairs[pairs["flip"] == flips]
    elif form == "table":
        pairs = pairs[pairs["flip"] != "same"]
    if summary is not None:
        write_frame(summary, form, 0)
        click.echo()
        if not len(pairs):
            shared = "no prompt flipped" if flips is None else f"no prompt was {flips}"
            name = "" if dataset is None else f" {dataset!r}"
            click.echo(shared if len(summary) else f"the two evals have no dataset{name} in common")
            return
    write_frame(pairs[wanted], form, limit)


@evaluation.command(
    "export",
    short_help="Write a row for each eval sample into a file.",
    epilog=examples(
        "eval export qwen3-4b-dapo --format parquet --out evals.parquet",
        "eval export qwen3-4b-dapo --rollout-ids 100 --format csv --out - --columns dataset,prompt_id,reward,response",
    ),
)
@run_argument
@filter_options(without=("kind",))
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "jsonl", "csv"]),
    default="parquet",
    show_default=True,
    help="How.",
)
@click.option("--out", required=True, metavar="FILE", help="The file; - for stdout, with jsonl and csv.")
@click.option("--csv-safe", is_flag=True, help="Put ' before text in CSV that a spreadsheet would take for a formula.")
@columns_option("samples:EVAL")
@click.pass_obj
def export_evals(
    opener: StoreOpener,
    run_name: str,
    where: SampleFilter,
    form: Literal["parquet", "jsonl", "csv"],
    out: str,
    csv_safe: bool,
    columns: list[str] | None,
) -> None:
    """Write a row for each eval sample of RUN into a file: the columns of the data frame eval_df, scalars by default.

    `slime-store export parquet --kind eval` writes whole samples, with texts and tokens.
    """
    from slime_store.cli.export import echo_tables, output_of
    from slime_store.dataframes import eval_df
    from slime_store.interchange import export_frame

    with opener.reading_run(run_name) as run:
        frame = eval_df(run, where, columns=columns)
    done = export_frame(frame, output_of(out, form), form, csv_safe=csv_safe)
    echo_tables([done])


def _boring(frame: Any, ks: tuple[int, ...]) -> list[str]:
    """Columns that say nothing here: pass@k that cannot be told and was not asked for, and what is as usual."""
    names = [name for name in frame if name.startswith("pass_at_") and not ks and frame[name].isna().all()]
    names += ["session"] if frame["session"].nunique() < 2 else []
    names += ["attempt"] if (frame["attempt"] == 1).all() else []
    return names + (["n_rewards"] if (frame["n_rewards"] == frame["n_samples"]).all() else [])


def _line(name: str, part: Any) -> Line:
    values = {key: part[key].tolist() for key in _DRAWN}
    return Line(name, values["rollout_id"], values["reward_mean"], values["ci_low"], values["ci_high"])

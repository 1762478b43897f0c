"""`veilmap plan`: what a release will be good for, and what it takes, before a budget is spent."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from veilmap.cli._boxes import parse_box, parse_domain, read_boxes
from veilmap.cli._options import (
    BoxOption,
    DeltaOption,
    DomainOption,
    EstimateOption,
    FormatOption,
    HeightOption,
    MethodOption,
    NoiseOption,
    RowsOption,
    SampleOption,
    SetOption,
    WorkloadOption,
    typed_settings,
)
from veilmap.cli._output import Format, print_csv, print_table, say
from veilmap.cli._spark import Engine
from veilmap.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from veilmap.planning.planner import Plan

EXAMPLE = 'Example: veilmap plan --within 500 --side 0.1 --rows 1e6 --domain "lon=-125:-103,lat=31:49"'


def plan(
    domain: DomainOption,
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", help="The privacy budget; or find one with --within and --side.")
    ] = None,
    within: Annotated[
        float | None, typer.Option("--within", help="Find the smallest epsilon for ± this many rows at 95 %.")
    ] = None,
    side: Annotated[
        float | None, typer.Option("--side", help="The boxes that --within is for: this part of each axis.")
    ] = None,
    method: MethodOption = None,
    height: HeightOption = None,
    rows: Annotated[
        float | None, typer.Option("--rows", help="A guess of the number of rows, like 1e6; best needs one.")
    ] = None,
    noise: NoiseOption = None,
    delta: DeltaOption = None,
    estimate: EstimateOption = None,
    sample: SampleOption = None,
    workload: WorkloadOption = None,
    settings: SetOption = None,
    max_rows_per_unit: RowsOption = None,
    engine: Annotated[
        Engine, typer.Option("--engine", help="Who will count: with spark, rows need no room on this machine.")
    ] = Engine.AUTO,
    box: BoxOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Predict the error of a release, or find the epsilon for an error: before a budget is spent, without the data."""
    from veilmap.budgets import Workload
    from veilmap.method.registry import DEFAULT_METHOD
    from veilmap.planning.planner import SIDES, plan_within
    from veilmap.planning.planner import plan as make_plan

    place = parse_domain(domain, None)
    make: Callable[..., Plan]
    if within is not None and side is not None and epsilon is None:
        make = partial(plan_within, place, within, side)
    elif epsilon is not None and within is None and side is None:
        make = partial(make_plan, place, epsilon)
    else:
        raise BadInput("Give either --epsilon, or --within and --side to find one.")
    made = make(
        method or DEFAULT_METHOD,
        height,
        int(rows) if rows is not None and rows.is_integer() else rows,
        delta=delta,
        sample=sample,
        noise=noise,
        estimate=estimate,
        budget=None if workload is None else Workload(read_boxes(workload, place)),
        options=typed_settings(settings),
        max_rows_per_unit=max_rows_per_unit,
        engine="spark" if engine is Engine.SPARK else "local",
    )
    if box:
        asked = [parse_box(text, made.domain) for text in box]
        table = list(zip(box, made.stderr(asked).tolist(), made.margin(asked).tolist(), strict=True))
    else:
        sides = SIDES if side is None else sorted({side, *SIDES}, reverse=True)
        table = [(f"{100 * p.side:g} % of each axis", p.stderr, p.margin) for p in made.predictions(sides)]
    if output is Format.JSON:
        record = {
            "epsilon": float(made.epsilon),
            "method": made.method.to_json(),
            "height": made.height,
            "nodes": made.nodes,
            **made.needs._asdict(),
        }
        predicted = [{"box": b, "stderr": e, "margin_95": m} for b, e, m in table]
        typer.echo(json.dumps({**record, "predictions": predicted}, indent=2))
    elif output is Format.CSV:
        print_csv(["box", "stderr", "margin_95"], [list(row) for row in table])
    else:
        if within is not None and side is not None:
            _say_what_is_enough(made, within, side)
        print_table(["box", "standard error", "95 % within"], [[b, f"{e:,.1f}", f"± {m:,.1f}"] for b, e, m in table])
        say(
            f"{made.method.name}, epsilon {float(made.epsilon):g}, {made.height} levels: {made.nodes:,} nodes. "
            f"{_needed(made, engine)}"
        )
        _say_what_it_covers(made)
        if not made.method.private:
            say(f"{made.method.name} is not private: for experiments on public data only.")


def _needed(made: Plan, engine: Engine) -> str:
    memory, disk, readings, passes = made.needs
    room = f"about {memory / 2**20:,.0f} MiB of memory" + (f" and {disk / 2**20:,.0f} MiB of disk" if disk else "")
    where = "on the cluster" if engine is Engine.SPARK else "on disk" if disk else "in memory"
    often, again = ("once" if n == 1 else f"{n} times" for n in (readings, passes))
    then = f", then goes through their cells, kept {where}, {again}" if passes else ""
    return f"It takes {room}; it reads the rows {often}{then}."


def _say_what_is_enough(made: Plan, within: float, side: float) -> None:
    from veilmap.validation import LEAST_EPSILON

    least = ", the least there is," if made.epsilon == LEAST_EPSILON else ""
    say(f"epsilon {float(made.epsilon):g}{least} is enough for ± {within:g} on boxes of {100 * side:g} % of each axis.")


def _say_what_it_covers(made: Plan) -> None:
    structure = made.method.structure
    if made.rows is None:
        say("This is the noise that privacy costs. Cells that a box cuts add an error that depends on the data.")
        if structure.nodes(made.domain.dimensions) is None or hasattr(structure, "median_share"):
            say("This method follows the data: the figures are for rows that lie evenly, and other rows may differ.")
    else:
        say(
            f"This is the noise that privacy costs and the error of cells that a box cuts, for {made.rows:,} rows all "
            "over the domain, as uneven as usual. Expect more where they crowd, less elsewhere: twice or half is usual."
        )

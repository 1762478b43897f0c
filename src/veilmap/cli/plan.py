"""`veilmap plan`: predict the error and the resources of a release before its budget is spent."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from veilmap.cli._options import (
    BoxOption,
    DeltaOption,
    DomainOption,
    EstimateOption,
    FormatOption,
    HeightOption,
    MethodOption,
    NoiseOption,
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

HELP_EXAMPLE = 'Example: veilmap plan --within 500 --side 0.1 --rows 1e6 --domain "lon=-125:-103,lat=31:49"'


def plan(
    domain: DomainOption,
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", help="The privacy budget; or find one with --within and --side.")
    ] = None,
    within: Annotated[
        float | None,
        typer.Option("--within", help="Find the smallest epsilon whose 95 % error is at most this many rows."),
    ] = None,
    side: Annotated[
        float | None,
        typer.Option("--side", help="The size of the boxes for --within, as a fraction of each axis."),
    ] = None,
    method: MethodOption = None,
    height: HeightOption = None,
    rows: Annotated[
        float | None,
        typer.Option("--rows", help="A guess of the number of rows, for example 1e6. The method 'best' needs one."),
    ] = None,
    noise: NoiseOption = None,
    delta: DeltaOption = None,
    estimate: EstimateOption = None,
    sample: SampleOption = None,
    workload: WorkloadOption = None,
    settings: SetOption = None,
    max_rows_per_unit: Annotated[
        int | None, typer.Option("--max-rows-per-unit", help="The number of rows per person that will be used.")
    ] = None,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="Where rows will be counted. With spark, they need no memory on this machine."),
    ] = Engine.AUTO,
    box: BoxOption = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Predict the error of a release, or find the epsilon for a given error. Reads no data and spends no budget."""
    from veilmap.boxes import parse_box, read_boxes
    from veilmap.budgets import Workload
    from veilmap.domain import Domain
    from veilmap.method.registry import DEFAULT_METHOD
    from veilmap.planning.planner import BOX_SIDES, plan_within
    from veilmap.planning.planner import plan as make_plan

    planned_domain = Domain.parse(domain)
    make: Callable[..., Plan]
    if within is not None and side is not None and epsilon is None:
        make = partial(plan_within, planned_domain, within, side)
    elif epsilon is not None and within is None and side is None:
        make = partial(make_plan, planned_domain, epsilon)
    else:
        raise BadInput("Give either --epsilon, or both --within and --side to find an epsilon.")
    made = make(
        method or DEFAULT_METHOD,
        height,
        int(rows) if rows is not None and rows.is_integer() else rows,
        delta=delta,
        sample=sample,
        noise=noise,
        estimate=estimate,
        budget=None if workload is None else Workload(read_boxes(workload, planned_domain)),
        options=typed_settings(settings),
        max_rows_per_unit=max_rows_per_unit,
        engine="spark" if engine is Engine.SPARK else "local",
    )
    if box:
        boxes = [parse_box(text, made.domain) for text in box]
        table = list(zip(box, made.stderr(boxes).tolist(), made.margin(boxes).tolist(), strict=True))
    else:
        sides = BOX_SIDES if side is None else sorted({side, *BOX_SIDES}, reverse=True)
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
            _say_sufficient_epsilon(made, within, side)
        print_table(["box", "standard error", "95 % within"], [[b, f"{e:,.1f}", f"± {m:,.1f}"] for b, e, m in table])
        nodes = f"{made.nodes:,} nodes" if made.nodes > 1 else "1 node"
        say(
            f"Method {made.method.name}, epsilon {float(made.epsilon):g}, {made.height} levels: {nodes}. "
            f"{_resources(made, engine)}"
        )
        _say_assumptions(made)
        if not made.method.private:
            say(f"{made.method.name} is not private. Use it for experiments on public data only.")


def _resources(made: Plan, engine: Engine) -> str:
    memory, disk, readings, passes = made.needs
    space = f"about {memory / 2**20:,.0f} MiB of memory" + (f" and {disk / 2**20:,.0f} MiB of disk" if disk else "")
    place = "on the cluster" if engine is Engine.SPARK else "on disk" if disk else "in memory"
    read_times, pass_times = ("once" if n == 1 else f"{n} times" for n in (readings, passes))
    further = f" and then processes their cells, kept {place}, {pass_times}" if passes else ""
    return f"It needs {space}. It reads the rows {read_times}{further}."


def _say_sufficient_epsilon(made: Plan, within: float, side: float) -> None:
    from veilmap.validation import MIN_EPSILON

    smallest = " (the smallest allowed)" if made.epsilon == MIN_EPSILON else ""
    say(
        f"epsilon {float(made.epsilon):g}{smallest} is enough for an error of ± {within:g} rows in boxes of "
        f"{100 * side:g} % of each axis."
    )


def _say_assumptions(made: Plan) -> None:
    structure = made.method.structure
    if made.rows is None:
        say(
            "These errors are the noise that privacy costs. Leaves that a box covers only in part add an error that "
            "depends on the data."
        )
        if structure.nodes(made.domain.dimensions) is None or structure.follows_data:
            say("This method adapts to the data. The errors are for evenly spread rows; other data may differ.")
    else:
        say(
            "These errors include the noise that privacy costs and the error of leaves that a box covers only in part, "
            f"for {made.rows:,} rows all over the domain with a typical unevenness. Expect up to twice this error in "
            "crowded areas and about half elsewhere."
        )

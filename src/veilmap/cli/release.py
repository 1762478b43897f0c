"""`veilmap release`: points in, one file out."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli import key, ledger
from veilmap.cli._boxes import parse_domain, read_boxes
from veilmap.cli._options import (
    DeltaOption,
    DomainOption,
    EpsilonOption,
    EstimateOption,
    HeightOption,
    MethodOption,
    NoiseOption,
    OneRowOption,
    RowsOption,
    SampleOption,
    SetOption,
    WorkloadOption,
    must_have_folder,
    typed_settings,
)
from veilmap.cli._output import progress, say
from veilmap.cli._spark import Engine, goes_to_spark, spark_points
from veilmap.cli._sql import sql_points
from veilmap.errors import BadInput

if TYPE_CHECKING:
    from veilmap.releases.release import Release

EXAMPLE = 'Example: veilmap release roads.csv -o roads.parquet --epsilon 0.5 --domain "lon=-125:-103,lat=31:49"'
LOOKS_EMPTY = (
    "The release looks empty: its estimated total is within the noise of 0. If you expected rows, check the domain, "
    "the order and units of its axes, the names of columns, and that numbers are written with a point."
)
"""Said of noisy numbers alone: how many rows were dropped is private."""


def release(
    out: Annotated[Path, typer.Option("--out", "-o", help="The release file to write.")],
    epsilon: EpsilonOption,
    domain: DomainOption,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="CSV, Parquet, GeoParquet, GeoPackage or Shapefile; one or many."),
    ] = None,
    sql: Annotated[str | None, typer.Option("--sql", help="Publish the rows of a query, in place of INPUT.")] = None,
    database: Annotated[
        str | None,
        typer.Option("--database", help="What --sql is asked of: a DuckDB file, or postgresql://… ."),
    ] = None,
    method: MethodOption = None,
    height: HeightOption = None,
    prune: Annotated[
        float | None, typer.Option("--prune", help="Drop what lies below nodes with a smaller estimate.")
    ] = None,
    sample: SampleOption = None,
    noise: NoiseOption = None,
    delta: DeltaOption = None,
    estimate: EstimateOption = None,
    workload: WorkloadOption = None,
    settings: SetOption = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help="The column that says whose row it is, when people have many.")
    ] = None,
    max_rows_per_unit: RowsOption = None,
    allow_nonprivate: Annotated[
        bool, typer.Option("--allow-nonprivate", help="Let the yardsticks kd-pure and kd-true through.")
    ] = False,
    crs: Annotated[str | None, typer.Option("--crs", help="Coordinate system of the axes, like EPSG:4326.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing release.")] = False,
    book: Annotated[
        Path | None,
        typer.Option("--ledger", envvar="VEILMAP_LEDGER", help="The ledger to charge, before the data is looked at."),
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="The data set that --ledger knows.")] = None,
    part: Annotated[str | None, typer.Option("--part", help="The part of it that the rows are of.")] = None,
    one_row_per_unit: OneRowOption = False,
    sign: Annotated[Path | None, typer.Option("--sign", help="Sign the release with this private key.")] = None,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="Who counts: this machine or Spark, which auto takes for s3://… ."),
    ] = Engine.AUTO,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master, like spark://host:7077.")] = None,
) -> None:
    """Publish a file of points as a private release.

    Columns go by the names of the domain's axes; a geometry column gives the first two. Rows outside the
    domain or with a missing coordinate are dropped. With --unit, whole people are protected and not rows.
    A data set of the ledger that has a unit takes releases with that --unit, or with --one-row-per-unit.
    """
    inputs = _from_one_place(inputs, sql, database, engine is not Engine.AUTO or master is not None)
    _must_be_free(out, inputs if database is None else [database], overwrite)
    if book is not None and out.resolve().name.startswith(f"{book.resolve().name}-"):
        raise BadInput(f"{out} is named like the journal of the ledger {book}, which deletes it: choose another name.")
    if sign is not None:
        key.must_be_ready(sign, out, overwrite)
    import veilmap as vm
    from veilmap.method.registry import DEFAULT_METHOD

    box = parse_domain(domain, crs)
    budget = None if workload is None else vm.Workload(read_boxes(workload, box))
    where: AbstractContextManager[Any] = nullcontext(inputs)
    if sql is not None:
        where = sql_points(sql, database)
    elif goes_to_spark(engine, inputs, master):
        where = spark_points(inputs, box.names, master)
    with (
        where as points,
        progress("Counting", sum(os.path.getsize(path) for path in inputs if os.path.isfile(path))) as tell,
    ):
        made = vm.release(
            points,
            box,
            epsilon=epsilon,
            method=method or DEFAULT_METHOD,
            height=height,
            prune=prune,
            progress=tell,
            delta=delta,
            sample=sample,
            noise=noise,
            estimate=estimate,
            budget=budget,
            options=typed_settings(settings),
            unit=unit,
            max_rows_per_unit=max_rows_per_unit,
            allow_nonprivate=allow_nonprivate,
            ledger=book,
            dataset=dataset,
            part=part,
            one_row_per_unit=one_row_per_unit,
        )
        made.save(out, overwrite)
    signature = None if sign is None else vm.sign(out, sign, overwrite)
    say(f"Wrote {out}: {made.estimates.tree.size:,} nodes, {out.stat().st_size / 1e6:.1f} MB.")
    say(made.privacy.statement())
    if _looks_empty(made):
        say(LOOKS_EMPTY)
    if signature is not None:
        say(f"Wrote {signature}: hand it out with the release.")
    if book is not None and dataset is not None:
        ledger.say_what_is_left(book, dataset, part)
    say(f"Next: veilmap info {out}")


def _looks_empty(made: Release) -> bool:
    domain = made.domain
    total = made.count([[*domain.lo, *domain.hi]])
    return bool(made.privacy.private and total.estimate[0] < 2 * total.stderr[0])


def _from_one_place(inputs: list[str] | None, sql: str | None, database: str | None, elsewhere: bool) -> list[str]:
    if (sql is None) == (not inputs):
        raise BadInput("Give the rows to publish: INPUT files, or a query by --sql.")
    if database is not None and sql is None:
        raise BadInput(
            '--database goes with --sql, which says what to take from it: --sql "SELECT lon, lat FROM trips".'
        )
    if sql is not None and elsewhere:
        raise BadInput("--engine and --master go with INPUT: DuckDB or Postgres answer what --sql asks.")
    return inputs or []


def _must_be_free(out: Path, inputs: list[str], overwrite: bool) -> None:
    """Refuse a place that cannot or should not be written, before any data is read."""
    from veilmap.releases.release_file import is_release

    must_have_folder(out)
    if not os.access(out.resolve().parent, os.W_OK):
        raise BadInput(f"The folder of {out} cannot be written: choose another.")
    if not os.path.lexists(out):  # a link that leads nowhere is in the way, too
        return
    if out.exists() and any(path.exists() and path.samefile(out) for path in map(Path, inputs)):
        raise BadInput(f"{out} is an input, and would be lost: choose another name for the release.")
    if not overwrite:
        raise BadInput(f"{out} exists already, and a release cannot be made twice for one price: add --overwrite.")
    if not is_release(out):
        raise BadInput(f"{out} exists and is no release, so it is not overwritten: choose another name.")

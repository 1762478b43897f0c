"""`veilmap release`: publish points as a private release file."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli import ledger, sign
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

HELP_EXAMPLE = 'Example: veilmap release roads.csv -o roads.parquet --epsilon 0.5 --domain "lon=-125:-103,lat=31:49"'
# Based on noisy numbers alone: the number of dropped rows is private.
LOOKS_EMPTY = (
    "The release looks empty: its estimated total is within the noise of 0. If you expected rows, check the domain, "
    "the order and units of its axes, the column names, and that numbers have a decimal point and not a comma."
)


def release(
    out: Annotated[Path, typer.Option("--out", "-o", help="The release file to write.")],
    epsilon: EpsilonOption,
    domain: DomainOption,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="One or more files: CSV, Parquet, GeoParquet, GeoPackage, GeoJSON, FlatGeobuf or Shapefile.",
        ),
    ] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", help="Publish the rows of this SQL query instead of INPUT files.")
    ] = None,
    database: Annotated[
        str | None,
        typer.Option("--database", help="The database that --sql queries: a DuckDB file, or postgresql://… ."),
    ] = None,
    method: MethodOption = None,
    height: HeightOption = None,
    prune: Annotated[
        float | None,
        typer.Option("--prune", help="Remove everything below nodes whose estimate is smaller than this."),
    ] = None,
    sample: SampleOption = None,
    noise: NoiseOption = None,
    delta: DeltaOption = None,
    estimate: EstimateOption = None,
    workload: WorkloadOption = None,
    settings: SetOption = None,
    unit: Annotated[
        str | None,
        typer.Option("--unit", help="The column that identifies the person of a row, if people have several rows."),
    ] = None,
    max_rows_per_unit: RowsOption = None,
    allow_nonprivate: Annotated[
        bool, typer.Option("--allow-nonprivate", help="Allow the non-private baselines kd-pure and kd-true.")
    ] = False,
    crs: Annotated[
        str | None, typer.Option("--crs", help="The coordinate system of the axes, for example EPSG:4326.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing release.")] = False,
    ledger_file: Annotated[
        Path | None,
        typer.Option("--ledger", envvar="VEILMAP_LEDGER", help="The ledger to charge before any data is read."),
    ] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="The name of the data set in the --ledger.")] = None,
    part: Annotated[
        str | None, typer.Option("--part", help="The part of the data set that the rows belong to.")
    ] = None,
    one_row_per_unit: OneRowOption = False,
    private_key: Annotated[Path | None, typer.Option("--sign", help="Sign the release with this private key.")] = None,
    engine: Annotated[
        Engine,
        typer.Option("--engine", help="Count on this machine or with Spark. auto takes Spark for s3://… addresses."),
    ] = Engine.AUTO,
    master: Annotated[
        str | None, typer.Option("--master", help="The Spark master, for example spark://host:7077.")
    ] = None,
) -> None:
    """Publish a file of points as a private release.

    Coordinates are read from the columns named like the domain's axes; a geometry column provides the first two axes.
    Rows outside the domain or with a missing coordinate are dropped.

    By default the guarantee protects single rows. With --unit and --max-rows-per-unit it protects all rows of a person.
    If the data set in the ledger has a unit, give that --unit, or --one-row-per-unit.
    """
    inputs = _checked_inputs(inputs, sql, database, engine is not Engine.AUTO or master is not None)
    _must_be_free(out, inputs if database is None else [database], overwrite)
    if ledger_file is not None and out.resolve().name.startswith(f"{ledger_file.resolve().name}-"):
        raise BadInput(
            f"{out} is named like the journal of the ledger {ledger_file}, which would delete it. Choose another name."
        )
    if private_key is not None:
        sign.must_be_able_to_sign(private_key, out, overwrite)
    import veilmap as vm
    from veilmap.boxes import read_boxes
    from veilmap.method.registry import DEFAULT_METHOD

    public_domain = vm.Domain.parse(domain, crs=crs)
    budget = None if workload is None else vm.Workload(read_boxes(workload, public_domain))
    source: AbstractContextManager[Any] = nullcontext(inputs)
    if sql is not None:
        source = sql_points(sql, database)
    elif goes_to_spark(engine, inputs, master):
        source = spark_points(inputs, public_domain.names, master)
    with (
        source as points,
        progress("Counting", sum(os.path.getsize(path) for path in inputs if os.path.isfile(path))) as tell,
    ):
        made = vm.release(
            points,
            public_domain,
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
            ledger=ledger_file,
            dataset=dataset,
            part=part,
            one_row_per_unit=one_row_per_unit,
        )
        made.save(out, overwrite)
    signature = None if private_key is None else vm.sign(out, private_key, overwrite)
    say(f"Wrote {out}: {made.estimates.tree.size:,} nodes, {out.stat().st_size / 1e6:.1f} MB.")
    say(made.privacy.statement())
    if _looks_empty(made):
        say(LOOKS_EMPTY)
    if signature is not None:
        say(f"Wrote {signature}. Publish it together with the release.")
    if ledger_file is not None and dataset is not None:
        ledger.say_remaining_budget(ledger_file, dataset, part)
    say(f"Next: veilmap info {out}")


def _looks_empty(made: Release) -> bool:
    domain = made.domain
    total = made.count([[*domain.lo, *domain.hi]])
    return bool(made.privacy.private and total.estimate[0] < 2 * total.stderr[0])


def _checked_inputs(
    inputs: list[str] | None, sql: str | None, database: str | None, has_engine_options: bool
) -> list[str]:
    """Return the input files, after checking that the rows come from one source: files or a query."""
    if (sql is None) == (not inputs):
        raise BadInput("Give the rows to publish: either INPUT files, or a query with --sql.")
    if database is not None and sql is None:
        raise BadInput(
            '--database needs --sql, which says what to read from it, for example --sql "SELECT lon, lat FROM trips".'
        )
    if sql is not None and has_engine_options:
        raise BadInput("--engine and --master go with INPUT files. DuckDB or Postgres run the --sql query.")
    return inputs or []


def _must_be_free(out: Path, inputs: list[str], overwrite: bool) -> None:
    """Check that the release may be written, before any data is read."""
    from veilmap.releases.release_file import is_release

    must_have_folder(out)
    if not os.access(out.resolve().parent, os.W_OK):
        raise BadInput(f"The folder of {out} is not writable. Choose another.")
    if not os.path.lexists(out):  # unlike exists(), this also finds a dangling link
        return
    if out.exists() and any(path.exists() and path.samefile(out) for path in map(Path, inputs)):
        raise BadInput(f"{out} is an input and would be lost. Choose another name for the release.")
    if not overwrite:
        raise BadInput(
            f"{out} already exists, and a new release of the same data costs its budget again. "
            "Choose another name, or add --overwrite."
        )
    if not is_release(out):
        raise BadInput(f"{out} exists and is not a release, so it is not overwritten. Choose another name.")

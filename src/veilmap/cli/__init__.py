"""The command line. It parses and prints; the library does the work."""

from __future__ import annotations

import csv
import json
import os
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli import keys, ledger
from veilmap.cli.audit import EXAMPLE as AUDIT_EXAMPLE
from veilmap.cli.audit import audit
from veilmap.cli.explore import EXAMPLE as EXPLORE_EXAMPLE
from veilmap.cli.explore import explore
from veilmap.cli.exports import EXAMPLE as EXPORT_EXAMPLE
from veilmap.cli.exports import export
from veilmap.cli.matching import EXAMPLE as MATCH_EXAMPLE
from veilmap.cli.matching import match
from veilmap.cli.options import (
    BoxOption,
    DeltaOption,
    DomainOption,
    EpsilonOption,
    EstimateOption,
    FormatOption,
    HeightOption,
    MethodOption,
    NoiseOption,
    OverwriteOption,
    ReleaseArgument,
    RowsOption,
    SampleOption,
    SetOption,
    WorkloadOption,
    must_be_free,
    must_have_folder,
    typed_settings,
)
from veilmap.cli.pictures import EXAMPLE as PLOT_EXAMPLE
from veilmap.cli.pictures import plot
from veilmap.cli.reproduce import EXAMPLE as STUDY_EXAMPLE
from veilmap.cli.reproduce import reproduce
from veilmap.cli.sample import EXAMPLE as SAMPLE_EXAMPLE
from veilmap.cli.sample import sample as sample_points
from veilmap.cli.show import Format, print_csv, print_table, progress, say, warn
from veilmap.cli.spark import Engine, goes_to_spark, spark_points
from veilmap.cli.sql import sql_points
from veilmap.cli.zones import query_zones
from veilmap.errors import BadInput, LedgerWarning, VeilmapError

if TYPE_CHECKING:
    from collections.abc import Callable

    from veilmap.answer import Answers
    from veilmap.domain import Domain
    from veilmap.plan import Plan
    from veilmap.published import Release

# Everything heavy is imported inside the commands: `veilmap --help` answers at once.

app = typer.Typer(
    name="veilmap",
    help="Publish the map, veil the people: differentially private maps of points.",
    epilog="Start with: veilmap demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a pretty traceback would print local variables
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


INTERRUPTED = 130
_UsageError: Any = typer.BadParameter.__base__  # typer carries its own copy of click


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"veilmap {version('veilmap')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(
    epilog='Example: veilmap release roads.csv -o roads.parquet --epsilon 0.5 --domain "lon=-125:-103,lat=31:49"'
)
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
    """
    inputs = _from_one_place(inputs, sql, database, engine is not Engine.AUTO or master is not None)
    _must_be_free(out, inputs if database is None else [database], overwrite)
    if book is not None and out.resolve().name.startswith(f"{book.resolve().name}-"):
        raise BadInput(f"{out} is named like the journal of the ledger {book}, which deletes it: choose another name.")
    if sign is not None:
        keys.must_be_ready(sign, out, overwrite)
    import veilmap as vm
    from veilmap.method import DEFAULT_METHOD

    box = _domain(domain, crs)
    budget = None if workload is None else vm.Workload(_read_boxes(workload, box))
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
        )
        made.save(out, overwrite)
    signature = None if sign is None else vm.sign(out, sign, overwrite)
    say(f"Wrote {out}: {made.estimates.tree.size:,} nodes, {out.stat().st_size / 1e6:.1f} MB.")
    say(made.privacy.statement())
    if signature is not None:
        say(f"Wrote {signature}: hand it out with the release.")
    if book is not None and dataset is not None:
        ledger.say_what_is_left(book, dataset, part)
    say(f"Next: veilmap info {out}")


@app.command(epilog="Example: veilmap query roads.parquet --box -120,45,-119,46 --format json")
def query(
    path: ReleaseArgument,
    box: BoxOption = None,
    boxes: Annotated[
        Path | None, typer.Option("--boxes", help="A CSV file with a box a row, with or without a header.")
    ] = None,
    zones: Annotated[
        Path | None, typer.Option("--zones", help="Polygons: GeoJSON, GeoPackage, Shapefile, GeoParquet.")
    ] = None,
    layer: Annotated[str | None, typer.Option("--layer", help="Of --zones, where there are several.")] = None,
    make_valid: Annotated[
        bool, typer.Option("--make-valid", help="Mend zones whose borders cross themselves.")
    ] = False,
    confidence: Annotated[float, typer.Option("--confidence", help="Of the intervals.")] = 0.95,
    output: FormatOption = Format.TABLE,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write zones and counts: .gpkg, .geojson, .parquet or .csv."),
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Count points in boxes or zones, with error bars, from a release alone.

    Zones come back as their table with the columns count, stderr, low and high, or veilmap_count and so on where it has
    one of these already. Zones in other coordinates than the release are reprojected.
    """
    import numpy as np

    import veilmap as vm

    found = vm.load(path)
    if (zones is None) == (not box and boxes is None):
        raise BadInput(
            "Ask for at least one box, --box LOW,...,HIGH,... or --boxes FILE.csv; or for --zones FILE, not both."
        )
    if zones is None and (layer is not None or make_valid or out is not None):
        raise BadInput("--layer, --make-valid and --out go with --zones: leave them out, or give a file of zones.")
    if out is not None:
        must_be_free(out, path, overwrite)
    if zones is not None:
        query_zones(found, zones, layer, make_valid, confidence, output, out, overwrite)
        warn(found)
        return
    rows = [_numbers(text, found.domain) for text in box or []]
    if boxes is not None:
        rows += _read_boxes(boxes, found.domain)
    asked = np.array(rows, dtype=np.float64)
    _print_answers(found, asked, found.count(asked, confidence), output)


@app.command(epilog="Example: veilmap info roads.parquet")
def info(
    path: ReleaseArgument,
    key: Annotated[
        Path | None, typer.Option("--key", help="The owner's public key: say whether they signed this file.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """What a release promises, what was spent on what, and what it cannot do.

    With --key, the exit status is 2 unless the signature beside the file is the owner's.
    """
    import veilmap as vm

    found = vm.load(path)
    signed = keys.look(path, key)
    if output is not Format.TABLE:
        warn(found)
    if output is Format.TABLE:
        _print_info(found, path, signed.statement)
    elif output is Format.JSON:
        typer.echo(json.dumps({**found.header(), "signature": signed.statement}, indent=2, ensure_ascii=False))
    else:
        print_csv(
            ["what", "mechanism", "epsilon", "rho", "delta"],
            [[c.what, c.mechanism, *map(float, (c.epsilon, c.rho, c.delta))] for c in found.privacy.ledger],
        )
    if key is not None and not signed:
        raise BadInput(f"The signature of {path}: {signed.statement}.")


@app.command(epilog='Example: veilmap plan --within 500 --side 0.1 --rows 1e6 --domain "lon=-125:-103,lat=31:49"')
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
    from veilmap.method import DEFAULT_METHOD
    from veilmap.plan import SIDES, plan_within
    from veilmap.plan import plan as make_plan
    from veilmap.structures import Workload

    place = _domain(domain, None)
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
        budget=None if workload is None else Workload(_read_boxes(workload, place)),
        options=typed_settings(settings),
        max_rows_per_unit=max_rows_per_unit,
        engine="spark" if engine is Engine.SPARK else "local",
    )
    if box:
        asked = [_numbers(text, made.domain) for text in box]
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
    from veilmap.amounts import LEAST_EPSILON

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


app.command(epilog=PLOT_EXAMPLE)(plot)
app.command(epilog=EXPLORE_EXAMPLE)(explore)
app.command(epilog=EXPORT_EXAMPLE)(export)
app.command(epilog=MATCH_EXAMPLE)(match)
app.command(epilog=STUDY_EXAMPLE)(reproduce)
app.add_typer(ledger.app, name="ledger", epilog=ledger.EXAMPLE)
app.command(epilog=keys.KEY_EXAMPLE)(keys.key)
app.command(epilog=keys.SIGN_EXAMPLE)(keys.sign)
app.command(epilog=AUDIT_EXAMPLE)(audit)
app.command("sample", epilog=SAMPLE_EXAMPLE)(sample_points)


@app.command(epilog="Example: veilmap demo -o demo")
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the release and the map.")] = Path("demo"),
) -> None:
    """End to end on data it brings itself: release, questions, truth, map."""
    from veilmap.demo import run

    with progress("Places") as tell:
        result = run(out, tell)
    print_table(
        ["where", "estimate", "95 % interval", "truth", ""],
        [
            [
                r.where,
                f"{r.estimate:,.0f}",
                f"{r.low:,.0f} to {r.high:,.0f}",
                f"{r.truth:,}",
                "inside" if r.inside else "outside",
            ]
            for r in result.rows
        ],
    )
    say("The truth is printed because these places are public; a release never holds it.")
    say(f"Wrote {result.release} and {result.picture}. Next: veilmap info {result.release}")


def main() -> None:
    """Run the command line: bad input is one sentence on standard error and exit status 2."""
    warnings.showwarning = _show_warning
    try:
        status = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except _UsageError as error:
        command = error.ctx.command_path if error.ctx else "veilmap"
        typer.echo(f"veilmap: {error.format_message().rstrip('.')}. See '{command} --help'.", err=True)
        sys.exit(2)
    except VeilmapError as error:
        typer.echo(f"veilmap: {error}", err=True)
        sys.exit(2)
    except MemoryError:
        typer.echo("veilmap: there is not enough memory: choose a smaller height or a coarser method.", err=True)
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    if status == INTERRUPTED:  # typer makes that of Ctrl-C, without a word
        typer.echo("veilmap: interrupted; nothing is half-written, and what was charged stays charged.", err=True)
    sys.exit(status)


_show_other_warnings = warnings.showwarning


def _show_warning(message: Any, category: Any, *where: Any, **more: Any) -> None:
    """What a ledger warns of is for people, in a sentence."""
    if issubclass(category, LedgerWarning):
        typer.echo(f"veilmap: warning: {message}", err=True)
    else:
        _show_other_warnings(message, category, *where, **more)


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
    from veilmap.fileformat import is_release

    must_have_folder(out)
    if not os.access(out.resolve().parent, os.W_OK):
        raise BadInput(f"The folder of {out} cannot be written: choose another.")
    if not out.exists():
        return
    if any(path.exists() and path.samefile(out) for path in map(Path, inputs)):
        raise BadInput(f"{out} is an input, and would be lost: choose another name for the release.")
    if not overwrite:
        raise BadInput(f"{out} exists already, and a release cannot be made twice for one price: add --overwrite.")
    if not is_release(out):
        raise BadInput(f"{out} exists and is no release, so it is not overwritten: choose another name.")


def _domain(text: str, crs: str | None) -> Domain:
    from veilmap.domain import Domain

    return Domain.parse(text, crs=crs)


def _numbers(text: str, domain: Domain) -> list[float]:
    parts = text.split(",")
    try:
        if len(parts) != 2 * domain.dimensions:
            raise ValueError
        return [float(part) for part in parts]
    except ValueError:
        order = ",".join([f"low_{n}" for n in domain.names] + [f"high_{n}" for n in domain.names])
        raise BadInput(f"A box of this release is {2 * domain.dimensions} numbers, {order}; got {text!r}.") from None


def _box_columns(domain: Domain) -> list[str]:
    return [f"{n}_low" for n in domain.names] + [f"{n}_high" for n in domain.names]


def _read_boxes(path: Path, domain: Domain) -> list[list[float]]:
    """Boxes from a CSV file; a header, if there is one, may put the columns in any order."""
    wanted = _box_columns(domain)
    try:
        with open(path, newline="", encoding="utf-8-sig") as lines:
            rows = [row for row in csv.reader(lines) if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(
            f"Cannot read boxes from {path}: {getattr(error, 'strerror', None) or 'not a CSV file'}."
        ) from None
    if not rows:
        raise BadInput(f"{path} has no boxes: write one a row, {','.join(wanted)}.")
    header = [cell.strip() for cell in rows[0]]
    if set(wanted) <= set(header):
        order = [header.index(name) for name in wanted]
        rows = [[row[k] if k < len(row) else "" for k in order] for row in rows[1:]]
    elif not _is_number(header[0]):
        raise BadInput(f"The columns of {path} are {','.join(header)}; boxes need {','.join(wanted)}.")
    return [_numbers(",".join(row), domain) for row in rows]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _print_answers(found: Release, asked: Any, answers: Answers, output: Format) -> None:
    columns = (answers.estimate, answers.stderr, answers.low, answers.high)
    rows = [[*map(float, box), *map(float, row)] for box, *row in zip(asked, *columns, strict=True)]
    header = [*_box_columns(found.domain), "estimate", "stderr", "low", "high"]
    if output is Format.JSON:
        record = {"confidence": answers.confidence, "private": found.privacy.private}
        typer.echo(json.dumps({**record, "answers": [dict(zip(header, row, strict=True)) for row in rows]}, indent=2))
    elif output is Format.CSV:
        print_csv(header, rows)
    else:
        print_table(
            ["box", "estimate", "standard error", f"{100 * answers.confidence:g} % interval"],
            [
                [
                    ",".join(f"{v:g}" for v in row[:-4]),
                    f"{row[-4]:,.1f}",
                    f"{row[-3]:,.1f}",
                    f"{row[-2]:,.1f} to {row[-1]:,.1f}",
                ]
                for row in rows
            ],
        )
    warn(found)


def _print_info(found: Release, path: Path, signed: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.panel import Panel

    console = Console()
    privacy, tree = found.privacy, found.estimates.tree
    whole = found.count([*found.domain.lo, *found.domain.hi])
    style = "green" if privacy.private else "bold red"
    console.print(Panel(privacy.statement(), title=escape(str(path)), border_style=style))
    facts = {
        "Protects": f"{privacy.unit}; neighbours: {privacy.neighbours}",
        "Budget": f"epsilon {float(privacy.epsilon):g} ({privacy.epsilon}), delta {float(privacy.delta):g}"
        + (f"; rho {float(privacy.rho):g}" if privacy.rho else ""),
        "Spent": f"{float(privacy.spent):g} of {'rho' if privacy.rho else 'it'}, by {', '.join(privacy.mechanisms)}"
        if privacy.private
        else "nothing of it counts: this release is not private",
        "Method": f"{found.method['name']}: {found.method['structure']['name']}, {tree.height} levels, "
        f"{found.method['budget']['name']} budget, {found.method['estimate']}{_further(found)}",
        "Domain": str(found.domain) + (f" ({found.domain.crs})" if found.domain.crs else ""),
        "Holds": f"{tree.size:,} nodes, {int(tree.is_leaf.sum()):,} of them leaves; the estimate of all rows is "
        f"{float(whole.estimate[0]):,.0f}",
        "Made": f"{found.provenance['created']} by {found.provenance['software']}",
        "File": "whole: its checksum fits",
        "Signature": signed,
    }
    width = max(map(len, facts))
    for name, fact in facts.items():
        console.print(f"[bold]{name:<{width}}[/bold]  {escape(fact)}", highlight=False, soft_wrap=True)
    console.print()
    print_table(
        ["spent on", "mechanism", "rho" if privacy.rho else "epsilon"],
        [[c.what, c.mechanism, f"{float(c.epsilon + c.rho):.6g}"] for c in privacy.ledger],
    )
    if not privacy.private:
        return
    console.print("[bold]What it cannot do[/bold]")
    for limit in LIMITS:
        console.print(f"- {limit.format(unit=privacy.unit)}", soft_wrap=True, markup=False)


def _further(found: Release) -> str:
    """What else was made of the noisy counts."""
    slopes = "; density may rise or fall inside a leaf" if found.estimates.slope is not None else ""
    return slopes + ("; in whole numbers of 0 or more" if found.method.get("integers") else "")


LIMITS = (
    "It says nothing exact of anyone: answers about few people are mostly noise, by design.",
    "Its error bars cover the noise, and how points lie in cells as far as that shows: less with ties or many axes.",
    "Its promise is for {unit}. Someone with more, or whose neighbours give them away, is protected less.",
    "Its promise holds once: further releases of the same data add their epsilons to this one.",
)

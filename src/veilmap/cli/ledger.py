"""`veilmap ledger`: budgets of data sets over many releases."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli._options import (
    DEFAULT_LEDGER,
    DatasetArgument,
    EpsilonOption,
    FormatOption,
    LedgerOption,
    OneRowOption,
)
from veilmap.cli._output import Format, print_csv, print_table, say

if TYPE_CHECKING:
    from fractions import Fraction

    from veilmap.releases.ledger_file import Account, Entry

HELP_EXAMPLE = "Example: veilmap ledger show --ledger office.db"

app = typer.Typer(
    help="Keep the privacy budgets of data sets over many releases, in a file. "
    "A release is charged before any data is read.",
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command(epilog="Example: veilmap ledger create trips --epsilon 3 --unit driver_id --ledger office.db")
def create(
    dataset: DatasetArgument,
    epsilon: Annotated[str, typer.Option("--epsilon", help="The total that may ever be spent on it.")],
    ledger: LedgerOption = DEFAULT_LEDGER,
    delta: Annotated[
        str | None,
        typer.Option("--delta", help="The total delta. Without it, only releases with delta 0 are possible."),
    ] = None,
    unit: Annotated[
        str,
        typer.Option("--unit", help="What the budget protects: row, or the column that releases give with --unit."),
    ] = "row",
) -> None:
    """Give a data set a budget, which cannot be changed later. Creates the ledger file if there is none."""
    from veilmap.releases.ledger_file import Ledger

    made = Ledger(ledger).create(dataset, epsilon, delta, unit)
    say(f"{made.name} has a budget of {_amounts(made.epsilon, made.delta or None)}. It protects a {made.unit}.")
    unit_options = f" --unit {shlex.quote(made.unit)} --max-rows-per-unit K" if made.unit_columns else ""
    ledger_options = f" --ledger {shlex.quote(str(ledger))} --dataset {shlex.quote(made.name)}"
    say(f"Next: veilmap release ...{unit_options}{ledger_options}")


@app.command(epilog="Example: veilmap ledger add-unit-column trips --column drv --ledger office.db")
def add_unit_column(
    dataset: DatasetArgument,
    column: Annotated[str, typer.Option("--column", help="The name of the unit column in the other tables.")],
    ledger: LedgerOption = DEFAULT_LEDGER,
) -> None:
    """Declare that the unit column of a data set has another name in some tables.

    The other column must identify the same units: one value per unit, and one unit per value. A trip or a household is
    not the same unit as a person. The ledger records the declaration, and it cannot be withdrawn.
    """
    from veilmap.releases.ledger_file import Ledger

    made = Ledger(ledger).add_unit_column(dataset, column)
    columns = " or ".join(made.unit_columns)
    say(f"Releases of {made.name} protect a {made.unit}, identified by the column {columns}, as you declared.")


@app.command(epilog="Example: veilmap ledger split homes --into west,east --ledger office.db")
def split(
    dataset: DatasetArgument,
    into: Annotated[str, typer.Option("--into", help="The names of the parts, separated by commas.")],
    ledger: LedgerOption = DEFAULT_LEDGER,
) -> None:
    """Declare disjoint parts of a data set, so that a release of one part costs the others nothing.

    No person may be in two parts. A person's part must depend on their own rows alone and never change. A release of
    the whole data set is charged to every part. A data set can be split only once.
    """
    from veilmap.releases.ledger_file import Ledger

    made = Ledger(ledger).split(dataset, [name.strip() for name in into.split(",")])
    say(f"{made.name} has the parts {', '.join(made.parts)}. You declared that no person is in two of them.")


@app.command(epilog='Example: veilmap ledger charge homes --epsilon 0.5 --for "table 3" --ledger office.db')
def charge(
    dataset: DatasetArgument,
    epsilon: EpsilonOption,
    what: Annotated[str, typer.Option("--for", help="A description of what is charged.")],
    ledger: LedgerOption = DEFAULT_LEDGER,
    delta: Annotated[str | None, typer.Option("--delta", help="Its delta, if it has one.")] = None,
    part: Annotated[str | None, typer.Option("--part", help="The part of the data set that it concerns.")] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", help="The data set's unit, if the publication protects it.")
    ] = None,
    one_row_per_unit: OneRowOption = False,
) -> None:
    """Charge a data set for something that another program publishes, or that was published earlier."""
    from veilmap.releases.ledger_file import Ledger

    with Ledger(ledger).charge(
        dataset, epsilon, delta, what=what, part=part, unit=unit, one_row_per_unit=one_row_per_unit
    ):
        say_remaining_budget(ledger, dataset, part)


@app.command(epilog="Example: veilmap ledger show homes --ledger office.db --format csv")
def show(
    ledger: LedgerOption = DEFAULT_LEDGER,
    dataset: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show only this data set, with its history.", show_default=False),
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show the budgets of data sets, what is left of them, and with NAME, what was charged."""
    from veilmap.releases.ledger_file import Ledger

    book = Ledger(ledger)
    accounts = book.accounts() if dataset is None else (book.account(dataset),)
    history = [] if dataset is None else [_entry_row(entry) for entry in book.history(dataset)]
    rows = [_account_row(account, part) for account in accounts for part in (None, *account.parts)]
    if output is Format.JSON:
        record = {"datasets": [_json_values(row) for row in rows]}
        record |= {} if dataset is None else {"history": [_json_values(row) for row in history]}
        typer.echo(json.dumps(record, indent=2, ensure_ascii=False))
    elif output is Format.CSV:
        named = [
            row | {"unit_columns": ", ".join(row["unit_columns"])} for row in rows
        ]  # _csv_value joins with spaces, and a name may have spaces
        table = named if dataset is None else history
        print_csv(list(table[0]) if table else [], [[*map(_csv_value, row.values())] for row in table])
    else:
        _print_accounts(rows)
        for account in accounts:
            for column, at in account.stated:
                declared = f"the column {column} also identifies a {account.unit} ({at})"
                say(f"{account.name}: the owner declared that {declared}.")
        if dataset is not None:
            _print_history(history)


def say_remaining_budget(ledger: Path, dataset: str, part: str | None) -> None:
    """Print what is left of the budget of a data set, or of one of its parts."""
    from veilmap.releases.ledger_file import Ledger

    account = Ledger(ledger).account(dataset)
    name = account.name if part is None else f"part {part} of {account.name}"
    epsilon, delta = account.left(part)
    say(f"{ledger}: {_amounts(epsilon, delta if account.delta else None)} left for {name}.")


def _account_row(account: Account, part: str | None) -> dict[str, Any]:
    spent, left = account.spent(part), account.left(part)
    return {
        "dataset": account.name,
        "part": part,
        "unit": account.unit,
        "unit_columns": account.unit_columns,
        "epsilon": account.epsilon,
        "epsilon_spent": spent[0],
        "epsilon_left": left[0],
        "delta": account.delta,
        "delta_spent": spent[1],
        "delta_left": left[1],
    }


def _entry_row(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "state": "saved" if entry.outputs and entry.state == "made" else entry.state}


def _print_accounts(rows: list[dict[str, Any]]) -> None:
    def amounts(row: dict[str, Any], suffix: str) -> str:
        return _amounts(row[f"epsilon{suffix}"], row[f"delta{suffix}"] if row["delta"] else None)

    print_table(
        ["data set", "protects", "budget", "spent", "left"],
        [
            [
                row["dataset"] if row["part"] is None else f"  part {row['part']}",
                f"a {row['unit']}",
                *(amounts(row, suffix) for suffix in ("", "_spent", "_left")),
            ]
            for row in rows
        ],
    )


def _print_history(rows: list[dict[str, Any]]) -> None:
    print_table(
        ["when", "what", "protects", "part", "cost", "state", "output"],
        [
            [
                row["at"],
                row["what"],
                row["unit"] or "one row",
                row["part"] or "",
                _amounts(row["epsilon"], row["delta"] or None),
                row["state"],
                ", ".join(digest[:12] for digest in row["outputs"]),
            ]
            for row in rows
        ],
    )
    if rows:
        say(
            "'begun' means running or interrupted. Work that was interrupted or failed stays charged. "
            "Outputs are the first digits of the files' SHA-256 hashes."
        )


def _amounts(epsilon: Fraction, delta: Fraction | None) -> str:
    from veilmap.releases.ledger_file import exact_text

    return f"epsilon {exact_text(epsilon)}" + ("" if delta is None else f", delta {exact_text(delta)}")


def _csv_value(value: object) -> object:
    """Return a value for a CSV cell: amounts as exact decimals or fractions, tuples joined with spaces."""
    from fractions import Fraction

    from veilmap.releases.ledger_file import exact_text

    if isinstance(value, tuple):
        return " ".join(value)
    return exact_text(value) if isinstance(value, Fraction) else value


def _json_values(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for JSON: amounts as floats, with the exact fraction beside each."""
    from fractions import Fraction

    from veilmap.releases.ledger_file import fraction_text

    out: dict[str, Any] = {}
    for name, value in row.items():
        exact = isinstance(value, Fraction)
        out |= {name: float(value), f"{name}_exact": fraction_text(value)} if exact else {name: value}
    return out

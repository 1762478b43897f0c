"""veilmap ledger: what data sets may spend, and what they have spent."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli._options import (
    USUAL_LEDGER,
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

EXAMPLE = "Example: veilmap ledger show --ledger office.db"

app = typer.Typer(
    help="Budgets of data sets over many releases, in a file that charges before anything is computed.",
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        say(context.get_help())


@app.command(epilog="Example: veilmap ledger create trips --epsilon 3 --unit driver_id --ledger office.db")
def create(
    dataset: DatasetArgument,
    epsilon: Annotated[str, typer.Option("--epsilon", help="All that may ever be spent on it.")],
    ledger: LedgerOption = USUAL_LEDGER,
    delta: Annotated[
        str | None, typer.Option("--delta", help="The same for delta; without it promises must be pure.")
    ] = None,
    unit: Annotated[
        str,
        typer.Option("--unit", help="Whom the budget protects: row, or the column that releases have for --unit."),
    ] = "row",
) -> None:
    """Give a data set a budget, once and for all. The ledger is made if there is none."""
    from veilmap.releases.ledger_file import Ledger

    made = Ledger(ledger).create(dataset, epsilon, delta, unit)
    say(f"{made.name} may spend {_amounts(made.epsilon, made.delta or None)}, to protect a {made.unit}.")
    whom = f" --unit {shlex.quote(made.unit)} --max-rows-per-unit K" if made.unit_columns else ""
    say(f"Next: veilmap release ...{whom} --ledger {shlex.quote(str(ledger))} --dataset {shlex.quote(made.name)}")


@app.command(epilog="Example: veilmap ledger add-unit-column trips --column drv --ledger office.db")
def add_unit_column(
    dataset: DatasetArgument,
    column: Annotated[str, typer.Option("--column", help="The name of the column in these tables.")],
    ledger: LedgerOption = USUAL_LEDGER,
) -> None:
    """State that in some tables a column of another name says whose row it is.

    It must tell the same units apart: one value per unit, and one unit per value. A trip is less than a person, and a
    household is not the same either. The statement is recorded, and stays.
    """
    from veilmap.releases.ledger_file import Ledger

    made = Ledger(ledger).add_unit_column(dataset, column)
    say(f"Releases of {made.name} protect a {made.unit} by the column {' or '.join(made.unit_columns)}, as you state.")


@app.command(epilog="Example: veilmap ledger split homes --into west,east --ledger office.db")
def split(
    dataset: DatasetArgument,
    into: Annotated[str, typer.Option("--into", help="Names of the parts, with commas between them.")],
    ledger: LedgerOption = USUAL_LEDGER,
) -> None:
    """Declare parts that share nobody, so that what is spent on one is not spent on the others.

    Which part someone is in must follow from their own rows alone, and never change. Releases of the whole count for
    every part. A data set is split once.
    """
    from veilmap.releases.ledger_file import Ledger

    made = Ledger(ledger).split(dataset, [name.strip() for name in into.split(",")])
    say(f"{made.name} has the parts {', '.join(made.parts)}, and you say that nobody is in two of them.")


@app.command(epilog='Example: veilmap ledger charge homes --epsilon 0.5 --for "table 3" --ledger office.db')
def charge(
    dataset: DatasetArgument,
    epsilon: EpsilonOption,
    what: Annotated[str, typer.Option("--for", help="What is paid for, in words.")],
    ledger: LedgerOption = USUAL_LEDGER,
    delta: Annotated[str | None, typer.Option("--delta", help="The delta of it, if it has one.")] = None,
    part: Annotated[str | None, typer.Option("--part", help="The part of the data set that it is about.")] = None,
    unit: Annotated[str | None, typer.Option("--unit", help="The data set's unit, if it protects that.")] = None,
    one_row_per_unit: OneRowOption = False,
) -> None:
    """Charge for something that another program publishes, or that was published before."""
    from veilmap.releases.ledger_file import Ledger

    with Ledger(ledger).charge(
        dataset, epsilon, delta, what=what, part=part, unit=unit, one_row_per_unit=one_row_per_unit
    ):
        say_what_is_left(ledger, dataset, part)


@app.command(epilog="Example: veilmap ledger show homes --ledger office.db --format csv")
def show(
    ledger: LedgerOption = USUAL_LEDGER,
    dataset: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One data set, with its history.", show_default=False)
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """What may be spent, what is left, and what was paid for."""
    from veilmap.releases.ledger_file import Ledger

    book = Ledger(ledger)
    accounts = book.accounts() if dataset is None else (book.account(dataset),)
    history = [] if dataset is None else [_entry_row(entry) for entry in book.history(dataset)]
    rows = [_account_row(account, part) for account in accounts for part in (None, *account.parts)]
    if output is Format.JSON:
        told = {"datasets": [_numbers(row) for row in rows]}
        told |= {} if dataset is None else {"history": [_numbers(row) for row in history]}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
    elif output is Format.CSV:
        named = [row | {"unit_columns": ", ".join(row["unit_columns"])} for row in rows]  # a name may have spaces
        shown = named if dataset is None else history
        print_csv(list(shown[0]) if shown else [], [[*map(_text, row.values())] for row in shown])
    else:
        _print_accounts(rows)
        for account in accounts:
            for column, at in account.stated:
                say(f"{account.name}: the owner stated that the column {column} names a {account.unit}, too ({at}).")
        if dataset is not None:
            _print_history(history)


def say_what_is_left(ledger: Path, dataset: str, part: str | None) -> None:
    from veilmap.releases.ledger_file import Ledger

    account = Ledger(ledger).account(dataset)
    where = account.name if part is None else f"part {part} of {account.name}"
    epsilon, delta = account.left(part)
    say(f"{ledger}: {_amounts(epsilon, delta if account.delta else None)} left for {where}.")


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
    def cell(row: dict[str, Any], which: str) -> str:
        return _amounts(row[f"epsilon{which}"], row[f"delta{which}"] if row["delta"] else None)

    print_table(
        ["data set", "protects", "budget", "spent", "left"],
        [
            [
                row["dataset"] if row["part"] is None else f"  part {row['part']}",
                f"a {row['unit']}",
                *(cell(row, which) for which in ("", "_spent", "_left")),
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
        say("What is begun is at work, or was interrupted; that and what failed stays paid. Outputs: SHA-256 of files.")


def _amounts(epsilon: Fraction, delta: Fraction | None) -> str:
    from veilmap.releases.ledger_file import exact_text

    return f"epsilon {exact_text(epsilon)}" + ("" if delta is None else f", delta {exact_text(delta)}")


def _text(value: object) -> object:
    """As a cell of a CSV file: amounts exactly."""
    from fractions import Fraction

    from veilmap.releases.ledger_file import exact_text

    if isinstance(value, tuple):
        return " ".join(value)
    return exact_text(value) if isinstance(value, Fraction) else value


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    """As JSON: amounts as numbers, and beside them exactly."""
    from fractions import Fraction

    from veilmap.releases.ledger_file import fraction_text

    out: dict[str, Any] = {}
    for name, value in row.items():
        exact = isinstance(value, Fraction)
        out |= {name: float(value), f"{name}_exact": fraction_text(value)} if exact else {name: value}
    return out

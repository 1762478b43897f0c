"""`veilmap info`: what a release promises, what was spent on what, and what it cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli import key as keys
from veilmap.cli._options import FormatOption, ReleaseArgument
from veilmap.cli._output import Format, print_csv, print_table, warn
from veilmap.errors import BadInput

if TYPE_CHECKING:
    from veilmap.releases.cost_check import PathCosts
    from veilmap.releases.privacy import Privacy
    from veilmap.releases.release import Release

EXAMPLE = "Example: veilmap info roads.parquet --check"
LIMITS = (
    "It says nothing exact of anyone: answers about few people are mostly noise, by design.",
    "Its error bars cover the noise, and how points lie in cells as far as that shows: less with ties or many axes.",
    "Its promise is for {unit}. Someone with more, or whose neighbours give them away, is protected less.",
    "Its promise holds once: further releases of the same data add their epsilons to this one.",
)


def info(
    path: ReleaseArgument,
    key: Annotated[
        Path | None, typer.Option("--key", help="The owner's public key: say whether they signed this file.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Recompute what was spent from the noise in the file, along the path that costs most."
        ),
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """What a release promises, what was spent on what, and what it cannot do.

    With --key, the exit status is 2 unless the signature beside the file is the owner's.

    With --check, the noise itself says what counts cost. A file that states less is refused, with exit status 2.
    """
    import veilmap as vm

    found = vm.load(path)
    signed = keys.look(path, key)
    if output is not Format.TABLE:
        warn(found)
    if check:
        print_check(found, signed.statement, output)
    elif output is Format.TABLE:
        print_info(found, path, signed.statement)
    elif output is Format.JSON:
        typer.echo(json.dumps({**found.header(), "signature": signed.statement}, indent=2, ensure_ascii=False))
    else:
        print_csv(
            ["what", "mechanism", "epsilon", "rho", "delta"],
            [[c.what, c.mechanism, *map(float, (c.epsilon, c.rho, c.delta))] for c in found.privacy.ledger],
        )
    if key is not None and not signed:
        raise BadInput(f"The signature of {path}: {signed.statement}.")


def print_info(found: Release, path: Path, signed: str) -> None:
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


def print_check(found: Release, signed: str, output: Format) -> None:
    """What the noise in a release says that it costs, beside what it states."""
    privacy = found.privacy
    costs = found.path_costs() if privacy.private else None
    if output is Format.JSON:
        answer = {
            "private": privacy.private,
            "epsilon": float(privacy.epsilon),
            "delta": float(privacy.delta),
            "rho": None if privacy.rho is None else float(privacy.rho),
            "path": None if costs is None else _check_to_json(costs),
            "verdict": _verdict(privacy, costs),
            "signature": signed,
        }
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    rows = [] if costs is None else _check_rows(costs)
    if output is Format.CSV:
        print_csv(["step", "noise_variance", "price"], rows)
        return
    if costs is not None:
        shown = [[step, f"{variance:.6g}" if variance != "" else "", f"{price:.6g}"] for step, variance, price in rows]
        print_table(["on the dearest path", "noise variance", costs.currency], shown)
    typer.echo(_verdict(privacy, costs))


def _check_rows(costs: PathCosts) -> list[list[Any]]:
    """Steps with the variance of their noise, if that is published, and their prices."""
    return [
        *([f"count on level {level}", variance, price] for level, variance, price in costs.levels),
        *([f"{c.what} ({c.mechanism})", "", float(c.epsilon + c.rho)] for c in costs.other),
        ["sum", "", costs.total],
        [f"stated {costs.currency}", "", float(costs.budget)],
    ]


def _check_to_json(costs: PathCosts) -> dict[str, Any]:
    return {
        "currency": costs.currency,
        "counts": [{"level": n, "noise_variance": variance, "price": price} for n, variance, price in costs.levels],
        "other": [{"what": c.what, "mechanism": c.mechanism, "price": float(c.epsilon + c.rho)} for c in costs.other],
        "sum_of_counts": costs.counts,
        "charged_for_counts": float(costs.charged),
        "sum": costs.total,
        "stated": float(costs.budget),
        "agrees": costs.agrees,
    }


def _verdict(privacy: Privacy, costs: PathCosts | None) -> str:
    if costs is None:
        return "This release is not private, and says so: there is no promise to check."
    rho = f"rho {float(costs.budget):.6g}, for " if costs.currency == "rho" else ""
    delta = f" and delta {float(privacy.delta):g}" if privacy.delta else ""
    return (
        f"The noise agrees with the promise: along no path do prices add up to more than is stated, "
        f"{rho}epsilon {float(privacy.epsilon):g}{delta}, for {privacy.unit}. Prices of counts were recomputed from "
        f"their noise; other prices are the ledger's word."
    )


def _further(found: Release) -> str:
    """What else was made of the noisy counts."""
    slopes = "; density may rise or fall inside a leaf" if found.estimates.slope is not None else ""
    return slopes + ("; in whole numbers of 0 or more" if found.method.get("integers") else "")

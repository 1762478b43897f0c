"""`veilmap info`: show what a release guarantees, what its budget was spent on, and its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli._options import FormatOption, ReleaseArgument
from veilmap.cli._output import Format, print_csv, print_table, warn_if_not_private
from veilmap.errors import BadInput

if TYPE_CHECKING:
    from veilmap.releases.cost_check import CheckedCosts
    from veilmap.releases.privacy import Privacy
    from veilmap.releases.release import Release
    from veilmap.releases.signatures import Verification

HELP_EXAMPLE = "Example: veilmap info roads.parquet --check"
RELEASE_LIMITS = (
    "It has no exact facts about anyone. Counts of few people are mostly noise, by design.",
    "Its error bars cover the noise and, approximately, how unevenly points lie within leaves. They are less reliable "
    "with many identical points or many axes.",
    "It protects {unit}. Someone who contributes more, or whose data can be inferred from other people's rows, is "
    "protected less.",
    "Its guarantee is for this release alone. Further releases of the same data add their epsilons to this one.",
)


def info(
    path: ReleaseArgument,
    key: Annotated[
        Path | None, typer.Option("--key", help="The owner's public key, to check that they signed this file.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Recompute the privacy cost from the noise in the file, along the most expensive path of the tree.",
        ),
    ] = False,
    output: FormatOption = Format.TABLE,
) -> None:
    """Show what a release guarantees, what its budget was spent on, and what it cannot do.

    With --key, the exit status is 2 unless the file has a valid signature by the owner of the key.

    With --check, the cost of the counts is recomputed from their noise. A file whose noise costs more than it states is
    refused with exit status 2.
    """
    import veilmap as vm

    release = vm.load(path)
    signature = _signature(path, key)
    if output is not Format.TABLE:
        warn_if_not_private(release)
    if check:
        print_check(release, signature.statement, output)
    elif output is Format.TABLE:
        print_info(release, path, signature.statement)
    elif output is Format.JSON:
        typer.echo(json.dumps({**release.header(), "signature": signature.statement}, indent=2, ensure_ascii=False))
    else:
        print_csv(
            ["what", "mechanism", "epsilon", "rho", "delta"],
            [[c.what, c.mechanism, *map(float, (c.epsilon, c.rho, c.delta))] for c in release.privacy.ledger],
        )
    if key is not None and not signature:
        raise BadInput(f"The signature of {path}: {signature.statement}.")


def print_info(release: Release, path: Path, signature: str) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.panel import Panel

    console, privacy = Console(), release.privacy
    style = "green" if privacy.private else "bold red"
    console.print(Panel(privacy.statement(), title=escape(str(path)), border_style=style))
    facts = _facts(release) | {"Signature": signature}
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
    console.print("[bold]Limits of this release[/bold]")
    for limit in RELEASE_LIMITS:
        console.print(f"- {limit.format(unit=privacy.unit)}", soft_wrap=True, markup=False)


def _facts(release: Release) -> dict[str, str]:
    privacy, tree = release.privacy, release.estimates.tree
    total = release.count([*release.domain.lo, *release.domain.hi])
    method = release.method
    return {
        "Protects": f"{privacy.unit} (neighbouring data sets: {privacy.neighbours})",
        "Budget": f"epsilon {float(privacy.epsilon):g} ({privacy.epsilon}), delta {float(privacy.delta):g}"
        + (f"; rho {float(privacy.rho):g}" if privacy.rho else ""),
        "Spent": f"{'rho' if privacy.rho else 'epsilon'} {float(privacy.spent):g}, by {', '.join(privacy.mechanisms)}"
        if privacy.private
        else "not applicable, because this release is not private",
        "Method": f"{method['name']}: {method['structure']['name']}, {tree.height} levels, "
        f"{method['budget']['name']} budget, {method['estimate']}{_further_estimation(release)}",
        "Domain": str(release.domain) + (f" ({release.domain.crs})" if release.domain.crs else ""),
        "Contents": f"{tree.size:,} nodes, of which {int(tree.is_leaf.sum()):,} are leaves; "
        f"estimated number of rows: {float(total.estimate[0]):,.0f}",
        "Created": f"{release.provenance['created']} by {release.provenance['software']}",
        "File": "intact (its checksum matches)",
    }


def _further_estimation(release: Release) -> str:
    slopes = "; density may rise or fall inside a leaf" if release.estimates.slope is not None else ""
    return slopes + ("; rounded to whole numbers of 0 or more" if release.method.get("integers") else "")


def _signature(path: Path, public: Path | None) -> Verification:
    """Verify the signature with a public key, or say whether there is one to verify."""
    from veilmap.releases.signatures import Verification, signature_place, verify

    if public is not None:
        return verify(path, public)
    place = signature_place(path)
    return Verification(False, f"not checked: give --key to check {place}" if place.exists() else "none")


def print_check(release: Release, signature: str, output: Format) -> None:
    """Print the cost recomputed from the noise beside the cost that the release states."""
    privacy = release.privacy
    costs = release.path_costs() if privacy.private else None
    if output is Format.JSON:
        answer = {
            "private": privacy.private,
            "epsilon": float(privacy.epsilon),
            "delta": float(privacy.delta),
            "rho": None if privacy.rho is None else float(privacy.rho),
            "path": None if costs is None else _check_to_json(costs),
            "verdict": _verdict(privacy, costs),
            "signature": signature,
        }
        typer.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    rows = [] if costs is None else _check_rows(costs)
    if output is Format.CSV:
        print_csv(["step", "noise_variance", "price"], rows)
        return
    if costs is not None:
        cells = [[step, f"{variance:.6g}" if variance != "" else "", f"{price:.6g}"] for step, variance, price in rows]
        print_table(["on the most expensive path", "noise variance", costs.currency], cells)
    typer.echo(_verdict(privacy, costs))


def _check_rows(costs: CheckedCosts) -> list[list[Any]]:
    """Return the steps of the path: description, noise variance if it is published, and price."""
    return [
        *([f"count on level {level}", variance, price] for level, variance, price in costs.levels),
        *([f"{c.what} ({c.mechanism})", "", float(c.epsilon + c.rho)] for c in costs.other),
        ["sum", "", costs.total],
        [f"stated {costs.currency}", "", float(costs.budget)],
    ]


def _check_to_json(costs: CheckedCosts) -> dict[str, Any]:
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


def _verdict(privacy: Privacy, costs: CheckedCosts | None) -> str:
    if costs is None:
        return "This release is not private and says so. There is no guarantee to check."
    rho = f"rho {float(costs.budget):.6g}, which gives " if costs.currency == "rho" else ""
    delta = f" and delta {float(privacy.delta):g}" if privacy.delta else ""
    return (
        f"The noise agrees with the guarantee: no path of the tree costs more than the stated {rho}"
        f"epsilon {float(privacy.epsilon):g}{delta}, for {privacy.unit}. The prices of counts were recomputed from "
        f"their noise; all other prices are as the file states them."
    )

"""`veilmap audit`: test whether a method leaks more than it claims."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilmap.cli._options import (
    DeltaOption,
    FormatOption,
    HeightOption,
    NoiseOption,
    SampleOption,
    SetOption,
    must_have_folder,
    typed_settings,
)
from veilmap.cli._output import Format, print_csv, print_table, progress, say
from veilmap.errors import BadInput

if TYPE_CHECKING:
    from veilmap.auditing import Audit
    from veilmap.method.method import Method

HELP_EXAMPLE = "Example: veilmap audit quad-opt --epsilon 1 -o audit.png"
CSV_COLUMNS = ["method", "epsilon", "delta", "bound", "confidence", "releases", "neighbours", "reading", "passed"]


def audit(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help="Method names, or all; a JSON file that describes a method; or MODULE:NAME in your own code.",
        ),
    ],
    epsilon: Annotated[str, typer.Option("--epsilon", help="The claimed epsilon.")],
    releases: Annotated[int, typer.Option("--releases", help="The number of releases per method.")] = 20_000,
    confidence: Annotated[float, typer.Option("--confidence", help="The confidence level of the bound.")] = 0.999,
    delta: DeltaOption = None,
    height: HeightOption = None,
    sample: SampleOption = None,
    noise: NoiseOption = None,
    settings: SetOption = None,
    max_rows_per_unit: Annotated[
        int | None,
        typer.Option("--max-rows-per-unit", help="Audit the protection of people with this many rows."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="A seed that makes the noise repeatable.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A PNG picture of the audit, for a single method.")
    ] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Test whether a method leaks more than it claims, with many releases of synthetic data sets.

    Prints a certified lower bound for the true epsilon, and checks the noise and the outputs. A bound above the claimed
    epsilon, or a failed check, proves a bug and ends with exit status 1. A bound below the claim proves nothing, but a
    strong audit comes close to the claim.
    """
    from veilmap.auditing import audit as run
    from veilmap.method.registry import METHODS
    from veilmap.testing import fixed_entropy

    names = [name for name, method in METHODS.items() if method.private] if methods == ["all"] else methods
    chosen = [_method(text) for text in names]
    if out is not None:
        if len(chosen) > 1:
            raise BadInput("A picture shows one method. Leave --out out, or give a single method.")
        if out.suffix.lower() != ".png":  # this also keeps it from overwriting a release or a ledger
            raise BadInput(f"The picture of an audit is a PNG file, got {out}. Choose a name that ends in .png.")
        must_have_folder(out)
    audits = []
    with progress("Audit") as tell:
        for k, method in enumerate(chosen):
            with nullcontext() if seed is None else fixed_entropy(seed):
                audits.append(
                    run(
                        method,
                        epsilon,
                        releases=releases,
                        confidence=confidence,
                        delta=delta,
                        height=height,
                        sample=sample,
                        noise=noise,
                        options=typed_settings(settings),
                        max_rows_per_unit=max_rows_per_unit,
                        progress=_progress_of(tell, k, names),
                    )
                )
    _print(audits, output)
    if out is not None:
        audits[0].plot(out)
        typer.echo(f"Wrote {out}.", err=output is not Format.TABLE)
    if not all(audited.passed for audited in audits):
        raise typer.Exit(1)


def _progress_of(tell: Callable[..., None], k: int, names: list[str]) -> Callable[[float], None]:
    """Return the progress function of the audit of method ``k``."""
    return lambda fraction: tell((k + fraction) / len(names), f"of {names[k]}")


def _print(audits: list[Audit], output: Format) -> None:
    if output is Format.JSON:
        typer.echo(json.dumps([_record(audited) for audited in audits], indent=2))
        return
    if output is Format.CSV:
        print_csv(CSV_COLUMNS, [[_record(audited)[name] for name in CSV_COLUMNS] for audited in audits])
        return
    print_table(
        ["method", "epsilon is at least", "claim", "bound/claim", "found by"],
        [
            [
                audited.method,
                f"{audited.bound:.3f}",
                f"{float(audited.epsilon):g}",
                f"{100 * audited.bound / float(audited.epsilon):.0f} %" + ("" if audited.within else ": BROKEN"),
                f"{audited.reading}; {audited.neighbours}",
            ]
            for audited in audits
        ],
    )
    for audited in audits:
        checks = [check for check in audited.checks if len(audits) == 1 or not check.passed]
        if checks:
            print_table(
                [f"checks of {audited.method}", "", "result"],
                [[check.what, "passed" if check.passed else "FAILED", check.found] for check in checks],
            )
    say(_verdict(audits))


def _verdict(audits: list[Audit]) -> str:
    broken = [audited.method for audited in audits if not audited.passed]
    if broken:
        return f"The audit found a privacy violation or a failed check: {', '.join(broken)}."
    per_method = "" if len(audits) == 1 else " per method"
    return (
        f"No violation was found in {audits[0].releases:,} releases{per_method}. A bound holds with "
        f"{100 * audits[0].confidence:.6g} % confidence. A bound below the claim does not prove the claim."
    )


def _record(audited: Audit) -> dict[str, Any]:
    return {
        "method": audited.method,
        "epsilon": float(audited.epsilon),
        "delta": float(audited.delta),
        "bound": round(audited.bound, 4),
        "within": audited.within,
        "confidence": round(audited.confidence, 9),
        "releases": audited.releases,
        "neighbours": audited.neighbours,
        "reading": audited.reading,
        "probability_at_least": audited.certificate.more,
        "probability_at_most": audited.certificate.fewer,
        "checks": [{"what": c.what, "passed": c.passed, "found": c.found} for c in audited.checks],
        "passed": audited.passed,
    }


def _method(text: str) -> str | Method:
    """Return a method by its name in the registry, from a JSON file, or from the user's own code."""
    if text.endswith(".json"):
        return _from_file(Path(text))
    module, colon, name = text.partition(":")
    return _from_code(module, name) if colon else text


def _from_file(path: Path) -> Method:
    from veilmap.method.method import Method

    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return Method.from_json(record.get("method", record))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise BadInput(
            f"{path} does not describe a method. It needs the 'method' entry that 'veilmap info --format json' prints."
        ) from None


def _from_code(module: str, name: str) -> Method:
    from importlib import import_module

    from veilmap.method.method import Method

    sys.path.insert(0, str(Path.cwd()))
    try:
        method = getattr(import_module(module), name)
    except Exception as error:  # an uncaught error would end with exit status 1, which means a broken claim
        reason = f"{type(error).__name__}: {error}"
        raise BadInput(f"Cannot import {name!r} from the module {module!r} ({reason}). Give MODULE:NAME.") from None
    finally:
        sys.path.remove(str(Path.cwd()))
    if not isinstance(method, Method):
        raise BadInput(f"{module}:{name} is not a veilmap.Method, but {type(method).__name__}.")
    return method

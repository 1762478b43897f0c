"""veilmap audit: try to prove that a method tells more than it claims."""

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

EXAMPLE = "Example: veilmap audit quad-opt --epsilon 1 -o audit.png"
COLUMNS = ["method", "epsilon", "delta", "bound", "confidence", "releases", "neighbours", "reading", "passed"]


def audit(
    methods: Annotated[
        list[str],
        typer.Argument(
            metavar="METHOD...",
            help="Names of methods, or all; a JSON file of a method; or MODULE:NAME, of one in your own code.",
        ),
    ],
    epsilon: Annotated[str, typer.Option("--epsilon", help="The claim.")],
    releases: Annotated[int, typer.Option("--releases", help="How many are made, of each method.")] = 20_000,
    confidence: Annotated[float, typer.Option("--confidence", help="With which the bound holds.")] = 0.999,
    delta: DeltaOption = None,
    height: HeightOption = None,
    sample: SampleOption = None,
    noise: NoiseOption = None,
    settings: SetOption = None,
    max_rows_per_unit: Annotated[
        int | None, typer.Option("--max-rows-per-unit", help="Audit people with many rows: so many are looked at.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Draw the same noise again.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A picture of it, PNG; of one method.")] = None,
    output: FormatOption = Format.TABLE,
) -> None:
    """Try to prove that a method tells more than it claims, from many releases of made-up rows.

    Prints a certified lower bound for epsilon and checks noise and outputs. A bound above epsilon, or a check that
    fails, proves a bug: exit status 1. A bound below epsilon proves nothing, but that of a good audit comes near.
    """
    from veilmap.auditing import audit as run
    from veilmap.method.registry import METHODS
    from veilmap.testing import fixed_entropy

    listed = [name for name, method in METHODS.items() if method.private] if methods == ["all"] else methods
    chosen = [_method(text) for text in listed]
    if out is not None:
        if len(chosen) > 1:
            raise BadInput("A picture is of one method: leave --out away, or give one.")
        if out.suffix.lower() != ".png":  # nor is a release or a ledger written over
            raise BadInput(f"The picture of an audit is a PNG file, got {out}: choose a name that ends in .png.")
        must_have_folder(out)
    found = []
    with progress("Audit") as tell:
        for k, method in enumerate(chosen):
            with nullcontext() if seed is None else fixed_entropy(seed):
                found.append(
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
                        progress=_part(tell, k, listed),
                    )
                )
    _print(found, output)
    if out is not None:
        found[0].plot(out)
        typer.echo(f"Wrote {out}.", err=output is not Format.TABLE)
    if not all(audited.passed for audited in found):
        raise typer.Exit(1)


def _part(tell: Callable[..., None], k: int, listed: list[str]) -> Callable[[float], None]:
    return lambda part: tell((k + part) / len(listed), f"of {listed[k]}")


def _print(found: list[Audit], output: Format) -> None:
    if output is Format.JSON:
        typer.echo(json.dumps([_record(audited) for audited in found], indent=2))
        return
    if output is Format.CSV:
        print_csv(COLUMNS, [[_record(audited)[name] for name in COLUMNS] for audited in found])
        return
    print_table(
        ["method", "epsilon is at least", "of", "of the claim", "told by"],
        [
            [
                audited.method,
                f"{audited.bound:.3f}",
                f"{float(audited.epsilon):g}",
                f"{100 * audited.bound / float(audited.epsilon):.0f} %" + ("" if audited.within else ": BROKEN"),
                f"{audited.reading}; {audited.neighbours}",
            ]
            for audited in found
        ],
    )
    for audited in found:
        checks = [check for check in audited.checks if len(found) == 1 or not check.passed]
        if checks:
            print_table(
                [f"checks of {audited.method}", "", "found"],
                [[check.what, "passed" if check.passed else "FAILED", check.found] for check in checks],
            )
    say(_verdict(found))


def _verdict(found: list[Audit]) -> str:
    broken = [audited.method for audited in found if not audited.passed]
    if broken:
        return f"Not as private as claimed, or not as it should be: {', '.join(broken)}."
    them, of_each = ("it", "") if len(found) == 1 else ("them", " of each")
    return (
        f"Nothing was found against {them} in {found[0].releases:,} releases{of_each}. A bound holds with a confidence "
        f"of {100 * found[0].confidence:.6g} %; that it is below the claim is no proof."
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
    """A name of the registry; or a file, or code, of the person who runs this."""
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
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.") from None
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise BadInput(
            f"{path} is no method: it should have what 'veilmap info --format json' shows as method."
        ) from None


def _from_code(module: str, name: str) -> Method:
    from importlib import import_module

    from veilmap.method.method import Method

    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # whatever it is: exit status 1 would say that a claim is broken
        why = f"{type(error).__name__}: {error}"
        raise BadInput(f"There is no {name!r} in a module {module!r} here ({why}): give MODULE:NAME.") from None
    finally:
        sys.path.remove(str(Path.cwd()))
    if not isinstance(found, Method):
        raise BadInput(f"{module}:{name} is no veilmap.Method, but {type(found).__name__}.")
    return found

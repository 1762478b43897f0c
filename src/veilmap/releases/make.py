"""The owner's verb: points in, release out."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from contextvars import Context
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.metadata import version

import numpy as np

from veilmap.accounts import Ledger, must_need_the_statement, protected_unit
from veilmap.amounts import exact_delta, exact_epsilon
from veilmap.budget import level_shares
from veilmap.domain import Domain
from veilmap.errors import BadInput, TooLarge
from veilmap.fileformat import geoparquet
from veilmap.memory import free_memory
from veilmap.method import DEFAULT_METHOD, Estimate, Method, Noise, named
from veilmap.needs import BYTES_A_NODE
from veilmap.privacy import Privacy
from veilmap.published import Release
from veilmap.review import Review
from veilmap.structures import Budget, NodeBudget
from veilmap.vault import measure, price_of, seal

_version = cache(version)  # reading it takes longer than a small release

BYTES_OF_A_TREE = 80
"""What one node takes of a tree that is not counted yet."""


def release(
    points: object,
    domain: Domain,
    epsilon: object,
    method: str | Method = DEFAULT_METHOD,
    height: int | None = None,
    prune: float | None = None,
    progress: Callable[[float], None] = lambda part: None,
    *,
    delta: object = None,
    sample: object = None,
    noise: str | Noise | None = None,
    estimate: str | Estimate | None = None,
    budget: Budget | None = None,
    options: Mapping[str, object] | None = None,
    unit: object = None,
    max_rows_per_unit: int | None = None,
    allow_nonprivate: bool = False,
    ledger: str | os.PathLike[str] | Ledger | None = None,
    dataset: str | None = None,
    part: str | None = None,
    one_row_per_unit: bool = False,
) -> Release:
    """Publish points as a differentially private decomposition.

    Parameters
    ----------
    points
        An (n, d) array; a pandas, polars, pyarrow or geopandas table; a DuckDB relation; a Spark DataFrame; or the
        path of a CSV, Parquet, GeoParquet, GeoPackage or Shapefile, or a list of paths. Columns go by the names of
        the domain's axes; a geometry column gives the first two.
    domain
        The public box. Rows outside it, or with a missing coordinate, are dropped.
    epsilon
        The privacy budget: how much any one row may matter. It has no default.
    method
        A name of the registry, or a ``Method`` composed by hand.
    height
        Levels below the root, for methods that have it to set; a quadtree chooses it from a noisy total if not given.
    prune
        Drop what lies below nodes whose estimate is under this threshold.
    progress
        Called now and then with the part of the input that has been read.
    delta
        The chance that the promise may fail with, for methods whose promise is not pure: those with Gaussian noise
        or smooth-sensitivity medians. Far below one over the number of people.
    sample
        For methods with medians: find them on a random sample of this rate. Faster, at the same privacy.
    noise
        ``discrete-laplace``, or ``discrete-gaussian`` with a ``delta``.
    estimate
        What is made of the noisy counts: ``noisy-counts`` (nothing), ``least-squares``, ``shrink`` (for data with much
        empty space) or ``nonnegative``. Every method has its own; this costs no privacy.
    budget
        How epsilon is shared among levels or nodes, like ``Uniform()`` or ``Workload(boxes)``.
    options
        Further settings of the method's structure, by name: ``{"switch": 2, "median": "noisy-mean"}``.
    unit, max_rows_per_unit
        Protect people with many rows: the column that says whose row it is, and how many rows of one person are
        looked at, chosen at random. The noise grows with that number. For an array, one id per row takes the place of
        the column: ``unit=ids``, or ``unit={"driver_id": ids}`` with the name that the promise and a ledger need.
    allow_nonprivate
        Let the yardsticks ``kd-pure`` and ``kd-true`` through. What they make says *not private* everywhere.
    ledger, dataset, part
        Charge the budget of this data set (or of one of its parts) in this ledger, before the data is looked at. A
        release that does not fit is refused; one that fails stays charged. A data set with a unit takes only
        releases with that ``unit``.
    one_row_per_unit
        Your statement, for the ledger to record, that each unit of the data set has at most one row in ``points``: a
        release without a ``unit`` then protects it, and is charged.
    """
    if not isinstance(domain, Domain):
        raise BadInput(
            f"The domain must be a veilmap.Domain, got {type(domain).__name__}: it is never taken from the data."
        )
    total = exact_epsilon(epsilon)
    chosen = resolve(method, height, prune, sample, noise, budget, options, estimate)
    chance = checked_delta(chosen, delta)
    if not chosen.private and not allow_nonprivate:
        raise BadInput(
            f"{chosen.name} is a yardstick that publishes something exact, and is not private: take another method, "
            f"or allow_nonprivate=True (--allow-nonprivate) for an experiment on data that is public."
        )
    account = _account(ledger, dataset, part, chosen)
    whose, ids = _named_unit(unit)
    _must_be_named(account, whose, ids, one_row_per_unit)
    chosen = settled(chosen, domain)
    must_fit(chosen, domain)
    if domain.dimensions == 2:
        geoparquet(domain)  # a file that could not be written is refused before the budget is spent
    protected = "one row" if ids is None else protected_unit("unit" if whose is None else whose, max_rows_per_unit)
    sealed = seal(points, domain, ids, max_rows_per_unit)
    receipt = None
    if account is not None and dataset is not None:
        _rehearse(chosen, domain, total, chance, max_rows_per_unit)
        price, amount = price_of(chosen, total, chance, sealed.most_rows)
        receipt = account.charge(
            dataset,
            total,
            chance or None,
            what=f"release by {chosen.name}",
            part=part,
            unit=whose,
            max_rows_per_unit=max_rows_per_unit,
            one_row_per_unit=one_row_per_unit,
            rho=amount if price.currency == "rho" else None,
            method=hashlib.sha256(json.dumps(chosen.to_json(), sort_keys=True).encode()).hexdigest(),
            files=_files(points),
        )
    with receipt or nullcontext():
        review = Review(domain, chosen)
        noisy = measure(sealed, chosen, total, progress, chance, allow_nonprivate, review)
        if receipt is not None and not noisy.private:
            receipt.note("not private")
        concentrated = sum((charge.rho for charge in noisy.charges), Fraction(0))
        return Release(
            domain=domain,
            method=chosen.to_json(),
            privacy=Privacy(
                epsilon=total,
                ledger=noisy.charges,
                private=noisy.private,
                delta=chance,
                rho=concentrated or None,
                unit=protected,
            ),
            estimates=review.estimates(noisy),
            provenance=provenance(),
            receipt=receipt,
        )


def _account(
    ledger: str | os.PathLike[str] | Ledger | None, dataset: str | None, part: str | None, method: Method
) -> Ledger | None:
    if (ledger is None) != (dataset is None) or (part is not None and dataset is None):
        raise BadInput(
            "A release is charged to a data set in a ledger: give both or none, ledger= and dataset= "
            "(--ledger, or VEILMAP_LEDGER, and --dataset)."
        )
    if ledger is None:
        return None
    if not method.private:
        raise BadInput(f"{method.name} is not private, and no budget pays for it: leave the ledger out.")
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


def _rehearse(method: Method, domain: Domain, epsilon: Fraction, delta: Fraction, most_rows: int | None) -> None:
    """Release no rows at all: a method that fails whatever the data is should fail before it is charged."""
    nobody = seal(np.zeros((0, domain.dimensions)), domain, None if most_rows is None else np.zeros(0, int), most_rows)
    # in a context of its own, so that fixed random bits are not used up
    Context().run(measure, nobody, method, epsilon, delta=delta)


def _files(points: object) -> list[str | os.PathLike[str]]:
    """What is read, if points are in files."""
    some = points if isinstance(points, (list, tuple)) else [points]
    return [one for one in some if isinstance(one, (str, os.PathLike))]


def _named_unit(unit: object) -> tuple[str | None, object]:
    """Return the name of the unit, if it has one, and what tells units apart: a column, or one id per row."""
    name, ids = unit if isinstance(unit, str) else None, unit
    if isinstance(unit, Mapping):
        name, ids = next(iter(unit.items())) if len(unit) == 1 else (None, None)
        if not isinstance(name, str) or ids is None or isinstance(ids, str):
            raise BadInput("Ids with a name are one pair, like unit={'driver_id': ids}; a column is unit='driver_id'.")
    if name is not None and not (name.isprintable() and name.strip()):
        raise BadInput(f"The name of a unit is printed in the promise, got {name!r}: rename the column.")
    return name, ids


def _must_be_named(account: Ledger | None, name: str | None, ids: object, one_row_per_unit: bool) -> None:
    """Refuse what a ledger cannot compare with its unit, and a statement that no ledger records."""
    must_need_the_statement(one_row_per_unit, ids)
    if account is None and one_row_per_unit:
        raise BadInput(
            "one_row_per_unit=True (--one-row-per-unit) is a statement for a ledger to record: leave it out, or give "
            "ledger= and dataset= (--ledger and --dataset)."
        )
    if account is not None and ids is not None and name is None:
        raise BadInput(
            "A ledger knows units by their names, and an array of ids has none: give the name of the data set's unit, "
            "like unit={'driver_id': ids}."
        )


def checked_delta(method: Method, delta: object) -> Fraction:
    """The δ of a release: given if its method needs one, and only then."""
    if method.needs_delta and delta is None:
        raise BadInput(
            f"The promise of {method.name} with this noise or these medians is (epsilon, delta): give a delta."
        )
    if delta is not None and not method.needs_delta:
        raise BadInput(f"The promise of {method.name} is pure: leave delta out, or choose the noise discrete-gaussian.")
    return Fraction(0) if delta is None else exact_delta(delta)


def resolve(
    method: str | Method,
    height: int | None,
    prune: float | None,
    sample: object = None,
    noise: str | Noise | None = None,
    budget: Budget | None = None,
    options: Mapping[str, object] | None = None,
    estimate: str | Estimate | None = None,
) -> Method:
    """The method that a caller means."""
    if isinstance(method, str):
        found = named(method, height=height, prune_below=prune, sample=sample, options=options)
        if noise is not None and found.noise is Noise.NONE:
            raise BadInput(f"{method} has exact counts: leave the noise out, or take another method.")
        found = found if noise is None else replace(found, noise=_noise(noise))
        found = found if estimate is None else _estimated(found, estimate)
        return found if budget is None else replace(found, budget=budget)
    if not isinstance(method, Method):
        raise BadInput(f"A method is a name or a veilmap.Method, got {type(method).__name__}.")
    if any(option is not None for option in (height, prune, sample, noise, estimate, budget, options)):
        raise BadInput(
            "estimate, height, prune, sample, noise, budget and options go with a method's name: "
            "a veilmap.Method has its own."
        )
    return method


def _noise(noise: str | Noise) -> Noise:
    kinds = [kind.value for kind in Noise if kind is not Noise.NONE]
    value = noise.value if isinstance(noise, Noise) else noise
    if value not in kinds:
        raise BadInput(f"The noise of a release is {' or '.join(kinds)}, got {value!r}.")
    return Noise(value)


def _estimated(method: Method, estimate: str | Estimate) -> Method:
    """The method with another estimate; noisy counts have no slopes."""
    kinds = [kind.value for kind in Estimate]
    value = estimate.value if isinstance(estimate, Estimate) else estimate
    if value not in kinds:
        raise BadInput(f"The estimate of a release is {', '.join(kinds[:-1])} or {kinds[-1]}, got {value!r}.")
    kind = Estimate(value)
    return replace(method, estimate=kind, slopes=method.slopes and kind is not Estimate.NOISY_COUNTS)


def settled(method: Method, domain: Domain) -> Method:
    """With a height that suits the domain, where the method has one and it was not given."""
    settle = getattr(method.structure, "settled", None)
    return method if settle is None else replace(method, structure=settle(domain))


def must_fit(method: Method, domain: Domain) -> None:
    """Refuse what would not fit in memory: a question of public numbers only."""
    height, axes = method.structure.height, domain.dimensions
    if height is None:
        return _must_fit_at_its_largest(method, domain)
    halvings = method.structure.halvings(axes) if hasattr(method.structure, "halvings") else height
    if halvings > domain.bits:
        raise BadInput(
            f"This domain can be halved {domain.bits} times along each axis, got height={height}: choose a smaller one."
        )
    if not isinstance(method.budget, NodeBudget):
        level_shares(method.budget, Fraction(1), height)  # a budget that does not fit the tree is refused here
    size = method.structure.nodes(axes)
    if size is not None and (need := size * BYTES_A_NODE) > (free := free_memory()):
        raise TooLarge(
            f"A tree of height {height} over {axes} axes has {size:.3g} nodes and would take "
            f"{need / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free: choose a smaller height."
        )


def _must_fit_at_its_largest(method: Method, domain: Domain) -> None:
    """Of a tree whose height follows from noisy numbers. Few become so large: so it need not fit while it is saved."""
    structure = method.structure
    known = structure.nodes(domain.dimensions)
    most: int = getattr(structure, "most_nodes", 0) if known is None else known
    if (need := most * BYTES_OF_A_TREE) > (free := free_memory()):
        raise TooLarge(
            f"A tree of {method.name} may have about {most:.3g} nodes, and take {need / 2**30:.3g} GiB of memory; "
            f"{free / 2**30:.3g} GiB are free: take a method with a height, like quad-opt with height 8."
        )


def provenance() -> dict[str, str]:
    """What made the release: software and time, nothing of the data or its place."""
    return {
        "software": f"veilmap {_version('veilmap')}",
        "created": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "pyarrow": _version("pyarrow"),
    }

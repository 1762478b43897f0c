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
from fractions import Fraction
from functools import cache
from importlib.metadata import version

import numpy as np

from veilmap.answers.calibration import calibrate, predict_grids
from veilmap.budgets import Budget
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.estimate.pipeline import estimate as estimate_nodes
from veilmap.method.method import Method, Noise, PostProcessing
from veilmap.method.registry import DEFAULT_METHOD
from veilmap.method.request import ReleaseRequest
from veilmap.releases.ledger_file import Ledger, Receipt, must_need_the_statement, protected_unit
from veilmap.releases.privacy import Privacy
from veilmap.releases.release import Release
from veilmap.releases.release_file import geoparquet
from veilmap.vault import NoisyTree, measure, noise_and_budget, seal

_version = cache(version)  # reading it takes longer than a small release


def release(
    points: object,
    domain: Domain,
    epsilon: object,
    method: str | Method = DEFAULT_METHOD,
    height: int | None = None,
    prune: float | None = None,
    progress: Callable[[float], None] = lambda fraction: None,
    *,
    delta: object = None,
    sample: object = None,
    noise: str | Noise | None = None,
    estimate: str | PostProcessing | None = None,
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
            f"The domain must be a veilmap.Domain, got {type(domain).__name__}. It is never taken from the data."
        )
    request = ReleaseRequest.of(
        epsilon,
        method,
        height=height,
        prune=prune,
        delta=delta,
        sample=sample,
        noise=noise,
        estimate=estimate,
        budget=budget,
        options=options,
        max_rows_per_unit=max_rows_per_unit,
    )
    _must_be_private(request.method, allow_nonprivate)
    account = _account(ledger, dataset, part, request.method)
    unit_name, ids = _named_unit(unit)
    _must_be_named(account, unit_name, ids, one_row_per_unit)
    request = request.settled(domain)
    if domain.dimensions == 2:
        geoparquet(domain)  # a file that could not be written is refused before the budget is spent
    sealed = seal(points, domain, ids, max_rows_per_unit)
    receipt = None
    if account is not None and dataset is not None:
        _rehearse(request, domain)
        receipt = _charge(account, request, dataset, part, unit_name, one_row_per_unit, _files(points))
    with receipt or nullcontext():
        measured = measure(
            sealed, request.method, request.epsilon, progress, request.delta, allow_nonprivate=allow_nonprivate
        )
        nodes = estimate_nodes(measured.tree, request.method, unevenness_soon=measured.check is not None)
        if measured.check is not None:
            grids = predict_grids(domain, request.method, measured.tree, nodes)
            residuals = measured.check(tuple(grid.prediction for grid in grids))
            nodes = calibrate(nodes, grids, residuals)
        if receipt is not None and not measured.tree.private:
            receipt.note("not private")
        promise = _promise(request, measured.tree, unit_name, ids)
        return Release(domain, request.method.to_json(), promise, nodes, provenance(), receipt)


def _must_be_private(method: Method, allow_nonprivate: bool) -> None:
    if not method.private and not allow_nonprivate:
        raise BadInput(
            f"{method.name} is a non-private baseline: it publishes something exact. Choose another method, or "
            f"allow_nonprivate=True (--allow-nonprivate) for an experiment on public data."
        )


def _promise(request: ReleaseRequest, noisy: NoisyTree, unit_name: str | None, ids: object) -> Privacy:
    """State what the release guarantees, and what was charged for it."""
    unit = "one row" if ids is None else protected_unit(unit_name or "unit", request.max_rows_per_unit)
    rho = sum((charge.rho for charge in noisy.charges), Fraction(0))
    return Privacy(
        epsilon=request.epsilon,
        ledger=noisy.charges,
        private=noisy.private,
        delta=request.delta,
        rho=rho or None,
        unit=unit,
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


def _charge(
    account: Ledger,
    request: ReleaseRequest,
    dataset: str,
    part: str | None,
    unit_name: str | None,
    one_row_per_unit: bool,
    files: list[str | os.PathLike[str]],
) -> Receipt:
    """Charge the release to its data set in the ledger, before the data is read."""
    noise, budget = noise_and_budget(request.method, request.epsilon, request.delta, request.rows_per_unit)
    return account.charge(
        dataset,
        request.epsilon,
        request.delta or None,
        what=f"release by {request.method.name}",
        part=part,
        unit=unit_name,
        max_rows_per_unit=request.max_rows_per_unit,
        one_row_per_unit=one_row_per_unit,
        rho=budget if noise.currency == "rho" else None,
        method=hashlib.sha256(json.dumps(request.method.to_json(), sort_keys=True).encode()).hexdigest(),
        files=files,
    )


def _rehearse(request: ReleaseRequest, domain: Domain) -> None:
    """Release no rows at all: a method that fails for any data should fail before it is charged."""
    most = request.max_rows_per_unit
    nobody = seal(np.zeros((0, domain.dimensions)), domain, None if most is None else np.zeros(0, int), most)
    # in a context of its own, so that fixed random bits are not used up
    Context().run(measure, nobody, request.method, request.epsilon, delta=request.delta)


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


def provenance() -> dict[str, str]:
    """What made the release: software and time, nothing of the data or its place."""
    return {
        "software": f"veilmap {_version('veilmap')}",
        "created": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "pyarrow": _version("pyarrow"),
    }

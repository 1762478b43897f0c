"""Make a release: check the arguments, charge the ledger, measure, estimate, calibrate."""

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

_version = cache(version)  # looking it up takes longer than a small release


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
    """Publish points as a differentially private spatial decomposition.

    Parameters
    ----------
    points
        An (n, d) array; a pandas, polars, pyarrow or geopandas table; a DuckDB relation; a Spark DataFrame; or the
        path of a CSV, Parquet, GeoParquet, GeoPackage, GeoJSON, FlatGeobuf or Shapefile, or a list of paths. Columns
        are found by the names of the domain's axes; a geometry column gives the first two.
    domain
        The public box. Rows outside it, or with a missing coordinate, are dropped.
    epsilon
        The privacy budget: how much the release may depend on any one row. It has no default.
    method
        The name of a method, or a ``Method`` of your own.
    height
        Number of levels below the root, for methods that have this option. By default, a quadtree chooses it from a
        noisy count of all rows.
    prune
        Remove the descendants of nodes whose estimate is below this threshold.
    progress
        A function that is called from time to time with the fraction of the input that has been read.
    delta
        The probability with which the guarantee may fail: required with Gaussian noise or smooth-sensitivity medians,
        not allowed otherwise. It should be far below one over the number of people.
    sample
        Rate of the random sample on which medians are found, for methods with medians. Sampling is faster, and the
        guarantee stays the same.
    noise
        ``discrete-laplace``, or ``discrete-gaussian`` with a ``delta``.
    estimate
        Post-processing of the noisy counts: ``noisy-counts`` (none), ``least-squares``, ``shrink`` (for data with large
        empty areas) or ``nonnegative``. Each method has a default. Post-processing costs no privacy.
    budget
        How epsilon is divided among levels or nodes, like ``Uniform()`` or ``Workload(boxes)``.
    options
        Further options of the method's structure, by name: ``{"switch": 2, "median": "noisy-mean"}``.
    unit, max_rows_per_unit
        Protect people with many rows: the name of the column that identifies the person, and the maximum number of
        rows per person. Further rows are dropped at random. The noise grows with this maximum. For an array, give one
        id per row: ``unit=ids``, or ``unit={"driver_id": ids}`` to name the unit in the guarantee and in a ledger.
    allow_nonprivate
        Allow the non-private baselines ``kd-pure`` and ``kd-true``. Their releases are marked as not private.
    ledger, dataset, part
        Charge the release to this data set (or to one of its parts) in this ledger, before the data is read. The
        release is refused if the remaining budget is too small. It stays charged if it fails. A data set with a unit
        accepts only releases with the same ``unit``.
    one_row_per_unit
        State that each unit of the data set has at most one row in ``points``, so that a release without a ``unit``
        protects it. The ledger records this statement with the charge.

    Returns
    -------
    Release
        The published estimates, which answer queries and can be saved.

    Examples
    --------
    >>> domain = vm.Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)})
    >>> release = vm.release(points, domain, epsilon=0.5)
    >>> answer = release.count([[-116, 39, -114, 41]])  # longitude and latitude: low ends, then high ends
    >>> bool(answer.low[0] <= answer.estimate[0] <= answer.high[0])
    True
    """
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
    ).settled(domain)
    _must_be_private(request.method, allow_nonprivate)
    account = _account(ledger, dataset, part, request.method)
    unit_name, ids = _named_unit(unit)
    _must_be_named(account, unit_name, ids, one_row_per_unit)
    _must_be_writable(domain)
    sealed = seal(points, domain, ids, max_rows_per_unit)
    receipt = _charge(account, request, domain, dataset, part, unit_name, one_row_per_unit, _files(points))
    with receipt or nullcontext():
        measured = measure(
            sealed, request.method, request.epsilon, progress, request.delta, allow_nonprivate=allow_nonprivate
        )
        estimates = estimate_nodes(measured.tree, request.method, learn_in_background=measured.check is not None)
        if measured.check is not None:
            grids = predict_grids(domain, request.method, measured.tree, estimates)
            residuals = measured.check(tuple(grid.prediction for grid in grids))
            estimates = calibrate(estimates, grids, residuals)
        if receipt is not None and not measured.tree.private:
            receipt.note("not private")
        privacy = _privacy(request, measured.tree, unit_name, ids)
        return Release(domain, request.method.to_json(), privacy, estimates, provenance(), receipt)


def _must_be_private(method: Method, allow_nonprivate: bool) -> None:
    if not method.private and not allow_nonprivate:
        raise BadInput(
            f"{method.name} is a non-private baseline: it publishes exact values. Choose another method, or use "
            f"allow_nonprivate=True (--allow-nonprivate) for an experiment on public data."
        )


def _must_be_writable(domain: Domain) -> None:
    """Refuse a coordinate system that a release file cannot hold, before any budget is spent."""
    if domain.dimensions == 2:
        geoparquet(domain)


def _privacy(request: ReleaseRequest, noisy: NoisyTree, unit_name: str | None, ids: object) -> Privacy:
    """Return the guarantee of the release, with its charges."""
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
    """Return the ledger to charge, if any. Check that the arguments go together."""
    if (ledger is None) != (dataset is None) or (part is not None and dataset is None):
        raise BadInput(
            "A release is charged to a data set in a ledger. Give both ledger= and dataset= (--ledger, or "
            "VEILMAP_LEDGER, and --dataset), or neither."
        )
    if ledger is None:
        return None
    if not method.private:
        raise BadInput(f"{method.name} is not private and cannot be charged to a ledger. Leave the ledger out.")
    return ledger if isinstance(ledger, Ledger) else Ledger(ledger)


def _charge(
    account: Ledger | None,
    request: ReleaseRequest,
    domain: Domain,
    dataset: str | None,
    part: str | None,
    unit_name: str | None,
    one_row_per_unit: bool,
    files: list[str | os.PathLike[str]],
) -> Receipt | None:
    """Charge the release to its data set in the ledger, if there is one, before the data is read."""
    if account is None or dataset is None:
        return None
    _rehearse(request, domain)
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
    """Run the method on an empty data set: a method that fails on all data must fail before it is charged."""
    max_rows = request.max_rows_per_unit
    empty = seal(np.zeros((0, domain.dimensions)), domain, None if max_rows is None else np.zeros(0, int), max_rows)
    # in its own context, so that it uses up no fixed random bits
    Context().run(measure, empty, request.method, request.epsilon, delta=request.delta)


def _files(points: object) -> list[str | os.PathLike[str]]:
    """Return the files that the points are read from, if any."""
    sources = points if isinstance(points, (list, tuple)) else [points]
    return [source for source in sources if isinstance(source, (str, os.PathLike))]


def _named_unit(unit: object) -> tuple[str | None, object]:
    """Return the name of the unit, if it has one, and what identifies units: a column or one id per row."""
    name, ids = unit if isinstance(unit, str) else None, unit
    if isinstance(unit, Mapping):
        name, ids = next(iter(unit.items())) if len(unit) == 1 else (None, None)
        if not isinstance(name, str) or ids is None or isinstance(ids, str):
            raise BadInput("Give ids with one name, like unit={'driver_id': ids}, or a column, like unit='driver_id'.")
    if name is not None and not (name.isprintable() and name.strip()):
        raise BadInput(f"The name of a unit must be printable and not blank, got {name!r}. Rename the column.")
    return name, ids


def _must_be_named(account: Ledger | None, name: str | None, ids: object, one_row_per_unit: bool) -> None:
    """Refuse a unit that a ledger cannot compare with its own, and a statement without a ledger to record it."""
    must_need_the_statement(one_row_per_unit, ids)
    if account is None and one_row_per_unit:
        raise BadInput(
            "one_row_per_unit=True (--one-row-per-unit) is a statement for a ledger to record. Leave it out, or give "
            "ledger= and dataset= (--ledger and --dataset)."
        )
    if account is not None and ids is not None and name is None:
        raise BadInput(
            "A ledger compares units by name, and an array of ids has no name. Give the name of the data set's unit, "
            "like unit={'driver_id': ids}."
        )


def provenance() -> dict[str, str]:
    """Return which software made the release, and when. Nothing in it depends on the data or on file names."""
    return {
        "software": f"veilmap {_version('veilmap')}",
        "created": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "pyarrow": _version("pyarrow"),
    }

"""The owner's verb: points in, release out."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from importlib.metadata import version

from veilmap.budget import exact_epsilon, level_shares
from veilmap.domain import Domain
from veilmap.errors import BadInput, TooLarge
from veilmap.estimate import estimate
from veilmap.fileformat import geoparquet
from veilmap.memory import free_memory
from veilmap.method import DEFAULT_METHOD, Method, named
from veilmap.privacy import Privacy
from veilmap.published import Release
from veilmap.vault import measure, seal

_version = cache(version)  # reading it takes longer than a small release

BYTES_A_NODE = 400
"""What one node takes at the peak, while a release is saved; about 80 until then."""


def release(
    points: object,
    domain: Domain,
    epsilon: object,
    method: str | Method = DEFAULT_METHOD,
    height: int | None = None,
    prune: float | None = None,
    progress: Callable[[float], None] = lambda part: None,
) -> Release:
    """Publish points as a differentially private decomposition.

    Parameters
    ----------
    points
        An (n, d) array; a pandas, polars, pyarrow or geopandas table; a DuckDB relation; or the path of a
        CSV, Parquet, GeoParquet, GeoPackage or Shapefile, or a list of paths. Columns go by the names of
        the domain's axes; a geometry column gives the first two.
    domain
        The public box. Rows outside it, or with a missing coordinate, are dropped.
    epsilon
        The privacy budget: how much any one row may matter. It has no default.
    method
        A name of the registry, or a ``Method`` composed by hand.
    height
        Levels below the root; by default chosen from a noisy total that the budget pays for.
    prune
        Drop what lies below nodes whose estimate is under this threshold.
    progress
        Called now and then with the part of the input that has been read.
    """
    if not isinstance(domain, Domain):
        raise BadInput(
            f"The domain must be a veilmap.Domain, got {type(domain).__name__}: it is never taken from the data."
        )
    budget = exact_epsilon(epsilon)
    chosen = resolve(method, height, prune)
    must_fit(chosen, domain)
    if domain.dimensions == 2:
        geoparquet(domain)  # a file that could not be written is refused before the budget is spent
    noisy = measure(seal(points, domain), chosen, budget, progress)
    return Release(
        domain=domain,
        method=chosen.to_json(),
        privacy=Privacy(epsilon=budget, ledger=noisy.charges, private=noisy.private),
        estimates=estimate(noisy, chosen),
        provenance=provenance(),
    )


def resolve(method: str | Method, height: int | None, prune: float | None) -> Method:
    """The method that a caller means."""
    if isinstance(method, str):
        return named(method, height=height, prune_below=prune)
    if not isinstance(method, Method):
        raise BadInput(f"A method is a name or a veilmap.Method, got {type(method).__name__}.")
    if height is not None or prune is not None:
        raise BadInput("height and prune go with a method's name; a veilmap.Method carries its own.")
    return method


def must_fit(method: Method, domain: Domain) -> None:
    """Refuse what would not fit in memory: a question of public numbers only."""
    height, axes = method.structure.height, domain.dimensions
    if height is None:
        return
    if height > domain.bits:
        raise BadInput(
            f"This domain can be halved {domain.bits} times along each axis, got height={height}: choose a smaller one."
        )
    level_shares(method.budget, Fraction(1), height, axes)  # a budget that does not fit the tree is refused here
    size = method.structure.nodes(axes)
    need, free = size * BYTES_A_NODE, free_memory()
    if need > free:
        raise TooLarge(
            f"A tree of height {height} over {axes} axes has {size:.3g} nodes and would take "
            f"{need / 2**30:.3g} GiB of memory; {free / 2**30:.3g} GiB are free: choose a smaller height."
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

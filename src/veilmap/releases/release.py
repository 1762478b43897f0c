"""A release: the published tree with its estimates, its method and its privacy guarantee. It is immutable."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from numpy.typing import ArrayLike

from veilmap.answers.answerer import Answerer, Answers
from veilmap.domain import Domain
from veilmap.errors import Damaged
from veilmap.estimate.node_estimates import NodeEstimates
from veilmap.estimate.nonnegative import nonnegative_estimates
from veilmap.method.method import Noise, PostProcessing
from veilmap.releases import release_file
from veilmap.releases.cost_check import CheckedCosts, must_be_worth, path_costs
from veilmap.releases.ledger_file import Receipt
from veilmap.releases.privacy import Privacy, must_be_text
from veilmap.synthetic import draw


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A differentially private decomposition of a data set. Queries are answered from it alone, at no privacy cost.

    Examples
    --------
    >>> release = vm.release(points, domain, epsilon=1, method="quad-opt", height=4)
    >>> release.count([[-116, 39, -114, 41], [-125, 31, -103, 49]]).estimate.shape
    (2,)
    >>> release.save("homes.parquet")
    >>> vm.load("homes.parquet")
    <Release quad-opt, epsilon=1, 341 nodes over lon=-125.0:-103.0,lat=31.0:49.0>
    """

    domain: Domain
    method: Mapping[str, Any]
    privacy: Privacy
    estimates: NodeEstimates
    provenance: Mapping[str, str]
    receipt: Receipt | None = None  # of the ledger that was charged; not in the file

    def count(self, queries: ArrayLike | object, confidence: float = 0.95) -> Answers:
        """Estimate the number of points in each box or polygon, with error bars.

        Parameters
        ----------
        queries
            Boxes, one per row: the low end of each axis, in the domain's order, then the high end of each axis.
            Or, on two axes, a shapely polygon, a list or an array of polygons, a GeoSeries or a GeoDataFrame, where x
            is the first axis. Polygons with another coordinate system than the domain's are reprojected.
            Areas outside the domain count as empty.
        confidence
            Confidence level of the intervals from ``low`` to ``high``.

        Examples
        --------
        >>> release = vm.release(points, domain, epsilon=1)
        >>> answers = release.count([[-116, 39, -114, 41]], confidence=0.9)
        >>> bool(answers.stderr[0] > 0)
        True
        """
        return self._answerer.count(queries, confidence)

    def integers(self) -> Release:
        """Return the release with estimates that are whole numbers, 0 or more, and add up exactly, for printed tables.

        The number of each node is its non-negative estimate, rounded down or up. This costs no privacy. Answers to
        boxes with many empty leaves may become less accurate, because their noise no longer cancels.
        """
        method = {**self.method, "integers": True}
        if not self.consistent:
            method["estimate"] = PostProcessing.NONNEGATIVE.value
        return replace(self, method=method, estimates=nonnegative_estimates(self.estimates, self.consistent, 1.0))

    def sample(self, n: int | None = None, seed: int | None = None, integers: bool = False) -> pa.Table:
        """Draw synthetic points, in random order, as a table with one column per axis.

        The points follow the non-negative estimates of the leaves and the slopes inside them. This costs no privacy,
        and no point belongs to a person. The metadata of the table's schema states this, together with the guarantee of
        the release.

        Parameters
        ----------
        n
            Number of points. By default, the number that the release estimates.
        seed
            Seed to draw the same points again. It is independent of the noise of the release.
        integers
            Draw exactly the number of points per leaf that ``integers()`` has.

        Examples
        --------
        >>> vm.release(points, domain, epsilon=1).sample(100, seed=7).shape
        (100, 2)
        """
        columns = draw(self.domain, self.estimates, self.consistent, n, seed, integers)
        about = {
            "points": "synthetic, drawn from the estimates of a release",
            "method": self.method["name"],
            "domain": self.domain.to_json(),
            "privacy": self.privacy.to_json(),
        }
        table = pa.table(columns, names=list(self.domain.names))
        return table.replace_schema_metadata({"veilmap_sample": json.dumps(about, ensure_ascii=False)})

    @cached_property
    def nodes(self) -> pa.Table:
        """The published nodes, one per row: the table that ``save`` writes."""
        return pa.concat_tables(self._tables())

    def _tables(self) -> Iterator[pa.Table]:
        return release_file.node_tables(self.domain, self.estimates, self.consistent)

    @property
    def consistent(self) -> bool:
        """Whether the estimate of each inner node is the sum of its children's estimates."""
        return bool(self.method["estimate"] != PostProcessing.NOISY_COUNTS.value)

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian, which has lighter tails than Laplace noise."""
        return bool(self.method["noise"] == Noise.DISCRETE_GAUSSIAN.value)

    @property
    def height(self) -> int:
        """Number of levels below the root."""
        return self.estimates.tree.height

    def save(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Write the release to a file. If writing fails, no partial file remains."""
        release_file.write(path, self._tables(), self.header(), self.domain, overwrite)
        if self.receipt is not None:
            self.receipt.saved(path)

    def plot(
        self,
        *,
        title: str = "",
        uncertainty: bool = False,
        cells: bool = False,
        theme: str = "light",
        size: tuple[float, float] | None = None,
        dpi: int = 160,
    ) -> Any:
        """Draw the release: a density map for two axes, a step plot for one, small multiples for more.

        Areas left blank may be empty or hold a few points: the noise hides which.

        Parameters
        ----------
        title
            A title above the plot.
        uncertainty
            Show standard errors relative to the estimates, instead of densities.
        cells
            Draw the borders of the leaves on a map.
        theme
            ``light`` or ``dark``.
        size, dpi
            Width and height in inches, chosen automatically by default, and dots per inch.

        Returns
        -------
        matplotlib.figure.Figure
            The figure. A notebook displays it; ``savefig`` writes it to a file.
        """
        from veilmap.plot import figure

        return figure(self, title=title, uncertainty=uncertainty, cells=cells, theme=theme, size=size, dpi=dpi)

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        value: str | None = None,
        pixels: int | tuple[int, int] | None = None,
        resolution: float | None = None,
        h3: int | None = None,
        confidence: float = 0.95,
        overwrite: bool = True,
    ) -> None:
        """Write the release for other programs, in the format of the file name's extension.

        ``.gpkg``, ``.fgb`` and ``.geojson`` contain the leaves as polygons, ``.csv`` contains them as rows, and
        ``.tif`` is a raster. The file states the privacy guarantee.

        Parameters
        ----------
        path
            The file to write. All formats except ``.csv`` need two axes.
        value
            The values of a raster: ``density``, ``count`` or ``stderr``.
        pixels, resolution
            Size of a raster: the number of pixels along its longer side, or columns and rows; or the side of a pixel in
            units of the axes.
        h3
            Write H3 hexagons of this resolution instead of leaves. The axes must be longitude and latitude.
        confidence
            Confidence level of the intervals from ``low`` to ``high``.
        overwrite
            Replace an existing file.
        """
        from veilmap.export import export

        export(
            self,
            path,
            value=value,
            pixels=pixels,
            resolution=resolution,
            h3=h3,
            confidence=confidence,
            overwrite=overwrite,
        )

    def header(self) -> dict[str, Any]:
        """Return the metadata of the file: domain, method, privacy, provenance and tree."""
        return {
            "format": release_file.FORMAT_VERSION,
            "domain": self.domain.to_json(),
            "method": dict(self.method),
            "privacy": self.privacy.to_json(),
            "provenance": dict(self.provenance),
            "tree": release_file.tree_header(self.estimates.tree),
            "borders": release_file.borders_header(self.estimates.borders),
        }

    def path_costs(self) -> CheckedCosts:
        """Recompute the cost of the most expensive path from the root to a leaf, from the published noise variances."""
        return path_costs(self.privacy, Noise(self.method["noise"]), self.estimates)

    @cached_property
    def _answerer(self) -> Answerer:
        return Answerer(self.domain, self.estimates, self.consistent, self.gaussian)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy what a file holds, without the receipt and the tables for answering queries."""
        return Release, (self.domain, self.method, self.privacy, self.estimates, self.provenance)

    def _repr_html_(self) -> str:
        from veilmap.notebook import html_of

        return html_of(self)

    def __repr__(self) -> str:
        mark = "" if self.privacy.private else "NOT PRIVATE, "
        return (
            f"<Release {mark}{self.method['name']}, epsilon={float(self.privacy.epsilon):g}, "
            f"{self.estimates.tree.size} nodes over {self.domain}>"
        )


def load(path: str | os.PathLike[str]) -> Release:
    """Read a release from a file. Check its checksum, and that its noise is as large as its privacy guarantee needs.

    Examples
    --------
    >>> vm.release(points, domain, epsilon=0.5, method="quad-opt", height=3).save("homes.parquet")
    >>> vm.load("homes.parquet").privacy.epsilon
    Fraction(1, 2)
    """
    return release_of(path, *release_file.read(path))


def release_of(path: str | os.PathLike[str], header: Mapping[str, Any], table: pa.Table) -> Release:
    """Build a release from the header and the columns of a file. Raise ``Damaged`` if they are not consistent."""
    try:
        domain, method, provenance = Domain.from_json(header["domain"]), header["method"], header["provenance"]
        PostProcessing(method["estimate"]), Noise(method["noise"])
        names = [method["name"], method["structure"]["name"], method["budget"]["name"]]
        must_be_text(*names, provenance["software"], provenance["created"], *provenance.values())
        release = Release(
            domain=domain,
            method=method,
            privacy=Privacy.from_json(header["privacy"]),
            estimates=release_file.estimates_from(
                header, table, domain, PostProcessing(method["estimate"]) is not PostProcessing.NOISY_COUNTS
            ),
            provenance=provenance,
        )
        costs = release.path_costs() if release.privacy.private else None
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, pa.ArrowException):
        raise Damaged(f"The header of {path} is not valid. Ask for the file again.") from None
    if costs is not None:
        must_be_worth(path, release.privacy, Noise(method["noise"]), costs.counts if costs.levels else math.inf)
    return release

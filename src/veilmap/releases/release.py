"""A release: what is published, and all that anyone needs to answer from it. It never changes."""

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
from veilmap.releases.cost_check import PathCosts, must_be_worth, path_costs
from veilmap.releases.ledger_file import Receipt
from veilmap.releases.privacy import Privacy, must_be_text
from veilmap.synthetic import draw


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A private decomposition of a data set, computed once; every answer comes from it alone."""

    domain: Domain
    method: Mapping[str, Any]
    privacy: Privacy
    estimates: NodeEstimates
    provenance: Mapping[str, str]
    receipt: Receipt | None = None  # of what it was charged to; not in the file

    def count(self, asked: ArrayLike | object, confidence: float = 0.95) -> Answers:
        """How many points lie in each box or polygon, with error bars.

        Parameters
        ----------
        asked
            Boxes, one a row: the low end of each axis, in the domain's order, then the high end of each.
            Or, on two axes, a shapely polygon, a list or an array of polygons, a GeoSeries or a GeoDataFrame: x is the
            first axis. Zones that say another coordinate system than the domain are reprojected.
            What lies outside the domain counts as empty.
        confidence
            Of the intervals from ``low`` to ``high``.
        """
        return self._answerer.count(asked, confidence)

    def integers(self) -> Release:
        """The same release in whole numbers of 0 or more that add up exactly, for people who must print a table.

        Every node's number is its non-negative estimate, rounded down or up. This costs no privacy, but boxes with
        many empty leaves may be less accurate: their noise no longer cancels.
        """
        method = {**self.method, "integers": True}
        if not self.consistent:
            method["estimate"] = PostProcessing.NONNEGATIVE.value
        return replace(self, method=method, estimates=nonnegative_estimates(self.estimates, self.consistent, 1.0))

    def sample(self, n: int | None = None, seed: int | None = None, integers: bool = False) -> pa.Table:
        """Synthetic points: as many rows as asked for, one column an axis, in no order.

        They are drawn from the estimates, with those below 0 made good by their neighbours, as dense inside a leaf as
        the release says. This costs no privacy, and shows no one: a point is somewhere in a leaf, by chance. The
        schema's metadata says so, and what the release promises.

        Parameters
        ----------
        n
            How many; as many as the release estimates that there are, if not given.
        seed
            Of the analyst, to draw the same points again. It has nothing to do with the noise of the release.
        integers
            Give every leaf exactly the whole number of points that ``integers()`` says.
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
        """One row a published node: the table that ``save`` writes."""
        return pa.concat_tables(self._tables())

    def _tables(self) -> Iterator[pa.Table]:
        return release_file.node_tables(self.domain, self.estimates, self.consistent)

    @property
    def consistent(self) -> bool:
        """Whether every estimate is the sum of its children's."""
        return bool(self.method["estimate"] != PostProcessing.NOISY_COUNTS.value)

    @property
    def gaussian(self) -> bool:
        """Whether the noise is Gaussian, with lighter tails than Laplace noise."""
        return bool(self.method["noise"] == Noise.DISCRETE_GAUSSIAN.value)

    @property
    def height(self) -> int:
        return self.estimates.tree.height

    def save(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Write the release to one file; nothing is left behind if that fails."""
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
        """Draw it: a density map of two axes, steps of one, small multiples of more. What cannot be told from empty has
        no colour.

        Parameters
        ----------
        title
            A line above it.
        uncertainty
            Standard errors, as parts of the estimates, in the place of densities.
        cells
            The borders of cells too, on a map.
        theme
            ``light`` or ``dark``.
        size, dpi
            Inches, width and height, as it fits if not given; and dots an inch.

        Returns
        -------
        A figure of matplotlib: it shows itself in a notebook, and has ``savefig``.
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
        """Write it for other programs, by the ending of the name, with what is promised in the file.

        Files that end in ``.gpkg``, ``.fgb`` and ``.geojson`` have the cells as polygons, ``.csv`` has them as rows,
        and ``.tif`` is a raster.

        Parameters
        ----------
        path
            The file to write. All but ``.csv`` need two axes.
        value
            What a raster shows: ``density``, ``count`` or ``stderr``.
        pixels, resolution
            Of a raster: pixels along its longer side, or columns and rows; or the side of a pixel in units of the axes.
        h3
            Hexagons of H3 of this resolution in the place of cells; the axes must be longitude and latitude.
        confidence
            Of the intervals from ``low`` to ``high``.
        overwrite
            Replace a file that exists.
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
        """All that the file says of itself: domain, method, privacy, provenance, tree."""
        return {
            "format": release_file.FORMAT,
            "domain": self.domain.to_json(),
            "method": dict(self.method),
            "privacy": self.privacy.to_json(),
            "provenance": dict(self.provenance),
            "tree": release_file.tree_header(self.estimates.tree),
            "borders": release_file.borders_header(self.estimates.borders),
        }

    def path_costs(self) -> PathCosts:
        """Recompute what its dearest path costs, from the variances of the noise in it."""
        return path_costs(self.privacy, Noise(self.method["noise"]), self.estimates)

    @cached_property
    def _answerer(self) -> Answerer:
        return Answerer(self.domain, self.estimates, self.consistent, self.gaussian)

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle or a copy holds what a file would, and no tables that answers are made with."""
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
    """Read a release from a file, once its checksum fits and its noise is worth what its ledger says."""
    return release_of(path, *release_file.read(path))


def release_of(path: str | os.PathLike[str], header: Mapping[str, Any], table: pa.Table) -> Release:
    """What the header and the columns of a file say, if that can be."""
    try:
        domain, method, provenance = Domain.from_json(header["domain"]), header["method"], header["provenance"]
        PostProcessing(method["estimate"]), Noise(method["noise"])
        shown = [method["name"], method["structure"]["name"], method["budget"]["name"]]
        must_be_text(*shown, provenance["software"], provenance["created"], *provenance.values())
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
        raise Damaged(f"The header of {path} makes no sense: ask for the file again.") from None
    if costs is not None:
        must_be_worth(path, release.privacy, Noise(method["noise"]), costs.counts if costs.levels else math.inf)
    return release

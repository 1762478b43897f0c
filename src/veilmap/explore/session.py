"""A release that is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from veilmap.answers.answerer import Answers
from veilmap.errors import BadInput
from veilmap.explore import openapi
from veilmap.explore.base_map import base_map
from veilmap.explore.leaf_features import Cells, cells_of
from veilmap.explore.projection import Plane, plane_of
from veilmap.explore.tiles import MOST_ZOOM, RAMPS, Shown, shown
from veilmap.explore.zones import Zones
from veilmap.releases.release import Release

MOST_TILES = 512  # kept


@dataclass(frozen=True, eq=False)
class Explored:
    """A release, and what is worked out of it once."""

    release: Release
    name: str
    version: str
    stamp: str  # in the addresses of tiles, so that no browser mistakes old ones for new ones
    zones: Zones | None = None

    @cached_property
    def plane(self) -> Plane | None:
        return plane_of(self.release.domain)

    @cached_property
    def shown(self) -> Shown:
        if self.plane is None:
            raise BadInput("There is no map of this release: its axes are not longitude and latitude, nor two.")
        return shown(self.release, self.plane)

    @cached_property
    def cells(self) -> Cells:
        return cells_of(self.release, self.plane)

    @cached_property
    def tile(self) -> Callable[[int, int, int, str], bytes]:
        return lru_cache(MOST_TILES)(self.shown.tile)

    @cached_property
    def base_map(self) -> bytes:
        return base_map(self.plane)

    @cached_property
    def description(self) -> dict[str, Any]:
        return openapi.description(self.release.domain, self.version)

    @cached_property
    def info(self) -> dict[str, Any]:
        """What the page shows before anyone asks."""
        release, domain = self.release, self.release.domain
        privacy, tree = release.privacy, release.estimates.tree
        whole = release.count([*domain.lo, *domain.hi])
        drawn = {}
        if self.plane is not None:
            colours = {theme: [*ramp] for theme, ramp in RAMPS.items()}
            legend = {
                "low": self.shown.low,
                "high": self.shown.high,
                "unit": self.plane.ground.area_unit,
                "colours": colours,
            }
            drawn = {"map": {**self.plane.to_json(), "legend": legend, "most_zoom": MOST_ZOOM}}
        return {
            "name": self.name,
            "stamp": self.stamp,
            "version": self.version,
            "domain": domain.to_json(),
            "private": privacy.private,
            "epsilon": float(privacy.epsilon),
            "delta": float(privacy.delta),
            "unit": privacy.unit,
            "statement": privacy.statement(),
            "method": release.method["name"],
            "height": tree.height,
            "nodes": tree.size,
            "leaves": int(tree.is_leaf.sum()),
            "created": release.provenance["created"],
            "zones": self.zones is not None,
            "whole": {name: values[0] for name, values in answered(whole).items()},
            **drawn,
        }

    def warm_up(self) -> None:
        """Make the tables that answers are made with: a server is asked often."""
        domain = self.release.domain
        enough = self.release.estimates.tree.size // 64 + 1
        boxes = np.repeat([[*domain.lo, *domain.hi]], enough, axis=0)
        _ = self.release.count(boxes).high
        _ = self.info


def answered(answers: Answers) -> dict[str, list[float]]:
    return {name: getattr(answers, name).tolist() for name in ("estimate", "stderr", "low", "high")}

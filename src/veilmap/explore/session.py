"""The state of one server: a release, and what is computed from it once."""

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
from veilmap.explore.leaf_features import LeafFeatures, leaf_features
from veilmap.explore.projection import Plane, plane_of
from veilmap.explore.tiles import COLOUR_RAMPS, MAX_ZOOM, DensityMap, density_map
from veilmap.explore.zones import Zones
from veilmap.releases.release import Release

MAX_CACHED_TILES = 512
NODES_PER_BOX = 64  # the tree is turned into tables once there are more boxes than nodes divided by this


@dataclass(frozen=True, eq=False)
class Session:
    """A release, and what is computed from it once."""

    release: Release
    name: str
    version: str
    stamp: str  # part of the addresses of tiles, so that a browser does not reuse tiles of an earlier session
    zones: Zones | None = None

    @cached_property
    def plane(self) -> Plane | None:
        return plane_of(self.release.domain)

    @cached_property
    def density_map(self) -> DensityMap:
        if self.plane is None:
            raise BadInput(
                "This release has no map: it needs exactly two axes, or longitude and latitude as the first two."
            )
        return density_map(self.release, self.plane)

    @cached_property
    def leaves(self) -> LeafFeatures:
        return leaf_features(self.release, self.plane)

    @cached_property
    def tile(self) -> Callable[[int, int, int, str], bytes]:
        return lru_cache(MAX_CACHED_TILES)(self.density_map.tile)

    @cached_property
    def base_map(self) -> bytes:
        return base_map(self.plane)

    @cached_property
    def description(self) -> dict[str, Any]:
        return openapi.description(self.release.domain, self.version)

    @cached_property
    def info(self) -> dict[str, Any]:
        """What the page shows when it opens."""
        release, domain = self.release, self.release.domain
        privacy, tree = release.privacy, release.estimates.tree
        whole = release.count([*domain.lo, *domain.hi])
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
            "whole": {name: values[0] for name, values in answer_columns(whole).items()},
            **({} if self.plane is None else {"map": self._map_info(self.plane)}),
        }

    def _map_info(self, plane: Plane) -> dict[str, Any]:
        legend = {
            "low": self.density_map.low,
            "high": self.density_map.high,
            "unit": plane.ground.area_unit,
            "colours": {theme: [*ramp] for theme, ramp in COLOUR_RAMPS.items()},
        }
        return {**plane.to_json(), "legend": legend, "most_zoom": MAX_ZOOM}

    def warm_up(self) -> None:
        """Build the tables for fast answers before the first request: counting many boxes at once does so."""
        domain = self.release.domain
        enough = self.release.estimates.tree.size // NODES_PER_BOX + 1
        boxes = np.repeat([[*domain.lo, *domain.hi]], enough, axis=0)
        _ = self.release.count(boxes).high
        _ = self.info


def answer_columns(answers: Answers) -> dict[str, list[float]]:
    """Return the columns of answers as lists."""
    return {name: getattr(answers, name).tolist() for name in ("estimate", "stderr", "low", "high")}

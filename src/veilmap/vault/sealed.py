"""Points that cannot be looked at, only measured. Proof: proofs/sealed.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

import numpy as np
from numpy.typing import NDArray

from veilmap.domain import Domain
from veilmap.engines import Engine, open_points
from veilmap.errors import VaultFailure, VeilmapError
from veilmap.tree import RegularTree


class Sealed:
    """The points of one data set. No length, no iteration, no pickle, nothing to print."""

    __slots__ = ("_engine", "domain")

    def __init__(self, engine: Engine, domain: Domain) -> None:
        self._engine = engine
        self.domain = domain

    def __repr__(self) -> str:
        return f"Sealed({self.domain})"

    def __reduce__(self) -> Never:
        raise TypeError("Sealed points cannot be pickled or copied out of the vault.")

    def __copy__(self) -> Never:
        self.__reduce__()

    def _count_leaves(self, tree: RegularTree, progress: Callable[[float], None]) -> NDArray[np.int64]:
        """Exact counts of a tree's leaves: for the vault alone."""
        return self._engine.count_leaves(self.domain, tree, progress)

    def _cells(self, progress: Callable[[float], None]) -> list[NDArray[np.int64]]:
        """The cells of all rows: for the vault alone."""
        return self._engine.cells(self.domain, progress)


def seal(points: object, domain: Domain) -> Sealed:
    """Take points in; they leave only as noisy counts.

    Opening reads schemas and headers, to refuse what cannot be read, and no more.
    """
    try:
        return Sealed(open_points(points, domain), domain)
    except BaseException as error:
        failure = silenced(error)
    del points  # the traceback of what is raised here keeps this frame
    raise failure


def silenced(error: BaseException) -> BaseException:
    """An error that may leave the vault: ours (and an interrupt) as it is, any other only by its kind.

    Without its traceback and its causes: their frames hold the data.
    """
    if isinstance(error, Exception) and not isinstance(error, VeilmapError):
        error = VaultFailure(
            f"The work failed with {type(error).__name__} while the data was open; no more is said of it."
        )
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)

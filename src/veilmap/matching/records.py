"""Read a party's own records. They leave its process only as ciphertexts."""

from __future__ import annotations

import numpy as np

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.engines import open_points
from veilmap.engines.batches import LocalEngine
from veilmap.errors import BadInput


def read_records(points: object, domain: Domain) -> Floats:
    """Return all rows in the order of the input, with NaN for missing numbers."""
    engine = open_points(points, domain)
    if not isinstance(engine, LocalEngine):
        raise BadInput("Record matching does not read Spark frames. Write the records to a Parquet file first.")
    columns = [[np.zeros(0)] for _ in domain.axes]
    with engine.reading_context():
        for piece in (piece for _, batch in engine.shares() for piece in batch()):
            for column, values in zip(columns, piece.columns, strict=True):
                column.append(np.asarray(values, np.float64))
    return np.stack([np.concatenate(column) for column in columns], axis=1)

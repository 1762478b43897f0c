"""What all tests share: how hypothesis searches, and one Spark cluster."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.cluster import Cluster, loopback, why_not
from hypothesis import HealthCheck, settings

# numba compiles inside the first example, so time says nothing about a test. The same examples are tried
# every time, so that a run never fails by chance; HYPOTHESIS_PROFILE=explore looks further.
_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("veilmap", max_examples=50, derandomize=True, **_CALM)
settings.register_profile("explore", max_examples=1000, **_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "veilmap"))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A master and two workers. Tests that use it are of the group ``spark``, so that one process runs them all."""
    if reason := why_not():
        pytest.skip(f"{reason}: there is no Spark to test with")
    with loopback() as running:
        yield running


@pytest.fixture(scope="session")
def spark(cluster: Cluster) -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what pyspark leaves open, and thinks of pandas
        with cluster.session() as session:
            yield session
        gc.collect()

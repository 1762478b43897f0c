"""What all tests share: how hypothesis searches, the command line, and one Spark cluster."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.spark.cluster import Cluster, loopback, why_not

# numba compiles inside the first example, so time says nothing about a test. The same examples are tried
# every time, so that a run never fails by chance; HYPOTHESIS_PROFILE=explore looks further.
_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("veilmap", max_examples=50, derandomize=True, **_CALM)
settings.register_profile("explore", max_examples=1000, **_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "veilmap"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Call ``main`` as the installed script does; give its status, output and errors."""
    from veilmap.cli import main

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["veilmap", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return int(stop.value.code or 0), said.out, said.err

    return call


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

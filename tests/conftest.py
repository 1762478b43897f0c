"""What all tests share: how hypothesis searches."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# numba compiles inside the first example, so time says nothing about a test. The same examples are tried
# every time, so that a run never fails by chance; HYPOTHESIS_PROFILE=explore looks further.
_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("veilmap", max_examples=50, derandomize=True, **_CALM)
settings.register_profile("explore", max_examples=1000, **_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "veilmap"))

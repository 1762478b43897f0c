"""A picture of an audit: what was seen of the two data sets, and the loss of each event beside the claim."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import numpy as np

from veilmap.auditing.epsilon_bound import losses
from veilmap.errors import need
from veilmap.files.atomic_writes import write_atomically

if TYPE_CHECKING:
    from veilmap.auditing.audits import Audit

OURS, THEIRS, CLAIM = "#0072B2", "#D55E00", "#555555"


def draw(found: Audit, path: str | os.PathLike[str]) -> None:
    """Write a PNG."""
    need("matplotlib", "plot", "Drawing an audit")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    ours, theirs = found.scores
    event, epsilon = found.event, float(found.epsilon)
    for seen, colour, name in ((ours, OURS, "with the one more"), (theirs, THEIRS, "without")):
        ordered = np.sort(seen)
        left.step(ordered, 1 - np.arange(len(ordered)) / len(ordered), where="post", color=colour, label=name)
    side = "or more" if event.sign > 0 else "or less"
    left.axvline(event.at, color=CLAIM, linestyle=":", label=f"the event: this {side}")
    left.set_xlabel(f"log of the odds, by {found.reading}")
    left.set_ylabel("part of the releases that say as much")
    left.set_title(f"{found.method}: {found.neighbours}", fontsize=10)
    left.legend(frameon=False)

    at, seen, low = losses(ours, theirs, event, 1 - found.confidence, float(found.delta))
    some = np.isfinite(seen)
    right.plot(at[some], seen[some], ".-", color=OURS, label="loss, as seen")
    right.plot(at[some], np.maximum(low[some], 0), ".--", color=OURS, alpha=0.5, label="no less than this")
    right.plot(event.at, found.bound, "o", color=THEIRS, label=f"certified: {found.bound:.2f}")
    right.axhline(epsilon, color=CLAIM, linestyle=":", label=f"the claim: {epsilon:g}")
    right.set_ylim(0, 1.5 * max(epsilon, found.bound))
    right.set_xlabel(f"event: odds of this {side}")
    right.set_ylabel("log of the ratio of its probabilities")
    right.set_title(f"epsilon is at least {found.bound:.2f}, with confidence {found.confidence:.6g}", fontsize=10)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_atomically(path, buffer.getvalue())

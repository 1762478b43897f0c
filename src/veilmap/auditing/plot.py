"""Plot an audit: the scores of the two data sets, and the privacy loss of each event beside the claim."""

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

COLOUR_WITH_UNIT = "#0072B2"
COLOUR_WITHOUT_UNIT = "#D55E00"
COLOUR_OF_CLAIM = "#555555"


def draw(found: Audit, path: str | os.PathLike[str]) -> None:
    """Write the plot to a PNG file."""
    need("matplotlib", "plot", "Drawing an audit")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2)
    ours, theirs = found.scores
    event, epsilon = found.event, float(found.epsilon)
    sides = ((ours, COLOUR_WITH_UNIT, "with the additional unit"), (theirs, COLOUR_WITHOUT_UNIT, "without"))
    for scores, colour, name in sides:
        ordered = np.sort(scores)
        left.step(ordered, 1 - np.arange(len(ordered)) / len(ordered), where="post", color=colour, label=name)
    side = "or more" if event.sign > 0 else "or less"
    left.axvline(event.at, color=COLOUR_OF_CLAIM, linestyle=":", label=f"event: this score {side}")
    left.set_xlabel(f"log-likelihood ratio of {found.reading}")
    left.set_ylabel("fraction of releases with this score or more")
    left.set_title(f"{found.method}: {found.neighbours}", fontsize=10)
    left.legend(frameon=False)

    at, loss, low = losses(ours, theirs, event, 1 - found.confidence, float(found.delta))
    finite = np.isfinite(loss)
    right.plot(at[finite], loss[finite], ".-", color=COLOUR_WITH_UNIT, label="empirical loss")
    lower = np.maximum(low[finite], 0)
    right.plot(at[finite], lower, ".--", color=COLOUR_WITH_UNIT, alpha=0.5, label="lower bound")
    right.plot(event.at, found.bound, "o", color=COLOUR_WITHOUT_UNIT, label=f"certified: {found.bound:.2f}")
    right.axhline(epsilon, color=COLOUR_OF_CLAIM, linestyle=":", label=f"claim: {epsilon:g}")
    right.set_ylim(0, 1.5 * max(epsilon, found.bound))
    right.set_xlabel(f"event: score of this {side}")
    right.set_ylabel("log ratio of its probabilities")
    right.set_title(f"epsilon is at least {found.bound:.2f}, with confidence {found.confidence:.6g}", fontsize=10)
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    write_atomically(path, buffer.getvalue())

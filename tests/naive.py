"""Slow, simple reference implementations of the kernels: loops, recursion, dense matrices.

Trees are given as ``first_child``, as in the kernels: the children of ``v`` are
``first_child[v] : first_child[v + 1]``.
Queries are rows of ``[lo of each axis, hi of each axis]``.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import shapely


def children(first_child, v):
    return range(first_child[v], first_child[v + 1])


def leaves_below(first_child, v):
    """Return the leaves of the subtree of ``v``; ``v`` itself if it is a leaf."""
    below = [leaf for c in children(first_child, v) for leaf in leaves_below(first_child, c)]
    return below or [v]


def nodes_below(first_child, v):
    """Return all nodes of the subtree of ``v``, itself first."""
    return [v] + [u for c in children(first_child, v) for u in nodes_below(first_child, c)]


# Points and counts


def cell(x, lo, hi, side):
    """Return the cell of a coordinate; None if it is outside and dropped."""
    return min(math.floor((x - lo) * (side / (hi - lo))), side - 1) if lo <= x <= hi else None


def part_of(cell, lo, hi, parts):
    """Return which of the parts of [lo, hi), equal up to one cell, contains a cell."""
    starts = [lo + k * (hi - lo) // parts for k in range(parts + 1)]
    return next(k for k in range(parts) if starts[k] <= cell < starts[k + 1])


def add_axis(values, lo, hi, side, parts, index):
    """Append one axis to row-major positions in a grid; -1 for points that are dropped."""
    cells = [cell(x, lo, hi, side) for x in values]
    return [
        -1 if i < 0 or c is None else i * parts + part_of(c, 0, side, parts) for i, c in zip(index, cells, strict=True)
    ]


def follow_cuts(cells, at, first, first_child, node):
    """Move rows of nodes that were cut to the left or the right child; all others stay."""
    return [
        v if v < first or not children(first_child, v) else children(first_child, v)[0 if c < at[v - first] else 1]
        for c, v in zip(cells, node, strict=True)
    ]


def place_in_box(row, lo, width, parts):
    """Return the row-major number of the part of a box that contains the cells of a row."""
    digits = [part_of(c, a, a + w, n) for c, a, w, n in zip(row, lo, width, parts, strict=True)]
    return int(np.ravel_multi_index(digits, parts))


def packed(lo, width, parts, start):
    """Pack boxes for the kernels, one row per box: start, number of parts, then lo, width and parts per axis."""
    sides = np.stack([lo, width, parts], axis=2).reshape(len(lo), -1)
    return np.column_stack([start, np.prod(parts, axis=1), sides])


def follow_parts(rows, lo, width, parts, first, first_child, node):
    """Move rows of nodes that were split to the child whose part of the box contains them; all others stay."""
    return [
        v
        if v < first or not children(first_child, v - first)
        else children(first_child, v - first)[place_in_box(row, *(box[v - first] for box in (lo, width, parts)))]
        for row, v in zip(rows, node, strict=True)
    ]


def tally_parts(rows, lo, width, parts, first, start, node):
    """Return the number of rows in each part of each box that has parts, box after box."""
    newest = [(row, v - first) for row, v in zip(rows, node, strict=True) if v >= first]
    return tally(
        [start[j] + place_in_box(row, lo[j], width[j], parts[j]) for row, j in newest if parts[j].all()], start[-1]
    )


def contrasts(grids, axes, run, scales):
    """Return Σ |first halves − second halves| of runs of cells, by scale: cells of 2, 4, … parts per axis of each grid.

    A run is up to ``run`` adjacent cells along the last axis, or along the one before if the last axis is halved.
    """
    out = [0] * scales
    for grid, scale, axis in itertools.product(grids, range(scales), range(axes)):
        wide = 2 << scale
        if len(grid) < wide:
            continue
        runs, beside = Counter(), axes - 1 if axis < axes - 1 else axes - 2
        for part, count in np.ndenumerate(grid):
            cell = [p // wide for p in part]
            if axes > 1:
                cell[beside] //= run
            runs[tuple(cell)] += int(count) * (1 if part[axis] % wide < wide // 2 else -1)
        out[scale] += sum(map(abs, runs.values()))
    return out


def unlike_siblings(tree, count, noise, kinds):
    """Return the number of pairs of adjacent siblings on the frontier whose sum exceeds its noise, and the sum of their
    squared relative differences minus noise and sampling variance; both by the power of 2 of the pair's mean."""
    pairs, unlike = np.zeros(kinds), np.zeros(kinds)
    above, first = tree.level(tree.height - 1), tree.level_start[-2]
    for j, v in enumerate(range(above.start, above.stop)):
        below = children(tree.first_child, v)
        for a, b in itertools.combinations(below, 2):
            differ = [k for k in range(tree.lo.shape[1]) if tree.lo[a, k] != tree.lo[b, k]]
            if len(differ) != 1 or tree.hi[a, differ[0]] != tree.lo[b, differ[0]]:
                continue
            x, y = count[a - first], count[b - first]
            if x + y > max(4 * math.sqrt(2 * noise[j]), 0):
                kind = min(int(math.log2(max((x + y) / 2, 1))), kinds - 1)
                pairs[kind] += 1
                unlike[kind] += ((x - y) ** 2 - 2 * noise[j]) / (2 * (x + y)) ** 2 - 1 / (4 * (x + y))
    return pairs, unlike


def tally(index, size):
    """Return how often each of the numbers below ``size`` occurs."""
    seen = Counter(index)
    return [seen[i] for i in range(size)]


def sum_children(first_child, leaf_counts):
    """Return, for every node, the sum of the leaves below it."""
    return [sum(leaf_counts[u] for u in leaves_below(first_child, v)) for v in range(len(leaf_counts))]


def node_counts(points, domain, tree):
    """Return the number of points in each node's box."""
    cells = [[cell(x, a.lo, a.hi, domain.side) for x, a in zip(p, domain.axes, strict=True)] for p in points]
    kept = [c for c in cells if None not in c]
    return [
        sum(all(lo <= c < hi for lo, c, hi in zip(tree.lo[v], point, tree.hi[v], strict=True)) for point in kept)
        for v in range(tree.size)
    ]


def read_points(wkb):
    """Return the coordinates of WKB points; NaN for other geometries."""
    shapes = shapely.from_wkb(wkb)
    return [(s.x, s.y) if s.geom_type == "Point" and not s.is_empty else (math.nan, math.nan) for s in shapes]


# Least squares


def hierarchy(first_child):
    """Return H of the paper's section 5: entry (v, j) is 1 if the j-th leaf is below node v."""
    nodes = range(len(first_child) - 1)
    leaves = [v for v in nodes if not children(first_child, v)]
    return np.array([[float(leaf in leaves_below(first_child, v)) for leaf in leaves] for v in nodes])


def least_squares(first_child, noisy, variance):
    """Solve weighted least squares for the leaves, with one equation per node; unmeasured nodes have weight 0."""
    h, weight = hierarchy(first_child), 1 / np.sqrt(variance)
    leaves, *_ = np.linalg.lstsq(h * weight[:, None], noisy * weight, rcond=None)
    return h @ leaves


def covariance(first_child, variance):
    """Return the covariance matrix of the least-squares estimates of all nodes."""
    h = hierarchy(first_child)
    return h @ np.linalg.inv(h.T @ (h / variance[:, None])) @ h.T


def subtree_variance(first_child, variance):
    """Return V: the variance of each node's estimate from its own subtree alone."""
    out, h = [], hierarchy(first_child)
    for v in range(len(variance)):
        rows = nodes_below(first_child, v)
        below = h[rows][:, h[v] > 0]
        out.append(np.linalg.inv(below.T @ (below / variance[rows][:, None])).sum())
    return np.array(out)


def three_phases(first_child, noisy, epsilons):
    """Run the algorithm of the paper's section 5 on a complete tree. ``epsilons[i]`` belongs to nodes of height i."""
    fanout = max(len(children(first_child, 0)), 1)
    top, z, beta = len(epsilons) - 1, np.zeros(len(noisy)), np.zeros(len(noisy))
    e = [sum(fanout**j * epsilons[j] ** 2 for j in range(i + 1)) for i in range(top + 1)]

    def phases_one_and_two(v, height, alpha):
        alpha = alpha + epsilons[height] ** 2 * noisy[v]
        below = [phases_one_and_two(c, height - 1, alpha) for c in children(first_child, v)]
        z[v] = sum(below) if below else alpha
        return z[v]

    def phase_three(v, height, f):
        beta[v] = (z[v] - fanout**height * f) / e[height]
        for c in children(first_child, v):
            phase_three(c, height - 1, f + beta[v] * epsilons[height] ** 2)

    phases_one_and_two(0, top, 0.0)
    phase_three(0, top, 0.0)
    return beta


# Boxes


def covered(lo, hi, query):
    """Return the fraction of the box [lo, hi] that a query covers."""
    overlap = np.minimum(hi, query[len(lo) :]) - np.maximum(lo, query[: len(lo)])
    return float(np.prod(np.maximum(overlap, 0) / (np.asarray(hi) - lo)))


def leaf_fractions(tree, query):
    """Return the fraction of each leaf that a query covers."""
    return np.array([covered(tree.lo[v], tree.hi[v], query) for v in np.flatnonzero(tree.is_leaf)])


def box_count(tree, value, query):
    """Return Σ f · value over the leaves, with f the covered fraction."""
    return leaf_fractions(tree, query) @ value[tree.is_leaf]


def box_variance(tree, variance, query):
    """Return the variance of :func:`box_count` on least-squares estimates of noisy counts with these variances."""
    part = leaf_fractions(tree, query)
    return part @ covariance(tree.first_child, variance)[np.ix_(tree.is_leaf, tree.is_leaf)] @ part


def range_query(tree, value, variance, query, v=0):
    """Return the canonical range query (section 4.1 of the paper) below ``v``, and its variance."""
    part = covered(tree.lo[v], tree.hi[v], query)
    if part == 0:
        return 0.0, 0.0
    if part == 1 and np.isfinite(variance[v]):
        return value[v], variance[v]
    if tree.is_leaf[v]:
        return part * value[v], part**2 * variance[v]
    below = [range_query(tree, value, variance, query, c) for c in children(tree.first_child, v)]
    return sum(b[0] for b in below), sum(b[1] for b in below)


def place_boxes(boxes, lo, hi, side):
    """Return boxes as fractions of the domain, and the first row that is inverted or has a NaN (-1: none).

    An end within four ulps of a coordinate from a grid line (or a quarter of a cell, if less) is moved onto it.
    """
    ends = boxes.reshape(len(boxes), 2, len(lo))
    bad = [q for q, (a, b) in enumerate(ends) if np.isnan([a, b]).any() or (a > b).any()]
    scale = side / (hi - lo)
    cells = np.minimum((np.clip(ends, lo, hi) - lo) * scale, side)
    slack = 4 * np.spacing(np.maximum(abs(lo), abs(hi))) * scale
    near = abs(cells - np.rint(cells)) <= np.minimum(slack, 0.25)
    return (np.where(near, np.rint(cells), cells) / side).reshape(boxes.shape), bad[0] if bad else -1


def shares_of_leaves(tree, query, v=0):
    """Return the fraction of each leaf below ``v`` that a query counts: 1 below a covered node, else what it covers.

    A box without volume meets no query; its value counts only with a covered node above it.
    """
    below = leaves_below(tree.first_child, v)
    if np.any(tree.lo[v] == tree.hi[v]):
        return dict.fromkeys(below, 0.0)
    part = covered(tree.lo[v], tree.hi[v], query)
    if part in (0, 1) or tree.is_leaf[v]:
        return dict.fromkeys(below, part)
    return {leaf: a for c in children(tree.first_child, v) for leaf, a in shares_of_leaves(tree, query, c).items()}


def consistent_answer(tree, value, variance, query):
    """Return the count in a box and its variance, for least-squares estimates of counts with these variances."""
    shares = shares_of_leaves(tree, query)
    part = np.array([shares[leaf] for leaf in np.flatnonzero(tree.is_leaf)])
    dense = covariance(tree.first_child, variance)[np.ix_(tree.is_leaf, tree.is_leaf)]
    return part @ value[tree.is_leaf], part @ dense @ part


def scan_json(text: str) -> list[tuple[int, int]]:
    """Return brackets, commas and colons of the two outer levels, one character at a time."""
    depth, string, escaped, found = 0, False, False, []
    for place, sign in enumerate(text):
        if string:
            string = escaped or sign != '"'
            escaped = not escaped and sign == "\\"
        elif sign == '"':
            string = True
        else:
            depth += sign in "{["
            if depth <= 2 and (sign in "{}[]," or (sign == ":" and depth < 2)):
                found.append((place, depth))
            depth -= sign in "}]"
    return found


def settle_records(text: str, separator: str, longest: int, final: bool) -> tuple[str, int]:
    """Return records on one line each, one record at a time, and the length of text that they take."""
    settled, begin = "", 0
    while begin < len(text):
        record, place, quoted, start = "", begin, False, True
        while True:
            if place == len(text) or (text[place] in "\n\r" and not quoted):
                break
            sign = text[place]
            if quoted and sign == '"':
                if text[place + 1 : place + 2] == '"':
                    record, place = record + '""', place + 2
                    continue
                quoted, record, place = False, record + sign, place + 1
                continue
            if quoted and sign in "\n\r":
                rest = text[place:].replace('""', "xx") if '""' in text[place:] else text[place:]
                close = rest.find('"')
                undecided = close < 0 or place + close + 1 == len(text)
                if undecided and not final and len(text) - begin <= longest:
                    return settled, begin
                ends = close >= 0 and rest[close + 1 : close + 2] in ("", separator, "\n", "\r")
                if not ends:
                    break
                record += text[place : place + close].replace("\n", " ").replace("\r", " ")
                place += close
                continue
            if not quoted:
                quoted, start = start and sign == '"', sign == separator
            record, place = record + sign, place + 1
        if place == len(text) and not final:
            return settled, begin
        broken = quoted
        settled += (" " * (place - begin) if broken else record) + text[place : place + 1]
        begin = place + 1
    return settled, len(text)

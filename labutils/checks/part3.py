"""The cases of part 3's exercise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labutils.checks.case import Case, call_case
from labutils.checks.values import number

VALID = ((5, 2, 3), (4, 2, 1), (64, 3, 8), (6, 3, 3), (5, 3, 3), (7, 0, 4), (7, 7, 1), (7, 1, 7), (1, 1, 1))
LARGE = ((10_000, 37, 9000), (10_000, 1, 64), (10_000, 5000, 10), (10_000, 9999, 1), (10_000, 2, 5000))
INVALID = ((5, 6, 1), (5, -1, 1), (5, 2, 0), (5, 2, 6), (5, 5, 6), (0, 0, 1), (5, 2, -1))


def _case(n: int, c: int, k: int) -> Case:
    return call_case(f"n = {n}, c = {c}, k = {k}", number, lambda: {"n": n, "c": c, "k": k}, tolerance=1e-9)


CASES: Mapping[str, Sequence[Case]] = {"pass_at_k": [_case(*numbers) for numbers in VALID + LARGE + INVALID]}

"""Variants of `pass_at_k`."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy
import torch

from known_mistakes import Bank

bank = Bank("pass_at_k")


def _require(n: int, c: int, k: int) -> None:
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"n={n}, c={c}, k={k}; needed are 0 <= c <= n and 1 <= k <= n")


def _ratio(n: int, c: int, k: int) -> float:
    """Probability that none of k responses is correct."""
    return math.comb(n - c, k) / math.comb(n, k)


@bank.mistake("the estimator is the biased 1 - (1 - c / n)^k")
def biased(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return 1 - (1 - c / n) ** k


@bank.mistake("c / n is returned whatever k is")
def pass_at_1(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return c / n


@bank.mistake("k times c / n is returned, cut off at 1")
def linear(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return min(1.0, k * c / n)


@bank.mistake("the approximation 1 - exp(-k c / n) stands in for the exact value")
def poisson(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return 1 - math.exp(-k * c / n)


@bank.mistake("the probability that no response is correct is returned, not 1 less it")
def none_correct(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return _ratio(n, c, k)


@bank.mistake("the probability that all k responses are correct is returned")
def all_correct(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


@bank.mistake("the formula uses c correct responses where n - c wrong ones belong")
def right_for_wrong(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return 1 - math.comb(c, k) / math.comb(n, k)


@bank.mistake("the product leaves out its last factor")
def last_factor_missing(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    if n - c < k:
        return 1.0
    return 1 - math.prod(1 - k / i for i in range(n - c + 1, n))


@bank.mistake("the product starts one factor too early")
def one_factor_more(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    if n - c < k:
        return 1.0
    return 1 - math.prod(1 - k / i for i in range(max(n - c, 1), n + 1))


@bank.mistake("the binomials are divided as whole numbers")
def whole_numbers(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return float(1 - math.comb(n - c, k) // math.comb(n, k))


@bank.mistake("the binomials are turned into floats, which overflow for large n")
def overflow(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return 1 - float(math.comb(n - c, k)) / float(math.comb(n, k))


@bank.mistake("the product is computed in float32, too coarse for large n")
def single_precision(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    if n - c < k:
        return 1.0
    factors = 1 - k / torch.arange(n - c + 1, n + 1)
    return 1 - factors.prod().item()


@bank.mistake("the value is estimated by random draws, not computed")
def simulated(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    drawn = numpy.random.default_rng(0).hypergeometric(c, n - c, k, size=1000)
    return float((drawn > 0).mean())


@bank.mistake("the value is rounded")
def rounded(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return round(1 - _ratio(n, c, k), 3)


@bank.mistake("the value is a percentage")
def percentage(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return 100 * (1 - _ratio(n, c, k))


@bank.mistake("0 is returned where fewer than k responses are wrong; it is 1")
def zero_when_certain(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    if n - c < k:
        return 0.0
    return 1 - _ratio(n, c, k)


@bank.mistake("where fewer than k responses are wrong it fails instead of returning 1")
def error_when_certain(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    log_ratio = sum(math.log(n - c - i) - math.log(n - i) for i in range(k))
    return 1 - math.exp(log_ratio)


@bank.mistake("k larger than n is accepted")
def large_k_accepted(n: int, c: int, k: int) -> float:
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    return 1 - _ratio(n, c, k)


@bank.mistake("k larger than n is lowered to n instead of refused")
def large_k_lowered(n: int, c: int, k: int) -> float:
    if not 0 <= c <= n or k < 1:
        raise ValueError(f"n={n}, c={c}, k={k}")
    return 1 - _ratio(n, c, min(k, n)) if n else 0.0


@bank.mistake("k = 0 is accepted")
def zero_k_accepted(n: int, c: int, k: int) -> float:
    if not 0 <= c <= n or not 0 <= k <= n:
        raise ValueError(f"n={n}, c={c}, k={k}")
    return 1 - _ratio(n, c, k)


@bank.mistake("more correct responses than responses are accepted")
def large_c_accepted(n: int, c: int, k: int) -> float:
    if c < 0 or not 1 <= k <= n:
        raise ValueError(f"n={n}, c={c}, k={k}")
    if n - c < k:
        return 1.0
    return 1 - _ratio(n, c, k)


@bank.mistake("a negative number of correct responses is accepted")
def negative_c_accepted(n: int, c: int, k: int) -> float:
    if c > n or not 1 <= k <= n:
        raise ValueError(f"n={n}, c={c}, k={k}")
    return 1 - _ratio(n, c, k)


@bank.mistake("values that make no sense are not refused with ValueError")
def nothing_refused(n: int, c: int, k: int) -> float:
    if n - c < k:
        return 1.0
    return 1 - math.prod(1 - k / i for i in range(n - c + 1, n + 1))


@bank.mistake("values that make no sense raise AssertionError instead of ValueError")
def asserted(n: int, c: int, k: int) -> float:
    assert 0 <= c <= n
    assert 1 <= k <= n
    return 1 - _ratio(n, c, k)


@bank.mistake("values that make no sense return 0 instead of raising ValueError")
def zero_when_invalid(n: int, c: int, k: int) -> float:
    if not 0 <= c <= n or not 1 <= k <= n:
        return 0.0
    return 1 - _ratio(n, c, k)


@bank.mistake("c = 0 is refused; it gives 0")
def none_correct_refused(n: int, c: int, k: int) -> float:
    if not 0 < c <= n or not 1 <= k <= n:
        raise ValueError(f"n={n}, c={c}, k={k}")
    return 1 - _ratio(n, c, k)


@bank.mistake("k = n is refused; it is allowed")
def k_equal_n_refused(n: int, c: int, k: int) -> float:
    if not 0 <= c <= n or not 1 <= k < n:
        raise ValueError(f"n={n}, c={c}, k={k}")
    return 1 - _ratio(n, c, k)


@bank.right("a ratio of whole binomials")
def binomials(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return 1 - math.comb(n - c, k) / math.comb(n, k)


@bank.right("exact fractions")
def fractions(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    return float(1 - Fraction(math.comb(n - c, k), math.comb(n, k)))


@bank.right("lgamma")
def log_gamma(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    if n - c < k:
        return 1.0
    log_ratio = math.lgamma(n - c + 1) + math.lgamma(n - k + 1) - math.lgamma(n - c - k + 1) - math.lgamma(n + 1)
    return 1 - math.exp(log_ratio)


@bank.right("a product over the k draws")
def draw_by_draw(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    none_correct = 1.0
    for i in range(k):
        none_correct *= (n - c - i) / (n - i)
    return 1.0 - none_correct


@bank.right("numpy's product")
def with_numpy(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    if n - c < k:
        return 1.0
    return float(1 - numpy.prod(1 - k / numpy.arange(n - c + 1, n + 1)))


@bank.right("a sum of logarithms")
def sum_of_logarithms(n: int, c: int, k: int) -> float:
    _require(n, c, k)
    if n - c < k:
        return 1.0
    return -math.expm1(sum(math.log1p(-k / i) for i in range(n - c + 1, n + 1)))

"""The bands: what they cover, and that the files made from the record are those of now."""

import numpy as np
import pytest
from calibrate import BANDS, PAGE, RECORD
from calibration import (
    FALSE_ALARM,
    NOTEBOOKS,
    SHUFFLES,
    band,
    bands_of,
    held_out_alarms,
    page,
    shuffled_alarms,
    upper_end,
)
from scipy.stats import binom
from tables import leaves, lookup

from labutils.checkpoints import read_json
from labutils.lab import PROFILES


@pytest.fixture(scope="module")
def record():
    return read_json(RECORD)


@pytest.mark.parametrize(("count", "averaged"), [(12, 1), (24, 2)])
def test_a_band_is_left_as_often_as_it_says(count, averaged):
    """Of 4,000 bands from normal values; the count of misses is within 4 standard deviations, 1 in 16,000."""
    generator, trials, misses = np.random.default_rng(0), 4000, 0
    for _ in range(trials):
        values = generator.normal(5.0, 2.0, count + averaged)
        low, high, _ = band(("0", "kl"), list(values[:count]), 1e-9, averaged, entries=1)
        misses += not low <= values[count:].mean() <= high
    expected = trials * FALSE_ALARM
    assert abs(misses - expected) < 4 * expected**0.5, f"{misses} of {trials}, expected {expected:.0f}"


def test_a_rate_that_never_varied_may_vary_by_a_response():
    low, high, mean = band(("accuracy", "2"), [1.0] * 12, 0.005, 1, entries=100)
    assert (high, mean) == (1.0, 1.0)
    assert low < 0.995


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5, 0.9, 0.97, 0.995])
@pytest.mark.parametrize("metric", ["accuracy", "length"])
def test_a_rate_of_responses_leaves_its_band_no_more_often_than_it_says(rate, metric):
    """Rates of 100 responses, whose counts are binomial; at the level of one number of a notebook's hundred."""
    generator, trials, misses = np.random.default_rng(1), 200, 0
    for _ in range(trials):
        values = generator.binomial(100, rate, 24) / 100
        values = 3 + 6 * values if metric == "length" else values
        low, high, _ = band((metric, "5"), list(values), 0.01, 1, entries=100)
        low, high = ((low - 3) / 6, (high - 3) / 6) if metric == "length" else (low, high)
        counts = np.arange(101)
        outside = counts[(counts / 100 < low - 1e-6) | (counts / 100 > high + 1e-6)]
        misses += binom.pmf(outside, 100, rate).sum()
    assert misses / trials < FALSE_ALARM / 100, f"{misses / trials:.2e}"


def test_the_upper_end_of_a_rate():
    """Without a failure in n tries it is the rate p for which (1 - p)^n = 5 %."""
    assert upper_end(0, 24) == pytest.approx(1 - 0.05 ** (1 / 24))
    assert upper_end(0, 298) > 0.01 > upper_end(0, 299)
    assert upper_end(3, 3) == 1


def test_a_notebook_that_differs_is_counted_where_it_is_held_out():
    bands_from, rest = (2 * count for count in NOTEBOOKS["quick"])
    steady = [0.5 + 0.001 * (seed % 3) for seed in range(bands_from + rest)]
    for values, failed in ((steady, 0), ([*steady[:-1], 0.9], 1)):
        record = {"part3": {"dr_grpo": {"accuracy": {"2": values}}}}
        assert held_out_alarms(record, "quick", ["part3"]) == (failed, rest)
        found, total = shuffled_alarms(record, "quick", ["part3"])
        assert total == rest * SHUFFLES
        assert 0.3 * failed <= found / SHUFFLES <= 0.7 * failed  # held out in half of the choices


def test_a_band_reaches_twice_as_far_as_any_run_of_its_kind_has_strayed():
    """Of both policies' numbers of a kind, but not of the pretrained model, of which only sampling varies."""
    seeds = 2 * NOTEBOOKS["quick"][0]
    steady, strayed = [6.0] * seeds, [6.0] * (seeds - 1) + [5.0]
    tables = {"pretrained": {"2": steady}, "dr_grpo": {"2": steady, "8": strayed}, "dr_grpo_cost": {"3": steady}}
    bands = bands_of({"part3": {model: {"length": row} for model, row in tables.items()}}, "quick")["part3"]
    farthest = 2 * (1 - 1 / seeds)
    for model, digits in (("dr_grpo", "2"), ("dr_grpo_cost", "3")):
        low, high, _ = bands[model]["length"][digits]
        assert (low, high) == pytest.approx((6 - farthest, 6 + farthest), abs=1e-6)
    low, high, _ = bands["pretrained"]["length"]["2"]
    assert high - low < 1


@pytest.mark.parametrize("profile", list(PROFILES))
def test_the_bands_are_those_of_the_record(record, profile):
    assert read_json(BANDS)[profile] == bands_of(record[profile], profile), "run `benchmarks/calibrate.py write`"


@pytest.mark.parametrize("profile", list(PROFILES))
def test_rates_lie_between_0_and_1_and_every_band_holds_its_mean(profile):
    for part, table in read_json(BANDS)[profile].items():
        for keys in leaves(table):
            low, high, mean = lookup(table, keys)
            assert low <= mean <= high, (part, keys)
            if not {"length", "kl"} & set(keys):
                assert low >= 0, (part, keys)
                assert high <= 1, (part, keys)


def test_the_page_is_made_from_the_record(record):
    assert PAGE.read_text(encoding="utf-8") == page(record), "run `benchmarks/calibrate.py write`"

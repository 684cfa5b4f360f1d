import itertools
import json
import re
from importlib.resources import files

import pytest

from labutils.results import TableView, course_tables, mean_of_seeds


def test_the_expected_tables_are_the_courses_237_numbers():
    tables = json.loads(files("labutils").joinpath("data", "expected.json").read_text())["full"]

    def count(value):
        return sum(map(count, value.values())) if isinstance(value, dict) else 1

    assert count(tables) == 237


@pytest.mark.parametrize(("part", "rows"), [("part1", 3), ("part2", 9), ("part3", 15)])
def test_every_measured_line_stands_above_its_expected_line(part, rows):
    expected = course_tables()[part]
    lines = str(TableView(part, "full", expected, expected)).splitlines()
    pairs = [(above, below) for above, below in itertools.pairwise(lines) if re.search(r"\bexpect(ed)?\b", below)]
    assert len(pairs) == rows
    for above, below in pairs:
        cut = len(above) - len(above.rstrip().split("  ")[-1])  # same columns, same numbers
        assert above[cut:] == below[cut:]
        number = r"\d+\.\d+"
        assert re.findall(number, above) == re.findall(number, below)
        assert len(above) == len(below)


def test_numbers_are_rounded_as_in_the_course():
    table = {
        "accuracy": {"2": 0.987, "3": 0.4},
        "writes_states": {"2": 0.0849, "3": 1.0},
        "length": {"2": 3.2449, "3": 12},
    }
    text = str(TableView("part1", "full", table))
    assert re.findall(r"\d+\.\d+", text) == ["0.99", "0.40", "0.08", "1.00", "3.24", "12.00"]
    assert "no expected values for this profile" in text


@pytest.mark.parametrize("kl", [-0.04, -1e-9, -0.0, 0.0, 0.04])
def test_zero_has_no_sign(kl):
    table = {"rloo": {"0": {"accuracy": 0.5, "writes_states": 0.5, "kl": kl}}}
    bands = {"rloo": {"0": {metric: [value - 0.001, value, value] for metric, value in table["rloo"]["0"].items()}}}
    view = TableView("part2", "quick", table, table, bands)
    assert "-0.0" not in str(view)
    assert "-0.0" not in view._repr_mimebundle_()["text/html"]
    assert str(view).count(" 0.50 / 0.50 /  0.0") == 2
    negative = {"rloo": {"0": {**table["rloo"]["0"], "kl": -0.06}}}
    assert " 0.50 / 0.50 / -0.1" in str(TableView("part2", "quick", negative))


def test_the_mean_of_the_seeds():
    point = {"accuracy": 0.5, "writes_states": 0.25, "kl": 1.0, "length": 7.0}
    other = {"accuracy": 0.7, "writes_states": 0.75, "kl": 3.0, "length": 9.0}
    table = mean_of_seeds({"rloo": {0: {0: point}, 1: {0: other}}})
    assert table == {"rloo": {"0": {"accuracy": pytest.approx(0.6), "writes_states": 0.5, "kl": 2.0}}}


def test_a_step_without_an_expected_value_shows_a_dash():
    expected = course_tables()["part2"]
    run = {"7": {"accuracy": 0.5, "writes_states": 0.5, "kl": 1.0}}
    lines = str(TableView("part2", "full", dict.fromkeys(expected, run), expected)).splitlines()
    assert lines[-1].split() == ["expect"] + ["-"] * 5


def test_a_number_outside_its_band_is_marked_in_text_and_html():
    table = {metric: {"2": 0.5, "3": 0.5} for metric in ("accuracy", "writes_states", "length")}
    bands = {metric: {"2": [0.4, 0.6, 0.5], "3": [0.4, 0.6, 0.5]} for metric in table}
    bands["writes_states"]["3"] = [0.6, 0.9, 0.7]
    view = TableView("part1", "quick", table, table, bands)
    marked = [line for line in str(view).splitlines() if "0.50!" in line]
    assert len(marked) == 1
    assert re.match(r"\s+writes states\s+0.50\s+0.50!$", marked[0])
    assert str(view).splitlines()[-2:] == [
        "  1 of 6 numbers lie outside their bands (marked !):",
        "    writes_states 3: 0.5; expected 0.6 to 0.9",
    ]
    bundle = view._repr_mimebundle_()
    assert bundle["text/html"].count("0.50!") == 1
    assert bundle["text/html"].count("0.40\u20130.60") == 5
    assert bundle["application/vnd.lab16.table+json"] == {"part": "part1", "profile": "quick", "table": table}
    good = TableView("part1", "quick", table, table, {**bands, "writes_states": bands["accuracy"]})
    assert str(good).endswith("all 6 numbers lie in their bands")
    assert "!" not in str(good)


@pytest.mark.parametrize("part", ["part1", "part2", "part3"])
def test_a_table_looks_the_same_whatever_the_order_of_its_keys(part):
    """A saved notebook sorts them as text."""
    table = course_tables()[part]
    text = json.dumps(table, sort_keys=True)
    assert str(TableView(part, "full", json.loads(text), table)) == str(TableView(part, "full", table, table))

"""What several test modules share."""

import pytest

KILL_MATRIX = pytest.StashKey[dict]()  # exercise -> one line of the matrix, filled by test_checks.py


def pytest_configure(config):
    config.stash[KILL_MATRIX] = {}


def pytest_terminal_summary(terminalreporter, config):
    matrix = config.stash[KILL_MATRIX]
    if not matrix:
        return
    terminalreporter.section("self-checks against the bank of known mistakes")
    columns = ("wrong", "killed", "named", "correct", "rejected")
    total = {name: sum(row[name] for row in matrix.values()) for name in columns}
    terminalreporter.write_line(f"{'exercise':24}" + "".join(f"{name:>10}" for name in (*columns, "% named")))
    for exercise, row in {**matrix, "all": total}.items():
        numbers = (*(row[name] for name in columns), 100 * row["named"] // row["wrong"])
        terminalreporter.write_line(f"{exercise:24}" + "".join(f"{number:10}" for number in numbers))

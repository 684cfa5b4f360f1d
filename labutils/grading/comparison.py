"""Whether the tables and check reports that a cell shows are those of a correct run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from labutils.grading.reference import Reference, ReferenceCell
from labutils.results import CHECK_MIME, TABLE_MIME
from labutils.tolerance import Table, deviations, notebook_profile

MOST_LINES = 20  # of a table's wrong entries, so that an untrained model does not print hundreds

Bundle = Mapping[str, Any]  # what one output shows: MIME type -> data


def output_problems(cell: ReferenceCell, reference: Reference, bundles: Sequence[Bundle]) -> list[str]:
    """What is wrong with what a cell has shown: one line for each problem, none where all is right."""
    problems = []
    if cell.table is not None:
        problems += _table_problems(cell.table, reference.bands(cell.table), _shown(bundles, TABLE_MIME))
    if cell.check is not None:
        problems += _check_problems(cell.check, _shown(bundles, CHECK_MIME))
    return problems


def _shown(bundles: Sequence[Bundle], mime: str) -> list[Any]:
    return [bundle[mime] for bundle in bundles if mime in bundle]


def _table_problems(part: str, bands: Table | None, shown: list[Any]) -> list[str]:
    if bands is None:
        return [
            f"there are no bands for {part} in the profile {notebook_profile()!r}: nothing to compare the table with"
        ]
    if len(shown) != 1 or not isinstance(shown[0], Mapping):
        return [f"the cell shows {len(shown)} tables of numbers; expected exactly one, of {part}"]
    problems = []
    for key, expected in (("part", part), ("profile", notebook_profile())):
        if shown[0].get(key) != expected:
            problems.append(f"the table's {key} is {_short(shown[0].get(key))}; expected {expected!r}")
    table = shown[0].get("table")
    wrong = [*map(str, deviations(table, bands)), *_unexpected(table, bands)]
    if wrong:
        problems += [f"{len(wrong)} entries of the table of {part} are wrong:", *wrong[:MOST_LINES]]
    if len(wrong) > MOST_LINES:
        problems.append(f"and {len(wrong) - MOST_LINES} more")
    return problems


def _unexpected(table: Any, bands: Table, path: tuple[str, ...] = ()) -> Iterator[str]:
    """A line for each entry that has no band. Where a band's number should stand, the deviations tell."""
    if not isinstance(table, Mapping):
        return
    for key, value in table.items():
        if key not in bands:
            yield f"{' '.join((*path, key))[:80]}: no such entry is expected"
        elif isinstance(bands[key], Mapping):
            yield from _unexpected(value, bands[key], (*path, key))


def _check_problems(exercise: str, shown: list[Any]) -> list[str]:
    if len(shown) != 1 or not isinstance(shown[0], Mapping):
        return [f"the cell shows {len(shown)} check reports; expected exactly one, of {exercise}"]
    report = shown[0]
    if report.get("exercise") != exercise:
        return [f"the check report is of {_short(report.get('exercise'))}; expected {exercise!r}"]
    if report.get("passed") is not True:
        return [f"{exercise} did not pass its check: {str(report.get('diagnosis'))[:1000]}"]
    return []


def _short(value: Any) -> str:
    return repr(value)[:80]

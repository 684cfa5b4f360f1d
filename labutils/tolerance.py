"""Bands: what a correct run's numbers may be, measured with many seeds, and which numbers lie outside."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

# Nested tables: of numbers, and of the band [low, high] of each number under the same keys.
Table = Mapping[str, Any]

DATA = Path(str(files("labutils") / "data"))  # what comes with the lab


def notebook_profile() -> str:
    """The profile that notebooks run in, their kernels and what compares their tables: LAB16_PROFILE, else "full"."""
    return os.environ.get("LAB16_PROFILE", "full")


@dataclass(frozen=True)
class Deviation:
    """A number of a table that is missing, is no number, or lies outside its band.

    path: the keys that lead to it. value: what stands there, None where nothing does. low, high: its band, inclusive.
    """

    path: tuple[str, ...]
    value: Any
    low: float
    high: float

    def __str__(self) -> str:
        place = " ".join(self.path)
        if self.value is None:
            return f"{place}: missing; expected {self.low:.4g} to {self.high:.4g}"
        value = f"{self.value:.4g}" if is_number(self.value) else repr(self.value)[:40]
        return f"{place}: {value}; expected {self.low:.4g} to {self.high:.4g}"


def is_number(value: Any) -> bool:
    """Whether the value is a finite int or float; a bool is none, nor is an int that no float can hold."""
    # False for NaN and the infinities; math.isfinite would raise for a huge int.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def bands(profile: str, part: str, folder: Path = DATA) -> Table | None:
    """The bands of a part's table, nested like the table; None where the profile or part has none.

    Those under "any" are of tables that do not depend on the profile.
    """
    found = _all_bands(folder)
    return {**found.get("any", {}), **found.get(profile, {})}.get(part)


@cache
def _all_bands(folder: Path) -> dict[str, Any]:
    path = folder.joinpath("bands.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def deviations(table: Any, bands: Table, path: tuple[str, ...] = ()) -> list[Deviation]:
    """Every entry of `bands` whose number in `table` is missing, no finite number, or outside: never a rounded one."""
    found = []
    for key, low, high in entries(bands):
        value: Any = table
        for name in key:
            value = value.get(name) if isinstance(value, Mapping) else None
        if not is_number(value) or not low <= value <= high:
            found.append(Deviation((*path, *key), value, low, high))
    return found


def entries(bands: Table, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float, float]]:
    """(keys, low, high) of every band."""
    for key, value in bands.items():
        if isinstance(value, Mapping):
            yield from entries(value, (*path, key))
        else:
            yield (*path, key), value[0], value[1]

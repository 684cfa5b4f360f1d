"""Nested tables of numbers, walked by the keys that lead to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labutils.results import Keys


def leaves(table: Any, keys: Keys = ()) -> list[Keys]:
    """The keys of every number of a table, or of whatever else is no table."""
    if not isinstance(table, Mapping):
        return [keys]
    return [leaf for key, value in table.items() for leaf in leaves(value, (*keys, key))]


def lookup(table: Any, keys: Keys) -> Any:
    """What stands at the keys."""
    for key in keys:
        table = table[key]
    return table


def nested(values: Mapping[Keys, Any]) -> dict[str, Any]:
    """The table in which each value stands at its keys."""
    table: dict[str, Any] = {}
    for keys, value in values.items():
        row = table
        for key in keys[:-1]:
            row = row.setdefault(key, {})
        row[keys[-1]] = value
    return table

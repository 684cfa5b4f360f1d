"""Many runs of experiments: a grid of settings, computed side by side, each result kept as its run ends.

The results are in one SQLite file, beside which starting models that had to be trained are kept in a folder. A sweep
that was stopped goes on where it was, a finished run is not repeated, and several sweeps can write to one file.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import platform
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import torch
from tqdm.auto import tqdm

from labutils import experiments
from labutils.checkpoints import save_model
from labutils.errors import LabError
from labutils.experiments import Exercises, Outcome, RunSettings
from labutils.fingerprints import code_fingerprint, model_fingerprint
from labutils.model import Transformer
from labutils.runs import run_each
from labutils.training import History

WAIT_SECONDS = 60.0  # for another sweep that is writing
ANSWER_SECONDS = 5.0  # that a scheduler has to answer
MOST_RUNS = 100_000
FIELDS = ("settings", "about", "history", "samples")  # of a run, each as JSON
COLUMNS = ", ".join(["key TEXT PRIMARY KEY", *(f"{name} TEXT NOT NULL" for name in FIELDS)])


def grid(choices: Mapping[str, Sequence[Any]]) -> list[RunSettings]:
    """The settings of every combination of the choices, setting -> its values, in order.

    Raises `LabError` for a value that makes no sense, or too many combinations.
    """
    count = 1
    for values in choices.values():
        count *= len(values)
    if count > MOST_RUNS:
        raise LabError(f"a grid of {count} runs; allowed are at most {MOST_RUNS}")
    combinations = itertools.product(*choices.values())
    return [RunSettings(**dict(zip(choices, values, strict=True))) for values in combinations]


@dataclass(frozen=True)
class Row:
    """A finished run. about: what it ran with. outcome: see there."""

    settings: RunSettings
    about: dict[str, Any]
    outcome: Outcome

    @property
    def history(self) -> History:
        """Step -> metrics."""
        return self.outcome.history

    @property
    def last(self) -> dict[str, float]:
        """The metrics after the last step."""
        return self.history[max(self.history)]

    @property
    def take_off(self) -> float:
        """The step at which the writing rate first passes 1/2, interpolated; the last step where it never does."""
        rates = [(step, metrics["writes_states"]) for step, metrics in sorted(self.history.items())]
        for (start, low), (stop, high) in itertools.pairwise(rates):
            if low <= 1 / 2 < high:
                return start + (stop - start) * (1 / 2 - low) / (high - low)
        return float(max(self.history))


class Database:
    """The file with the results. Every call opens it anew, so that no lock outlives a call."""

    def __init__(self, path: Path):
        """Makes the file where there is none. Raises `LabError` for one that is no database of runs."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._execute(f"CREATE TABLE IF NOT EXISTS runs ({COLUMNS})")
            self._execute(f"SELECT key, {', '.join(FIELDS)} FROM runs LIMIT 1")
        except (sqlite3.Error, OSError) as error:
            raise LabError(f"{path} is no database of runs: {error}; choose another file") from error

    def has(self, key: str) -> bool:
        """Whether the run of this key has finished."""
        return bool(self._execute("SELECT 1 FROM runs WHERE key = ?", key))

    def add(self, key: str, row: Row) -> None:
        """Keep a finished run, unless another sweep was first."""
        values = (asdict(row.settings), row.about, row.history, row.outcome.samples)
        texts = (json.dumps(value, allow_nan=False) for value in values)
        self._execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?)", key, *texts)

    def row(self, key: str) -> Row | None:
        """The finished run of this key."""
        found = self._execute(f"SELECT {', '.join(FIELDS)} FROM runs WHERE key = ?", key)
        return _row(*map(json.loads, found[0])) if found else None

    def rows(self) -> list[Row]:
        """All finished runs, in the order of their settings."""
        found = self._execute(f"SELECT {', '.join(FIELDS)} FROM runs ORDER BY settings, key")
        return [_row(*map(json.loads, texts)) for texts in found]

    def _execute(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=WAIT_SECONDS)) as connection, connection:
            return connection.execute(statement, values).fetchall()


def _row(settings: dict[str, Any], about: dict[str, Any], history: dict[str, Any], samples: list[Any]) -> Row:
    by_step = {int(step): metrics for step, metrics in history.items()}
    return Row(RunSettings(**settings), about, Outcome(by_step, [(text, *verdicts) for text, *verdicts in samples]))


def sweep(runs: Sequence[RunSettings], exercises: Exercises, database: Database, jobs: int) -> list[Row]:
    """Compute the runs that the database lacks, `jobs` at a time; each is kept as it ends. Returns all, in order.

    Raises `LabError` for settings that the exercises do not serve, before any training. An interruption gives up the
    runs under way and raises `KeyboardInterrupt`.
    """
    for settings in runs:
        exercises.require(settings)
    models = _starting_models(runs, exercises, database, jobs)
    keys = {_key(settings, exercises, models[_start(settings)]): settings for settings in runs}
    missing = {key: settings for key, settings in keys.items() if not database.has(key)}

    def tasks() -> Iterator[tuple[str, Callable[[], Row]]]:
        for key, settings in missing.items():
            if database.has(key):  # another sweep has computed it meanwhile
                bar.update()
                continue
            yield key, partial(_compute, settings, exercises, models[_start(settings)])

    with tqdm(desc="sweep", total=len(keys), initial=len(keys) - len(missing)) as bar:
        for key, row in run_each("sweep", tasks(), len(missing), jobs):
            database.add(key, row)
            bar.update()
    return [kept for key in keys if (kept := database.row(key))]


def _compute(settings: RunSettings, exercises: Exercises, start: Transformer) -> Row:
    begun = time.perf_counter()
    outcome = experiments.run(settings, exercises, start)
    about = {
        "seconds": round(time.perf_counter() - begun, 2),
        "seed": settings.seed,
        "threads": 1,
        "machine": f"{platform.machine()} {platform.system()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "lab16": version("lab16"),
    }
    return Row(settings, about, outcome)


def _starting_models(
    runs: Sequence[RunSettings], exercises: Exercises, database: Database, jobs: int
) -> dict[tuple[str, float], Transformer]:
    """(pretraining, worked rate) -> the model; those that do not come with the lab are trained first, and kept."""
    folder = database.path.with_suffix(".models")
    by_start = {_start(settings): settings for settings in runs}
    wanted = {start: settings for start, settings in by_start.items() if experiments.needs_start(settings, folder)}
    tasks = [(start, partial(experiments.pretrained_at, *start, exercises.loss)) for start in wanted]
    if tasks:
        with tqdm(desc="starting models", total=len(tasks)) as bar:
            for start, model in run_each("starting models", tasks, len(tasks), jobs):
                path = experiments.start_path(wanted[start], folder)
                save_model(path, model, {"pretraining": start[0], "worked_rate": start[1]})
                bar.update()
    return {start: experiments.starting_model(settings, folder) for start, settings in by_start.items()}


def _start(settings: RunSettings) -> tuple[str, float]:
    return settings.pretraining, settings.worked_rate


def _key(settings: RunSettings, exercises: Exercises, start: Transformer) -> str:
    """Equal for runs that give the same numbers: of the same settings, functions and starting model."""
    used = (
        exercises.step,
        exercises.estimators[settings.estimator],
        exercises.verifiers[settings.verifier],
        *(exercises.divergences[name] for name in experiments.KL_PLACES[settings.kl]),
        exercises.kl_per_response,
    )
    return code_fingerprint(asdict(settings), used, model_fingerprint(start))


@contextlib.contextmanager
def dask_cluster(address: str) -> Iterator[int]:
    """Inside the block runs are computed by the workers of the Dask scheduler at the address; gives their number.

    Raises `LabError` where Dask is missing, or the scheduler does not answer or has no workers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise LabError("--scheduler needs Dask; install it with: pip install 'lab16[cluster]'") from None
    try:
        client = Client(address, timeout=ANSWER_SECONDS)
    except (OSError, ValueError, TypeError) as error:
        raise LabError(f"scheduler {address!r} does not answer: {error}") from error
    with client:
        workers = sum(client.nthreads().values())
        if workers == 0:
            raise LabError(f"scheduler {address!r} has no workers; start one with: dask worker {address} --nthreads 1")
        with joblib.parallel_config("dask", client=client):
            yield workers

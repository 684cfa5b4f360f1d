"""The project as a whole: style, types, the two lists of packages, what ships."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import fidelity
import pytest
import speed
import yaml

from labutils.checkpoints import read_json
from labutils.checks import check
from labutils.experiments import SHIPPED_STARTS, start_config
from labutils.lab import shipped_model
from labutils.results import TableView, course_tables

ROOT = Path(__file__).parents[1]
# conda-forge's names of the packages that PyPI calls otherwise
CONDA_NAMES = {"pytorch-cpu": "torch", "matplotlib-base": "matplotlib"}


@pytest.mark.parametrize(
    "tool",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]],
    ids=lambda tool: " ".join(tool),
)
def test_lint_format_and_types(tool):
    result = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_conda_and_pip_install_the_same_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pip = {line.replace(" ", "") for line in project["dependencies"] + project["optional-dependencies"]["test"]}
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    names = {}
    for line in conda:
        name, *version = re.split(r"(?=>=)", line)
        names[name] = CONDA_NAMES.get(name, name) + "".join(version)
    assert names.pop("python") == "python" + project["requires-python"]
    names.pop("pip")
    assert set(names.values()) == pip


def test_the_constraints_pin_every_package_that_is_asked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + [x for extra in project["optional-dependencies"].values() for x in extra]
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    assert {re.split("[>=]", line)[0].strip() for line in wanted} <= {name.lower() for name in pins}
    assert pins["torch"] == "2.13.0"


def test_labutils_does_not_import_the_solutions_and_imports_only_downwards():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (names,) = re.findall(r"above it in this order: ([\w,\s]+)\.", readme)
    order = re.split(r",\s+", names)
    files = [path for path in (ROOT / "labutils").rglob("*.py") if path.parts[-1] not in ("__main__.py",)]
    of = {path: path.relative_to(ROOT / "labutils").with_suffix("").parts[0] for path in files}
    assert set(of.values()) - {"__init__"} == set(order)
    for path, module in of.items():
        text = path.read_text(encoding="utf-8")
        assert "import lab16_llm_rl" not in text
        assert "known_mistakes" not in text
        imported = re.findall(r"from labutils\.(\w+)[\w.]* import", text)
        for group in re.findall(r"from labutils import ([\w, ]+)", text):
            imported += group.split(", ")
        for name in set(imported) - {module}:
            assert order.index(name) < order.index(module), f"{path} imports {name}"


def test_the_shipped_checkpoints_are_small_and_load():
    data = ROOT / "labutils" / "data"
    names = {"dr_grpo", "dr_grpo_cost"} | set(SHIPPED_STARTS.values())
    assert {path.stem for path in data.glob("*.safetensors")} == names
    assert max(path.stat().st_size for path in data.glob("*.safetensors")) < 1.5 * 2**20
    for name in names:
        shipped_model(name, start_config(name))


def test_the_readme_shows_the_measured_numbers():
    """The tables of the shipped seed, and the speeds, as their data files have them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    record = read_json(fidelity.RECORD)
    shipped = record["seeds"][fidelity.median_seed(record)]
    for part, expected in course_tables().items():
        assert str(TableView(part, "full", shipped[part], expected)) in readme, part
    measured = read_json(ROOT / "benchmarks" / "speed.json")
    for text in (measured["machine"], speed.table(measured), speed.memory_text(measured)):
        assert text in readme


def test_the_readme_has_no_gaps_and_its_links_lead_somewhere():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\b[A-Z]+_[A-Z_]+\b(?<!LAB16_PROFILE)(?<!NBVAL_SKIP)", readme) == []
    for text, link in re.findall(r"\[([^\]]*)\]\(([^)#]+)\)", readme):
        assert text, f"{link} has no text"
        assert link.startswith("https://") or (ROOT / link).exists(), link
    for path in re.findall(r"`((?:labutils|notebooks|solutions|benchmarks|tests|docs)/[\w./]*)`", readme):
        assert (ROOT / path).exists(), path


def test_the_readme_shows_what_a_check_says():
    def rloo_advantages(rewards):
        return rewards - rewards.mean(1, keepdim=True)

    shown = str(check(rloo_advantages)).partition("\n\n  ✗")[0]
    assert shown in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_text_beside_the_checkpoints_is_the_record():
    record = read_json(fidelity.RECORD)
    text = (fidelity.DATA / "CHECKPOINTS.txt").read_text(encoding="utf-8")
    assert text == fidelity.checkpoints_text(record, fidelity.median_seed(record))


def test_the_courses_numbers_lie_in_the_range_of_the_seeds():
    """With all seeds, and without those that learned direct answers to three digits and so widen the range."""
    seeds = read_json(fidelity.RECORD)["seeds"]
    assert fidelity.outside(seeds) == []
    assert fidelity.outside({seed: tables for seed, tables in seeds.items() if not fidelity.unusual(tables)}) == []


def test_functions_stay_short():
    """Exercises and helpers are read on one screen; the three loops over many options are the longest."""
    import ast

    long = []
    for path in [*(ROOT / "labutils").rglob("*.py"), *(ROOT / "solutions").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                if lines > 40:
                    long.append(f"{path.name}:{node.lineno} {node.name} has {lines} lines")
    assert not long

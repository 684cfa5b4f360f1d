"""One whole run of the lab at a toy size, and what a folder accepts."""

import json
import math
from dataclasses import replace
from pathlib import Path

import lab16_llm_rl as solution
import pytest
import torch
from matplotlib.image import imread
from PIL import Image

from labutils import lab as lab_module
from labutils import plots, task
from labutils.checkpoints import load_model, read_description, save_model
from labutils.errors import LabError
from labutils.fingerprints import model_fingerprint
from labutils.lab import Lab, shipped_model
from labutils.results import course_tables
from labutils.training import PretrainingSettings, ReinforcementSettings

TOY = lab_module.Profile(
    PretrainingSettings(steps=4, batch=8),
    ReinforcementSettings(steps=2, problems=2, evaluate_every=1, evaluation_problems=1),
    samples_per_length=3,
    pass_problems=2,
)
LENGTHS = [str(n) for n in range(2, 9)]
ESTIMATORS = ["reinforce", "rloo", "grpo", "dr_grpo", "dr_grpo_cost"]


@pytest.fixture(autouse=True)
def toy_profile(monkeypatch):
    monkeypatch.setitem(lab_module.PROFILES, "full", TOY)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("lab") / "results"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(lab_module.PROFILES, "full", TOY)
        solution.main(Lab.open(out, jobs=1))
    return out


def numbers(value):
    return [x for item in value.values() for x in (numbers(item) if isinstance(item, dict) else [item])]


def test_tables_json_has_the_documented_layout(finished):
    tables = json.loads((finished / "tables.json").read_text())
    assert list(tables) == ["part1", "part2", "part3"]
    assert {metric: list(row) for metric, row in tables["part1"].items()} == dict.fromkeys(
        ["accuracy", "writes_states", "length"], LENGTHS
    )
    assert list(tables["part2"]) == ESTIMATORS
    for run in tables["part2"].values():
        assert list(run) == ["0", "1", "2"]
        assert all(sorted(point) == ["accuracy", "kl", "writes_states"] for point in run.values())
    assert list(tables["part3"]) == ["pretrained", "dr_grpo", "dr_grpo_cost"]
    for model, table in tables["part3"].items():
        assert ("pass_at_k" in table) is (model != "dr_grpo_cost")
        assert all(list(table[metric]) == LENGTHS for metric in ("accuracy", "writes_states", "length"))
        for row in table.get("pass_at_k", {}).values():
            assert list(row) == ["1", "8", "64"]
    assert all(isinstance(x, float) and math.isfinite(x) for x in numbers(tables))


def test_part_2_is_the_mean_of_the_seeds_and_starts_without_divergence(finished):
    tables = json.loads((finished / "tables.json").read_text())
    for name in ESTIMATORS:
        (first,), (second,) = ((finished / "state").glob(f"{name}-seed{seed}-*.safetensors") for seed in (0, 1))
        runs = [read_description(path)["history"] for path in (first, second)]
        for step in ("0", "1", "2"):
            for metric in ("accuracy", "writes_states", "kl"):
                mean = (runs[0][step][metric] + runs[1][step][metric]) / 2
                assert tables["part2"][name][step][metric] == pytest.approx(mean)
        assert tables["part2"][name]["0"]["kl"] == 0


@pytest.mark.parametrize(
    ("name", "picture", "part"),
    [
        ("part2_learning_curves", plots.learning_curves, None),
        ("part3_by_length", plots.by_length, "part3"),
        ("part3_pass_at_k", plots.pass_at_k, "part3"),
    ],
)
def test_figures_are_pictures_with_a_description(finished, name, picture, part):
    curves = {"rloo": {0: {0: {"accuracy": 0.5, "writes_states": 0.5, "kl": 0.0}}}}
    table = json.loads((finished / "tables.json").read_text())[part] if part else curves
    alt = picture(table).alt
    path = finished / "figures" / f"{name}.png"
    picture = imread(path)
    assert min(picture.shape[:2]) > 300
    assert picture.std() > 0.02  # something is drawn
    with Image.open(path) as image:
        assert image.info["Description"] == alt
    assert alt in " ".join((finished / "figures" / f"{name}.svg").read_text().split())


def test_the_kept_models_are_the_runs_own(finished):
    for name in ("pretrained", "dr_grpo", "dr_grpo_cost"):
        model, about = load_model(finished / "checkpoints" / f"{name}.safetensors")
        assert about["seed"] == 0
        assert about.get("estimator", "pretrained") == name
        assert about.get("length_cost", 0.0) == (0.02 if name == "dr_grpo_cost" else 0.0)
        assert not torch.equal(model.head.weight, shipped_model(name).head.weight)


def test_a_second_run_trains_nothing_and_leaves_every_file_as_it_was(finished, capsys, monkeypatch):
    def never(*_):
        raise AssertionError("a finished run took a training step")

    before = {path: path.read_bytes() for path in sorted(finished.rglob("*")) if path.is_file()}
    monkeypatch.setattr(torch.optim.AdamW, "step", never)
    monkeypatch.setattr(torch.optim.Adam, "step", never)
    solution.main(Lab.open(finished, jobs=1))
    assert "=== Part 3" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in before} == before


def test_the_processes_do_not_change_the_numbers(finished, tmp_path):
    """Part 2 alone, in two processes, from a copy of part 1's model."""
    lab = Lab.open(tmp_path, parts=(2,), jobs=2)
    (tmp_path / "checkpoints").mkdir()
    source = finished / "checkpoints" / "pretrained.safetensors"
    (tmp_path / "checkpoints" / source.name).write_bytes(source.read_bytes())
    solution.main(lab)
    one, two = (json.loads((out / "tables.json").read_text())["part2"] for out in (finished, tmp_path))
    assert one == two


def test_parts_2_and_3_start_from_the_shipped_models_and_say_so(tmp_path, capsys):
    solution.main(Lab.open(tmp_path, parts=(3,), jobs=1))
    lines = [line for line in capsys.readouterr().out.splitlines() if "comes with the lab" in line]
    assert [line.split(":")[0] for line in lines] == ["pretrained", "dr_grpo", "dr_grpo_cost"]


def test_part_3_does_not_mix_its_own_model_with_shipped_policies(tmp_path):
    solution.main(Lab.open(tmp_path, parts=(1,), jobs=1))
    with pytest.raises(LabError, match=r"dr_grpo\.safetensors does not exist; run part 2 first"):
        solution.main(Lab.open(tmp_path, parts=(3,), jobs=1))


def test_part_3_refuses_policies_that_started_from_another_model(tmp_path):
    solution.main(Lab.open(tmp_path, parts=(2,), jobs=1))  # from the lab's model
    solution.main(Lab.open(tmp_path, parts=(1,), jobs=1))
    with pytest.raises(LabError, match=r"dr_grpo\.safetensors was trained from another pretrained model"):
        solution.main(Lab.open(tmp_path, parts=(3,), jobs=1))


def test_a_profile_that_stops_early_builds_on_the_labs_model(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(lab_module.PROFILES, "quick", replace(TOY, unfinished_pretraining=True))
    solution.main(Lab.open(tmp_path, "quick", parts=(1, 2), jobs=1))
    assert "pretrained: the quick profile trains it for 4 steps only; using the checkpoint" in capsys.readouterr().out
    _, about = load_model(tmp_path / "checkpoints" / "dr_grpo.safetensors")
    assert about["start"] == model_fingerprint(shipped_model("pretrained"))


def test_some_estimators_can_run_without_the_others(tmp_path):
    lab = Lab.open(tmp_path, jobs=1)
    rloo = {"rloo": solution.ESTIMATORS["rloo"]}
    curves = lab.reinforce(rloo, solution.policy_gradient_step, solution.summarize, solution.kl_per_response)
    assert list(curves) == ["rloo"]


@pytest.mark.parametrize("change", ["advantages", "weights", "length_cost", "group_size", "start", "settings"])
def test_only_what_was_changed_is_trained_again_and_takes_the_place_of_what_was(tmp_path, change):
    """In a notebook a function is written again and the cell run again: its runs begin anew, the others are kept."""
    lab, trained = Lab.open(tmp_path, jobs=1), []

    def rescaled(rewards):
        return 2 * solution.rloo_advantages(rewards)

    def train(lab, estimators):
        before = {path.name for path in (tmp_path / "state").glob("*")}
        lab.reinforce(estimators, solution.policy_gradient_step, solution.summarize, solution.kl_per_response)
        after = sorted(path.name for path in (tmp_path / "state").glob("*"))
        assert [name[:10] for name in after] == ["grpo-seed0", "grpo-seed1", "rloo-seed0", "rloo-seed1"]
        trained.append([name[:10] for name in after if name not in before])

    estimators = {name: solution.ESTIMATORS[name] for name in ("rloo", "grpo")}
    train(lab, estimators)
    train(lab, estimators)
    changes = {"advantages": rescaled, "weights": solution.mean_weights, "length_cost": 0.1, "group_size": 4}
    if change in changes:
        estimators["rloo"] = replace(estimators["rloo"], **{change: changes[change]})
    elif change == "start":
        save_model(tmp_path / "checkpoints" / "pretrained.safetensors", shipped_model("dr_grpo"), {})
    else:
        settings = replace(lab.sizes.reinforcement, step_size=1e-5)
        lab = replace(lab, sizes=replace(lab.sizes, reinforcement=settings))
    train(lab, estimators)
    again = ["grpo-seed0", "grpo-seed1", "rloo-seed0", "rloo-seed1"]
    assert trained == [again, [], again[2:] if change in changes else again]


def test_a_changed_loss_is_pretrained_anew(tmp_path):
    lab = Lab.open(tmp_path, jobs=1)
    first, again = lab.pretrain(solution.pretraining_loss), lab.pretrain(solution.pretraining_loss)
    other = lab.pretrain(lambda log_probs, responses: -log_probs.mean())
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)


def test_the_notebooks_run_starts_from_the_labs_model_even_after_part_1(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB16_PROFILE", "quick")
    assert Lab.for_notebook().profile == "quick"
    monkeypatch.delenv("LAB16_PROFILE")
    lab = Lab.for_notebook()
    assert (lab.profile, lab.out) == ("full", Path("results/full"))
    own = lab.pretrain(solution.pretraining_loss)
    start = lab.model("pretrained")
    assert "everyone starts from the same" in capsys.readouterr().out
    assert torch.equal(start.head.weight, shipped_model("pretrained").head.weight)
    assert not torch.equal(start.head.weight, own.head.weight)
    assert torch.equal(lab.model("dr_grpo").head.weight, shipped_model("dr_grpo").head.weight)
    monkeypatch.setenv("LAB16_PROFILE", "fast")
    with pytest.raises(LabError, match="profile 'fast'; allowed are full, quick"):
        Lab.for_notebook()


def test_the_bands_of_part_2_are_for_runs_from_the_labs_model(tmp_path, monkeypatch):
    monkeypatch.setattr(lab_module, "bands", lambda profile, part: {"rloo": {"0": {"kl": [0, 0, 0]}}})
    curves = {"rloo": {0: {0: {"accuracy": 0.5, "writes_states": 0.5, "kl": 0.0}}}}
    lab = Lab.open(tmp_path, jobs=1)
    assert lab.report("part2", curves).bands is None
    assert replace(lab, shipped_start=True).report("part2", curves).bands is not None


def test_the_full_profile_is_the_courses():
    """Against the numbers of the course text, where a slip would go unseen in every other test."""
    full = lab_module.Profile()
    assert full.pretraining == PretrainingSettings(4000, 256, 0.1, 1e-3, warmup=0.1, seed=0)
    assert full.reinforcement == ReinforcementSettings(200, 32, 3e-4, 25, evaluation_problems=50, seed=0)
    assert (full.samples_per_length, full.pass_problems, full.unfinished_pretraining) == (200, 100, False)
    assert (lab_module.RUN_SEEDS, lab_module.PASS_LENGTHS, lab_module.PASS_KS) == ((0, 1), (4, 6, 8), (1, 8, 64))
    assert (task.PROMPT_TOKENS, task.RESPONSE_TOKENS, task.VOCABULARY) == (9, 12, 15)
    estimators = {
        "reinforce": ("reinforce_advantages", "sum_weights", 0.0, 8),
        "rloo": ("rloo_advantages", "sum_weights", 0.0, 8),
        "grpo": ("grpo_advantages", "mean_weights", 0.0, 8),
        "dr_grpo": ("dr_grpo_advantages", "constant_weights", 0.0, 8),
        "dr_grpo_cost": ("dr_grpo_advantages", "constant_weights", 0.02, 8),
    }
    assert estimators == {
        name: (e.advantages.__name__, e.weights.__name__, e.length_cost, e.group_size)
        for name, e in solution.ESTIMATORS.items()
    }


def test_every_evaluation_by_length_has_problems_of_that_length(tmp_path, monkeypatch):
    lab, seen = Lab.open(tmp_path, jobs=1), []

    def lengths(problems, responses):
        assert len(problems) == len(responses)
        seen.append(problems.lengths.tolist())
        return {"length": 0.0}

    lab.evaluate_by_length(shipped_model("dr_grpo"), lengths)
    assert seen == [[n] * 3 for n in range(2, 9)]
    counted = []
    monkeypatch.setattr(
        lab_module.training, "count_correct", lambda m, problems, n, g: counted.append((problems, n)) or [n] * 2
    )
    for _ in range(2):
        assert lab.pass_at_k(shipped_model("dr_grpo"), solution.pass_at_k)["6"] == {"1": 1.0, "8": 1.0, "64": 1.0}
    assert [(problems.lengths.tolist(), n) for problems, n in counted] == [([k] * 2, 64) for k in (4, 6, 8)] * 2
    # Another model, later, meets the same problems.
    assert all(torch.equal(a.digits, b.digits) for (a, _), (b, _) in zip(counted[:3], counted[3:], strict=True))


def test_a_damaged_model_is_named_and_not_used(tmp_path):
    solution.main(Lab.open(tmp_path, parts=(1,), jobs=1))
    path = tmp_path / "checkpoints" / "pretrained.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(LabError, match=r"pretrained\.safetensors is damaged"):
        solution.main(Lab.open(tmp_path, parts=(2,), jobs=1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"profile": "huge"}, "profile 'huge'; allowed are full, quick"),
        ({"parts": (1, 4)}, "part 4; allowed are 1, 2, 3"),
        ({"seed": -1}, "seed -1; allowed are 0 to 65535"),
        ({"jobs": 0}, "jobs 0; allowed are 1 to 256"),
    ],
)
def test_unknown_settings_are_named_with_what_is_allowed(tmp_path, arguments, message):
    out = tmp_path / "results"
    with pytest.raises(LabError) as error:
        Lab.open(out, **arguments)
    assert str(error.value) == message
    assert not out.exists()


def test_a_folder_belongs_to_one_run(tmp_path):
    solution.main(Lab.open(tmp_path, seed=0, parts=(1,), jobs=1))
    with pytest.raises(LabError, match="holds a run with seed 0, not 1; choose another folder"):
        Lab.open(tmp_path, seed=1, jobs=1)
    for name in ("tables.json", "settings.json"):
        (tmp_path / name).write_text("[]")
        with pytest.raises(LabError, match=f"{name} is damaged: not a JSON object; remove it or choose another"):
            Lab.open(tmp_path, jobs=1)
        (tmp_path / name).unlink()
    with pytest.raises(LabError, match="holds other files; choose an empty folder or a new one"):
        Lab.open(tmp_path, jobs=1)


def test_a_folder_in_which_nothing_was_trained_is_free(tmp_path):
    Lab.open(tmp_path, seed=0, jobs=1)
    assert Lab.open(tmp_path, seed=1, jobs=1).seed == 1


def test_a_number_that_is_not_finite_is_named_and_not_written(tmp_path):
    lab = Lab.open(tmp_path, jobs=1)
    with pytest.raises(LabError, match="part1 accuracy 3 is nan; every number of a table must be finite"):
        lab.report("part1", {"accuracy": {"2": 0.5, "3": math.nan}})
    assert not (tmp_path / "tables.json").exists()


def test_an_unwritable_folder_is_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    with pytest.raises(LabError, match=f"cannot write to {blocked}: it is a file"):
        Lab.open(blocked)
    with pytest.raises(LabError, match="cannot write to"):
        Lab.open(blocked / "below")
    assert blocked.read_text() == "mine"


def test_the_profiles_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Lab.open(jobs=1).out != Lab.open(profile="quick", jobs=1).out


def test_the_seed_reaches_pretraining_and_reinforcement(tmp_path):
    lab = Lab.open(tmp_path, seed=3, jobs=1)
    assert lab.sizes == replace(TOY, pretraining=replace(TOY.pretraining, seed=3))


def test_a_folder_with_a_table_alone_belongs_to_its_run(tmp_path):
    lab = Lab.open(tmp_path, "quick", 0, (3,))
    lab.report("part1", course_tables()["part1"])
    with pytest.raises(LabError, match="holds a run with profile 'quick', not 'full'"):
        Lab.open(tmp_path, "full", 0, (1,))
    Lab.open(tmp_path, "quick", 0, (1,))

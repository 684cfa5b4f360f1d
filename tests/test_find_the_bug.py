"""The gallery of defects: each has the effect that its answer tells of, and the repaired function has not."""

import math

import build
import pytest
import torch


@pytest.fixture(scope="module")
def cells():
    return {cell.id: cell.source for cell in build.student_notebook("find_the_bug").cells if cell.cell_type == "code"}


@pytest.fixture
def effect(cells, capsys):
    """Runs a defect's two cells, in place of the function another one if given; gives the names and what is printed."""

    def run(number, **repaired):
        names = {}
        for cell in ("setup", "first-defect", "first-effect", f"{number}-defect"):
            exec(cells[cell], names)
        names.update(repaired)
        capsys.readouterr()
        exec(cells[f"{number}-effect"], names)
        return names, capsys.readouterr().out

    return run


def test_there_are_at_least_eight(cells):
    assert sum(name.endswith("-defect") for name in cells) == sum(name.endswith("-effect") for name in cells) >= 8


def test_the_penalty_drives_away(effect):
    def penalized_reward(reward, own, reference, beta):
        return reward - beta * (own - reference)

    assert effect("first")[0]["divergence"][-1] > 2
    assert effect("first", penalized_reward=penalized_reward)[0]["divergence"][-1] < 0.001


def test_the_end_is_not_learned(effect):
    def token_mask(responses):
        ended = (responses == 14).cumsum(1)
        return ended - (responses == 14).long() == 0

    assert effect("second")[0]["probability"] < 0.05
    assert effect("second", token_mask=token_mask)[0]["probability"] == pytest.approx(1 / 3, abs=0.01)


def test_the_term_has_no_gradient(effect):
    def k2(own, reference, mask):
        return ((own - reference).square() / 2 * mask).sum(1).mean()

    def gradients(**repaired):
        names, _ = effect("third", **repaired)
        policy = names["logits"].softmax(0)
        (exact,) = torch.autograd.grad((policy * (policy.log() - names["reference"].log())).sum(), names["logits"])
        return names["policy"].detach() @ names["scores"], exact

    found, exact = gradients()
    assert found.norm() < 1e-6 < 0.05 < exact.norm()
    found, exact = gradients(kl_term=k2)
    assert torch.allclose(found, exact, atol=1e-6)


def test_what_is_cut_off_is_never_learned(effect):
    names, _ = effect("fourth")
    assert names["drawn"][3] == 0
    assert (names["drawn"] @ names["scores"]).norm() > 0.1
    names, _ = effect("fourth", sampling_distribution=lambda logits: logits.softmax(0))
    assert (names["drawn"] @ names["scores"]).norm() < 1e-6


def test_the_assertion_cannot_fail(effect):
    assert effect("fifth")[0]["weight"].grad.isnan().all()

    def checked(rewards):
        assert torch.isfinite(rewards).all(), "a reward is not finite"

    with pytest.raises(AssertionError, match="a reward is not finite"):
        effect("fifth", checked=checked)


def test_positions_move(effect):
    rows = [list(map(float, line.split())) for line in effect("sixth")[1].splitlines()[1:]]
    gaps = {int(digits): abs(one - other) for digits, one, other in rows}
    assert gaps.pop(8) < 0.01
    assert min(gaps.values()) > 1


def test_nothing_is_an_answer(effect):
    lines = effect("seventh")[1].splitlines()
    accepted = {line.rsplit(maxsplit=1)[0].strip() for line in lines if line.endswith("accepted")}
    assert {"<end>", "> <end>", "> 0 <end>", "> 8 <end>"} <= accepted
    assert "> 3 <end>" not in accepted


def test_the_pieces_matter(effect):
    def whole(token_losses, mask, size):
        return (token_losses * mask).sum() / mask.sum()

    lines = effect("eighth")[1].splitlines()
    assert len({line.partition("weighs")[2] for line in lines}) == 2
    lines = effect("eighth", token_mean_in_pieces=whole)[1].splitlines()
    assert len({line.partition("weighs")[2] for line in lines}) == 1


def test_all_responses_are_one(effect):
    names, _ = effect("ninth")
    assert names["advantages"].abs().max() == 0
    assert 0.2 < names["rewards"].mean() < 0.6


def test_the_pool_hides_the_problems(effect):
    names, out = effect("tenth")
    assert len({line[-18:] for line in out.splitlines()[1:3]}) == 1
    assert names["values"][1] > 0.99
    assert math.isclose(names["solved"], 0.5)

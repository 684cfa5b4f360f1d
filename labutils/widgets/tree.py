"""The tree of responses to one prompt: every prefix that a model is likely to sample, with its probability."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from torch import Tensor

from labutils.model import Transformer
from labutils.plots import Picture
from labutils.task import ARROW, COLON, END, PAD, RESPONSE_TOKENS, TOKEN_TEXT, Problems, decode, encode_prompts
from labutils.verifier import verify
from labutils.widgets.display import (
    DIRECT_COLOUR,
    OTHER_COLOUR,
    WORKED_COLOUR,
    Explorer,
    Shown,
    TextTable,
    digits_field,
    read_digits,
)

THRESHOLD = 0.005  # less probable prefixes are gathered as "other"
ROUNDING = 1e-9  # a rest below it is an error of summation
SMALLEST_LABELLED = 0.035  # of the axis: a box of this height has room for its token
BRANCHES = {ARROW: ("direct", DIRECT_COLOUR), COLON: ("worked", WORKED_COLOUR)}


@dataclass(frozen=True)
class Prefix:
    """A node of the tree.

    tokens: the response so far; empty for the root, and for what is gathered as "other" the parent's.
    probability: that a response starts so. start: where its box begins on the axis of probability.
    gathered: whether it stands for all improbable continuations of `tokens`.
    """

    tokens: tuple[int, ...]
    probability: float
    start: float
    gathered: bool = False

    @property
    def depth(self) -> int:
        """The place of its last token in the response, from 1."""
        return len(self.tokens) + self.gathered

    @property
    def finished(self) -> bool:
        """Whether nothing follows: `<end>`, a full response, or gathered."""
        return self.gathered or self.tokens[-1:] == (END,) or len(self.tokens) == RESPONSE_TOKENS

    def children(self, probabilities: Tensor, threshold: float) -> list[Prefix]:
        """The continuations, given the next token's probabilities (15,): `>` first, the gathered rest last."""
        found, start = [], self.start
        for token in sorted(range(len(probabilities)), key=lambda token: (token != ARROW, token)):
            probability = self.probability * float(probabilities[token])
            if probability >= threshold:
                found.append(Prefix((*self.tokens, token), probability, start))
                start += probability
        rest = self.start + self.probability - start
        if rest > ROUNDING:
            found.append(Prefix(self.tokens, rest, start, gathered=True))
        return found


class ResponseTree(Explorer):
    """See `response_tree`."""

    def __init__(self, models: Mapping[str, Transformer]):
        self.models = models
        self.digits = digits_field("471")
        super().__init__([self.digits])
        self.refresh_on(self.digits)

    def draw(self) -> list[Shown]:
        """The probabilities of the branches, and the icicles."""
        problem = read_digits(self.digits.value)
        trees = {name: response_prefixes(model, problem) for name, model in self.models.items()}
        header = ["probability of", "direct", "worked", "right", "other", f"prefixes of at least {THRESHOLD:.1%}"]
        rows = [[name, *_summary(tree, problem)] for name, tree in trees.items()]
        return [TextTable(header, rows), _picture(trees, problem)]


def response_tree(models: Mapping[str, Transformer]) -> ResponseTree:
    """Type a problem, and see the tree of the responses that each model samples to it, as an icicle picture.

    A box is a prefix: its place from left to right is its last token's, its height the probability that a response
    starts so, and to its right stand its continuations. Nothing is sampled: the tree is expanded exactly, down to
    prefixes of 0.5 %; what is less probable is gathered as "other". This tree is what makes the lab's engine fast:
    responses that begin alike share their boxes, and `labutils.rollout` computes each box once.

    models: title -> model.
    """
    return ResponseTree(models)


@torch.no_grad()
def response_prefixes(model: Transformer, problem: Problems, threshold: float = THRESHOLD) -> list[Prefix]:
    """Every prefix of a response to the one problem of at least this probability, and the gathered rests.

    In order of depth, without the root. The probabilities of those that are finished sum to 1.
    """
    prompt = encode_prompts(problem)
    level, tree = [Prefix((), 1.0, 0.0)], []
    while level:
        begun = torch.tensor([prefix.tokens for prefix in level], dtype=torch.long).view(len(level), -1)
        logits = model(torch.cat([prompt.expand(len(level), -1), begun], 1))[:, -1]
        children = [
            child
            for prefix, row in zip(level, logits.double().softmax(-1), strict=True)
            for child in prefix.children(row, threshold)
        ]
        tree += children
        level = [child for child in children if not child.finished]
    return tree


def is_right(prefix: Prefix, problem: Problems) -> bool:
    """Whether the verifier accepts the response that ends here; one that goes on or is gathered is not accepted."""
    padding = [PAD] * (RESPONSE_TOKENS - len(prefix.tokens))
    return not prefix.gathered and bool(verify(problem, torch.tensor([[*prefix.tokens, *padding]]))[0])


def _summary(tree: list[Prefix], problem: Problems) -> list[str]:
    """P(direct), P(worked), P(right), the gathered rest, and the number of prefixes that are not gathered."""
    first = {prefix.tokens[0]: prefix.probability for prefix in tree if prefix.depth == 1 and not prefix.gathered}
    right = sum(prefix.probability for prefix in tree if is_right(prefix, problem))
    other = sum(prefix.probability for prefix in tree if prefix.gathered)
    numbers = [first.get(ARROW, 0.0), first.get(COLON, 0.0), right, other]
    return [*(f"{number:.3f}" for number in numbers), str(sum(not prefix.gathered for prefix in tree))]


def _picture(trees: Mapping[str, list[Prefix]], problem: Problems) -> Picture:
    figure = Figure(figsize=(5.2 * len(trees), 4.6))
    figure.subplots_adjust(left=0.19 / len(trees), right=0.99, top=0.94, bottom=0.19, wspace=0.3)
    columns = max(prefix.depth for tree in trees.values() for prefix in tree)
    described = []
    for index, (name, tree) in enumerate(trees.items()):
        axis = figure.add_subplot(1, len(trees), index + 1)
        _icicle(axis, tree, problem, columns)
        axis.set_title(name, fontsize=11)
        direct, worked, right, *_ = _summary(tree, problem)
        described.append(f"{name}: direct {direct}, worked {worked}, right {right}")
    handles = [Patch(facecolor=colour, edgecolor="black", label=label) for label, colour in BRANCHES.values()]
    handles += [
        Patch(facecolor=OTHER_COLOUR, edgecolor="black", label=f"other (each below {THRESHOLD:.1%})"),
        Patch(facecolor="white", edgecolor="black", hatch="///", label="wrong response"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=4, fontsize="small", frameon=False)
    alt = (
        f"Icicle pictures of the responses to {decode(encode_prompts(problem)[0])}: a box for each prefix, its height "
        f"the probability, the tokens from left to right. Probabilities: {'; '.join(described)}."
    )
    return Picture(figure, alt)


def _icicle(axis: Axes, tree: list[Prefix], problem: Problems, columns: int) -> None:
    for prefix in tree:
        ends = prefix.finished and not prefix.gathered
        right = ends and is_right(prefix, problem)
        colour = OTHER_COLOUR
        if not prefix.gathered:
            colour = BRANCHES.get(prefix.tokens[0], ("", OTHER_COLOUR))[1]
        axis.bar(
            prefix.depth, prefix.probability, 1, prefix.start, color=colour, edgecolor="black", linewidth=0.4,
            hatch="///" if ends and not right else None,
        )  # fmt: skip
        if prefix.probability >= SMALLEST_LABELLED:
            label = "other" if prefix.gathered else TOKEN_TEXT[prefix.tokens[-1]]
            if ends:
                label = "right" if right else "wrong"
            middle = prefix.start + prefix.probability / 2
            box = {"facecolor": colour, "edgecolor": "none", "pad": 1}  # keeps the hatching off the letters
            axis.text(prefix.depth, middle, label, ha="center", va="center", fontsize=9, bbox=box)
    named = [prefix for prefix in tree if prefix.depth == 1 and not prefix.gathered and prefix.tokens[0] in BRANCHES]
    middles = [prefix.start + prefix.probability / 2 for prefix in named]
    labels = [f"{BRANCHES[prefix.tokens[0]][0]}\n{prefix.probability:.3f}" for prefix in named]
    axis.set_yticks(middles, labels=labels, fontsize=9)
    axis.set_ylim(1, 0)
    axis.set_xlim(0.5, columns + 0.5)
    axis.set_xticks(range(1, columns + 1))
    axis.set_xlabel("token of the response (the last is <end>)")
    axis.set_ylabel("height: probability of the prefix", labelpad=8)

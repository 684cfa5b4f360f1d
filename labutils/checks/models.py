"""Small models whose predictions are known.

The scripted model is a transformer that was trained to answer six prompts each with one response: any other token has
a probability of about 1e-10, so that what it samples is certain, yet its gradients are not 0. Its parameters come from
a file, so that its numbers do not depend on the machine. The bigram model's next token depends on the one before only,
with probabilities that a table states.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from importlib.resources import as_file, files

import torch
from torch import Tensor

from labutils.checkpoints import load_model
from labutils.model import ModelConfig, Transformer
from labutils.task import ARROW, COLON, END, EQUALS, PAD, RESPONSE_TOKENS, VOCABULARY, Problems

SCRIPTED_CONFIG = ModelConfig(layers=2, width=16, heads=2)
# Direct and right; worked and right; wrong; without `<end>`; with padding before `<end>`; as long as can be.
SCRIPT: tuple[tuple[list[int], list[int]], ...] = (
    ([2, 5], [ARROW, 1, END]),
    ([1, 2, 3], [COLON, 1, 5, 8, ARROW, 8, END]),
    ([6, 2], [COLON, ARROW, 4, END]),
    ([7, 3, 3, 8], [COLON, 2, 2, 7, ARROW, 5, 5, 3, COLON, 2, 6, ARROW]),
    ([1, 1], [ARROW, PAD, PAD, ARROW, 4, END]),
    ([1, 9, 7, 5, 3, 1, 9, 7], [COLON, 1, 2, 3, 4, 5, 6, 7, 8, ARROW, 8, END]),
)
UNUSED = (0, 9, EQUALS)  # tokens that no response of the script has: their gradients are free of rounding

Bigrams = Mapping[int, Mapping[int, float]]


def scripted_problems() -> Problems:
    """The six problems of the script."""
    return Problems.from_digits([digits for digits, _ in SCRIPT])


def scripted_responses() -> Tensor:
    """(6, 12) int64: the responses to them, padded after `<end>`."""
    return torch.tensor([response + [PAD] * (RESPONSE_TOKENS - len(response)) for _, response in SCRIPT])


def scripted_model(sharpness: float = 1.0) -> Transformer:
    """The scripted model; a `sharpness` below 1 divides its logits, which makes other tokens likely, too."""
    model = copy.deepcopy(_scripted_model())
    with torch.no_grad():
        for parameter in model.head.parameters():
            parameter.mul_(sharpness)
    return model


@cache
def _scripted_model() -> Transformer:
    with as_file(files("labutils") / "data" / "checks" / "scripted.safetensors") as path:
        return load_model(path, SCRIPTED_CONFIG)[0]


def bigram_model(bigrams: Bigrams, layers: int) -> Transformer:
    """A transformer whose next token follows `bigrams`, token -> next token -> probability. 0 stands for 1e-13.

    Its blocks, if it has any, add nothing; embeddings are one-hot, and the last normalisation changes nothing.
    """
    config = ModelConfig(layers=layers, width=VOCABULARY, heads=1)
    model = Transformer(config)
    log_probs = torch.full((VOCABULARY, VOCABULARY), -30.0)
    for token, successors in bigrams.items():
        for successor, probability in successors.items():
            log_probs[successor, token] = torch.tensor(probability).log()
    with torch.no_grad():
        model.token_embedding.weight.copy_(torch.eye(VOCABULARY))
        model.position_embedding.weight.zero_()
        for block in model.blocks:
            for layer in (block.attention_out, block.mlp_out):
                layer.weight.zero_()
                layer.bias.zero_()
        variance = 1 / VOCABULARY - 1 / VOCABULARY**2
        model.norm.weight.fill_((variance + model.norm.eps) ** 0.5)
        model.norm.bias.fill_(1 / VOCABULARY)
        model.head.weight.copy_(log_probs)
        model.head.bias.zero_()
    return model

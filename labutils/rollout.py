"""The fast engine: samples responses and scores them as the plain forward pass would, no prefix computed twice.

Every linear layer runs once per node of the tree of distinct prefixes (`labutils.prefix_tree`), in training as
in sampling. Gradients of shared prefixes add up at their node.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from labutils.errors import LabError
from labutils.model import Transformer
from labutils.prefix_tree import PrefixTree, path_attention
from labutils.task import END, PAD, PROMPT_TOKENS, response_mask


def response_log_probs(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    """(B, R): log-probability in nats of each response token given what stands before it, 0 after `<end>`.

    prompts: (B, 9) int64. responses: (B, R) int64, R at most 12; the mask includes the first `<end>`.
    Differentiable in the model's parameters. Raises `LabError` for other shapes, dtypes or tokens.
    """
    logits, place, mask = _predictions(model, prompts, responses)
    return torch.where(mask, logits.log_softmax(-1)[place, responses], 0.0)


def response_logits(model: Transformer, prompts: Tensor, responses: Tensor) -> Tensor:
    """(B, R, 15): the logits that predict each response token, 0 after `<end>`.

    Takes and raises what `response_log_probs` does, and is differentiable like it.
    """
    logits, place, mask = _predictions(model, prompts, responses)
    return torch.where(mask[:, :, None], logits[place], 0.0)


def _predictions(model: Transformer, prompts: Tensor, responses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(W, 15) logits of the prefixes that predict a token, (B, R) which predicts which, and the mask (B, R)."""
    _check_tokens("prompts", prompts, model, PROMPT_TOKENS)
    _check_tokens("responses", responses, model)
    if len(prompts) != len(responses):
        raise LabError(f"{len(prompts)} prompts for {len(responses)} responses; one each is needed")
    mask = response_mask(responses)
    # The last token of a response predicts nothing, so it is not fed to the model.
    sequences = torch.cat([prompts, responses], 1)[:, :-1]
    tree = PrefixTree.build(sequences, PROMPT_TOKENS - 1 + mask.sum(1))
    # Only the prompt's last token and the response's tokens predict: the last block ends there.
    predicting = (tree.positions >= PROMPT_TOKENS - 1).nonzero()[:, 0]
    place = torch.zeros(len(tree), dtype=torch.long)
    place[predicting] = torch.arange(len(predicting))
    return model.read_out(_states(model, tree, predicting)), place[tree.nodes[:, PROMPT_TOKENS - 1 :]], mask


def _states(model: Transformer, tree: PrefixTree, wanted: Tensor) -> Tensor:
    """(W, width): the last block's output at the `wanted` (W,) nodes."""
    *early_blocks, last_block = model.blocks
    every = torch.arange(len(tree))
    x = model.embed(tree.tokens, tree.positions)
    for block in early_blocks:
        x = block.finish(x, path_attention(block.project(x), every, tree.paths, block.heads))
    paths = tree.paths[wanted]
    attended = path_attention(last_block.project(x), wanted, paths, last_block.heads)
    return last_block.finish(x[wanted], attended)


@torch.no_grad()
def generate(
    model: Transformer,
    prompts: Tensor,
    samples_per_prompt: int = 1,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """(N * samples_per_prompt, R) int64: responses sampled from softmax(logits / temperature), a prompt's in a row.

    prompts: (N, 9) int64. R is what the model's positions leave after the prompt, 12 for the lab's. A response
    ends with `<end>` or is cut off after R tokens; padding follows `<end>`. Rows that have sampled the same
    tokens so far share one cache entry. Raises `LabError` for bad prompts, temperature or number of samples.
    """
    _check_tokens("prompts", prompts, model, PROMPT_TOKENS)
    if samples_per_prompt < 1:
        raise LabError(f"{samples_per_prompt} samples per prompt; at least 1 is needed")
    if not 0 < temperature < math.inf:
        raise LabError(f"temperature {temperature}; allowed are finite numbers above 0")
    tree = PrefixTree.build(prompts, torch.full((len(prompts),), PROMPT_TOKENS))
    cache = _PrefixCache(model)
    x = cache.extend(tree.tokens, tree.positions, tree.paths)
    # A row follows one prefix: an index into `paths` and `logits`, which hold each distinct prefix once.
    leaves, prefix = tree.nodes[:, -1].unique(return_inverse=True)
    paths, logits = tree.paths[leaves], model.read_out(x[leaves])
    prefix = prefix.repeat_interleave(samples_per_prompt)
    rows, length = torch.arange(len(prefix)), model.config.positions - PROMPT_TOKENS
    responses = torch.full((len(rows), length), PAD)
    for position in range(length):
        probabilities = (logits / temperature).softmax(-1)
        token = torch.multinomial(probabilities[prefix], 1, generator=generator)[:, 0]
        responses[rows, position] = token
        goes_on = (token != END).nonzero()[:, 0]
        if position == length - 1 or len(goes_on) == 0:
            break
        rows = rows[goes_on]
        step = prefix[goes_on] * model.config.vocabulary + token[goes_on]
        step, prefix = step.unique(return_inverse=True)
        parent, token = step // model.config.vocabulary, step % model.config.vocabulary
        paths = torch.cat([paths[parent], cache.next_nodes(len(step))[:, None]], 1)
        x = cache.extend(token, torch.full_like(token, PROMPT_TOKENS + position), paths)
        logits = model.read_out(x)
    return responses


class _PrefixCache:
    """Queries, keys and values of every node so far, one array per block; it grows as nodes are added."""

    def __init__(self, model: Transformer):
        self.model = model
        self.size = 0
        empty = model.head.weight.new_empty(0, 3 * model.config.width)
        self.layers = [empty for _ in model.blocks]

    def next_nodes(self, count: int) -> Tensor:
        """(count,) int64: the numbers of the nodes that `extend` adds next."""
        return torch.arange(self.size, self.size + count)

    def extend(self, tokens: Tensor, positions: Tensor, paths: Tensor) -> Tensor:
        """(M, width): the last block's output at M new nodes, whose `paths` (M, T) end with themselves."""
        new = self.next_nodes(len(tokens))
        self.size += len(tokens)
        x = self.model.embed(tokens, positions)
        for layer, block in enumerate(self.model.blocks):
            if self.size > len(self.layers[layer]):
                self.layers[layer] = _grown(self.layers[layer], 2 * self.size)
            entries = self.layers[layer]
            entries[new[0] : self.size] = block.project(x)
            x = block.finish(x, path_attention(entries, new, paths, block.heads))
        return x


def _grown(entries: Tensor, capacity: int) -> Tensor:
    """The same rows with room for `capacity`: doubling keeps the copying below the work that fills them."""
    grown = entries.new_empty(capacity, entries.shape[1])
    grown[: len(entries)] = entries
    return grown


def _check_tokens(name: str, tokens: Tensor, model: Transformer, width: int | None = None) -> None:
    longest = model.config.positions - PROMPT_TOKENS
    columns = f"{width}" if width else f"1 to {longest}"
    shape = tuple(tokens.shape)
    fits = len(shape) == 2 and shape[0] > 0
    if not fits or not (shape[1] == width if width else 1 <= shape[1] <= longest):
        raise LabError(f"{name} of shape {shape}; allowed is (rows, {columns}) with at least one row")
    if tokens.dtype != torch.int64:
        raise LabError(f"{name} of dtype {tokens.dtype}; allowed is torch.int64")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= model.config.vocabulary:
        value = low if low < 0 else high
        raise LabError(f"{name} hold token {value}; allowed are 0 to {model.config.vocabulary - 1}")

"""The model: a small decoder-only transformer, written to be read from top to bottom.

The plain forward pass below defines the numbers. `labutils.rollout` computes the same ones without repeating
any prefix, and uses the pieces of `Block` to do so.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labutils.task import PROMPT_TOKENS, RESPONSE_TOKENS, VOCABULARY


@dataclass(frozen=True)
class ModelConfig:
    """The architecture.

    layers: number of blocks.
    width: features per position.
    heads: attention heads; each has width / heads features.
    positions: the longest sequence, in tokens.
    vocabulary: number of tokens.
    """

    layers: int = 3
    width: int = 96
    heads: int = 4
    positions: int = PROMPT_TOKENS + RESPONSE_TOKENS
    vocabulary: int = VOCABULARY


class Block(nn.Module):
    """A pre-LN transformer block: x + attention(LN(x)), then x + MLP(LN(x))."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def project(self, x: Tensor) -> Tensor:
        """(..., width) -> (..., 3 width): queries, keys and values, side by side, each split into heads."""
        return self.query_key_value(self.attention_norm(x))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The block's output (..., width), from its input and what attention gathered."""
        x = x + self.attention_out(attended)
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x))))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, width) -> (B, T, width)."""
        return self.finish(x, causal_attention(self.project(x), self.heads))


def causal_attention(query_key_value: Tensor, heads: int) -> Tensor:
    """(B, T, 3 width) -> (B, T, width): softmax(Q K^T / sqrt(d)) V, each position seeing itself and what is before.

    Plain matrix products: at these sizes 2 to 4 times faster on a CPU than PyTorch's fused attention.
    """
    rows, length, _ = query_key_value.shape
    query, key, value = query_key_value.view(rows, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    attended = scores.masked_fill(future, -torch.inf).softmax(-1) @ value
    return attended.transpose(1, 2).reshape(rows, length, -1)


class Transformer(nn.Module):
    """Next-token logits from tokens: `Transformer()(tokens)` maps (B, T) int64 to (B, T, 15).

    PyTorch's default initialisation, no dropout; padding is a token like any other and is not masked.
    """

    def __init__(self, config: ModelConfig = ModelConfig()):
        super().__init__()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocabulary, config.width)
        self.position_embedding = nn.Embedding(config.positions, config.width)
        blocks = nn.ModuleList(Block(config.width, config.heads) for _ in range(config.layers))
        self.blocks = cast("list[Block]", blocks)  # a ModuleList's type does not say what it holds
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary)

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """The first block's input, (..., width), from tokens and positions of the same shape."""
        return self.token_embedding(tokens) + self.position_embedding(positions)

    def read_out(self, x: Tensor) -> Tensor:
        """Next-token logits (..., 15) from the last block's output (..., width)."""
        return self.head(self.norm(x))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) int64 -> (B, T, 15) logits; those at position t predict the token at t + 1."""
        x = self.embed(tokens, torch.arange(tokens.shape[1]).expand_as(tokens))
        for block in self.blocks:
            x = block(x)
        return self.read_out(x)


class TemperedTransformer(Transformer):
    """A copy of a model whose logits are divided by `temperature`, in sampling and in scoring alike.

    So the sampler and the policy whose gradient is taken are the same distribution, softmax(logits / temperature),
    and a step stays on-policy. At temperature 1 it is the model itself.
    """

    def __init__(self, model: Transformer, temperature: float):
        with torch.random.fork_rng(devices=[]):  # the initialisation is overwritten and leaves no trace
            super().__init__(model.config)
        self.load_state_dict(model.state_dict())
        self.temperature = temperature

    def read_out(self, x: Tensor) -> Tensor:
        """Next-token logits (..., 15), divided by the temperature."""
        return super().read_out(x) / self.temperature

    def at_temperature_1(self) -> TemperedTransformer:
        """The same parameters, shared, without the division."""
        plain = copy.copy(self)
        plain.temperature = 1.0
        return plain

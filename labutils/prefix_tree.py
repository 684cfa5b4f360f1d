"""The tree of distinct prefixes of a batch of token sequences, and attention along its paths.

Under causal attention a position's state depends on its prefix alone, so sequences that begin alike share
those states. A node is one distinct prefix; its path leads from the root to itself, through the positions it
attends to. Left padding is one chain for the whole batch, the responses to a prompt share the prompt, equal
responses share everything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

NO_NODE = -1  # fills a path after its last node
# Sums may be reordered and fused, which lets the inner loops run as vector instructions; NaN and infinity
# keep their meaning.
REORDER_SUMS = {"reassoc", "contract", "nsz", "arcp"}


@dataclass(frozen=True)
class PrefixTree:
    """The distinct prefixes of a batch of B sequences of up to T tokens; M nodes.

    tokens: (M,) int64, the last token of each prefix.
    positions: (M,) int64, its position, the prefix's length less one.
    paths: (M, T) int64, the nodes from the root to the node itself, then `NO_NODE`.
    nodes: (B, T) int64, the node of each sequence's prefix at each position; unspecified after its length.
    """

    tokens: Tensor
    positions: Tensor
    paths: Tensor
    nodes: Tensor

    @classmethod
    def build(cls, sequences: Tensor, lengths: Tensor) -> PrefixTree:
        """The tree of `sequences` (B, T) int64, of which the first `lengths` (B,) tokens count.

        In sorted order equal prefixes stand together, so a prefix is new exactly where its row differs from the
        row before, at its last token or earlier.
        """
        columns = np.arange(sequences.shape[1])
        used = columns < lengths.numpy()[:, None]
        rows = np.where(used, sequences.numpy(), NO_NODE)
        order = np.lexsort(rows.T[::-1])
        rows, used = rows[order], used[order]
        differs = np.ones(rows.shape, dtype=bool)
        differs[1:] = rows[1:] != rows[:-1]
        new = np.logical_or.accumulate(differs, axis=1) & used
        # Number the new prefixes row by row; the others take the number of the latest row that had theirs.
        numbers = np.maximum.accumulate(np.where(new, np.cumsum(new).reshape(new.shape) - 1, 0), 0)
        row, column = np.nonzero(new)
        paths = np.where(columns <= column[:, None], numbers[row], NO_NODE)
        nodes = np.empty_like(numbers)
        nodes[order] = numbers
        return cls(*map(torch.from_numpy, (rows[row, column], column, paths, nodes)))

    def __len__(self) -> int:
        return len(self.tokens)


def path_attention(query_key_value: Tensor, queries: Tensor, paths: Tensor, heads: int) -> Tensor:
    """(M, 3 width) -> (Q, width): each query node attends to the nodes on its path, itself included.

    queries: (Q,) int64, the nodes that ask. paths: (Q, T) int64, what each one sees, then `NO_NODE`.
    Differentiable in `query_key_value`. The numbers are those of `labutils.model.causal_attention`.
    """
    if torch.is_grad_enabled() and query_key_value.requires_grad:
        return _PathAttention.apply(query_key_value, queries, paths, heads)
    return _attended(query_key_value, queries, paths, heads)[0]


def _attended(query_key_value: Tensor, queries: Tensor, paths: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """What `path_attention` returns, and the attention weights (Q, heads, T), unset beyond a path's end."""
    attended = query_key_value.new_zeros(len(queries), query_key_value.shape[1] // 3)
    weights = query_key_value.new_empty(len(queries), heads, paths.shape[1])
    tensors = (query_key_value, queries, paths, weights, attended)
    _attend(*(tensor.numpy() for tensor in tensors))
    return attended, weights


class _PathAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_key_value: Tensor, queries: Tensor, paths: Tensor, heads: int) -> Tensor:
        attended, weights = _attended(query_key_value, queries, paths, heads)
        ctx.save_for_backward(query_key_value, queries, paths, weights)
        return attended

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        gradient = torch.zeros_like(ctx.saved_tensors[0])
        tensors = (*ctx.saved_tensors, gradients[0].contiguous(), gradient)
        _attend_backward(*(tensor.numpy() for tensor in tensors))
        return gradient, None, None, None


@numba.njit(cache=True, nogil=True, fastmath=REORDER_SUMS)
def _attend(query_key_value, queries, paths, weights, attended):  # type: ignore[no-untyped-def]
    """Fill `weights` (Q, heads, T) with softmax(q k / sqrt(d)) and add weights @ values to `attended` (Q, width)."""
    width, heads = attended.shape[1], weights.shape[1]
    size = width // heads
    zero, scale = weights.dtype.type(0), weights.dtype.type(1 / math.sqrt(size))
    for i in range(len(queries)):
        length = _path_length(paths[i])
        for h in range(heads):
            at = h * size
            query, weight = query_key_value[queries[i], at : at + size], weights[i, h]
            out = attended[i, at : at + size]
            largest = -weights.dtype.type(np.inf)
            for j in range(length):
                key = query_key_value[paths[i, j], width + at : width + at + size]
                score = zero
                for c in range(size):
                    score += query[c] * key[c]
                weight[j] = score * scale
                largest = max(largest, weight[j])
            total = zero
            for j in range(length):
                weight[j] = math.exp(weight[j] - largest)
                total += weight[j]
            for j in range(length):
                weight[j] /= total
                value = query_key_value[paths[i, j], 2 * width + at : 2 * width + at + size]
                for c in range(size):
                    out[c] += weight[j] * value[c]


@numba.njit(cache=True, nogil=True, fastmath=REORDER_SUMS)
def _attend_backward(query_key_value, queries, paths, weights, out_gradient, gradient):  # type: ignore[no-untyped-def]
    """Add to `gradient` (M, 3 width) what `out_gradient` (Q, width) sends back through `_attend`.

    A shared node collects the gradients of every path through it. Softmax: d score = weight (d weight - sum of
    weight * d weight).
    """
    width, heads = out_gradient.shape[1], weights.shape[1]
    size = width // heads
    zero, scale = weights.dtype.type(0), weights.dtype.type(1 / math.sqrt(size))
    weight_gradient = np.empty(weights.shape[2], weights.dtype)
    for i in range(len(queries)):
        length = _path_length(paths[i])
        for h in range(heads):
            at = h * size
            out, weight = out_gradient[i, at : at + size], weights[i, h]
            mean = zero
            for j in range(length):
                first = 2 * width + at
                value = query_key_value[paths[i, j], first : first + size]
                value_gradient = gradient[paths[i, j], first : first + size]
                product = zero
                for c in range(size):
                    product += out[c] * value[c]
                    value_gradient[c] += weight[j] * out[c]
                weight_gradient[j] = product
                mean += weight[j] * product
            query = query_key_value[queries[i], at : at + size]
            query_gradient = gradient[queries[i], at : at + size]
            for j in range(length):
                first = width + at
                key = query_key_value[paths[i, j], first : first + size]
                key_gradient = gradient[paths[i, j], first : first + size]
                score_gradient = weight[j] * (weight_gradient[j] - mean) * scale
                for c in range(size):
                    query_gradient[c] += score_gradient * key[c]
                    key_gradient[c] += score_gradient * query[c]


@numba.njit(cache=True, nogil=True)
def _path_length(path):  # type: ignore[no-untyped-def]
    length = len(path)
    while path[length - 1] == NO_NODE:
        length -= 1
    return length

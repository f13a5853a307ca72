"""Attention of several heads. Arguments, defaults and names are PyTorch's."""

from __future__ import annotations

import math

from morok.dtype import DType
from morok.errors import ShapeError
from morok.nn import init
from morok.nn.layers import Linear
from morok.tensor import Tensor


class MultiheadAttention:
    """Projections of query, key and value into heads, attention of each, and a projection of all
    (Vaswani et al. 2017).

    `mha(query, key, value)` -> output, weights averaged over the heads (None without
    `need_weights`); (length, n, embed_dim), or with `batch_first` (n, length, embed_dim). In masks
    True means "must not be looked at", as PyTorch's: `key_padding_mask` is (n, keys), `attn_mask`
    (queries, keys) or (n * heads, queries, keys); a float one is added. `is_causal` sets the mask
    itself. Attention dropout acts in training (see `nn.train`).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        dtype: DType | None = None,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: {embed_dim} in {num_heads} heads")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.training = True
        self.in_proj_weight = _parameter((3 * embed_dim, embed_dim), dtype)
        init.xavier_uniform_(self.in_proj_weight)
        self.in_proj_bias = _parameter((3 * embed_dim,), dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if not query.ndim == key.ndim == value.ndim == 3:
            raise ShapeError(
                f"MultiheadAttention: shapes {query.shape}, {key.shape}, {value.shape}: three dims "
                "each are needed"
            )
        if not self.batch_first:
            query, key, value = (each.transpose(0, 1) for each in (query, key, value))
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        weights = self.in_proj_weight.chunk(3)
        q, k, v = (
            self._split(each.linear(weight, bias))
            for each, weight, bias in zip((query, key, value), weights, biases, strict=True)
        )
        mask = self._mask(q, k, key_padding_mask, attn_mask, is_causal)
        p = self.dropout if self.training else 0.0
        out, seen = q.attend(k, v, mask, p)
        means = seen.mean(1) if need_weights else None
        n, length = query.shape[:2]
        out = self.out_proj(out.transpose(1, 2).reshape(n, length, self.embed_dim))
        return (out if self.batch_first else out.transpose(0, 1)), means

    def _split(self, x: Tensor) -> Tensor:
        """(n, length, heads * size) -> (n, heads, length, size)"""
        n, length, width = x.shape
        return x.reshape(n, length, self.num_heads, width // self.num_heads).transpose(1, 2)

    def _mask(
        self,
        q: Tensor,
        k: Tensor,
        padding: Tensor | None,
        attn: Tensor | None,
        causal: bool,
    ) -> Tensor | None:
        """What to add to the scores (n, heads, queries, keys)."""
        n, heads, rows, columns = *q.shape[:3], k.shape[2]
        parts = []
        if causal and attn is None:
            attn = Tensor.arange(columns) > Tensor.arange(rows).unsqueeze(1)
        if attn is not None:
            given = attn.reshape(n, heads, rows, columns) if attn.ndim == 3 else attn
            parts.append(_added(given, q.dtype))
        if padding is not None:
            parts.append(_added(padding.reshape(n, 1, 1, columns), q.dtype))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def __repr__(self) -> str:
        return f"MultiheadAttention({self.embed_dim}, {self.num_heads})"


MultiHeadAttention = MultiheadAttention


def _parameter(shape: tuple[int, ...], dtype: DType | None) -> Tensor:
    return Tensor.zeros(shape, dtype=dtype, requires_grad=True)


def _added(mask: Tensor, dtype: DType) -> Tensor:
    """A mask as numbers to add: -inf where a bool one forbids."""
    if mask.dtype.kind != "b":
        return mask.cast(dtype)
    return mask.where(-math.inf, Tensor.zeros((), dtype=dtype))

"""Attention."""

from __future__ import annotations

import math
from typing import Self

from morok.dtype import acc_dtype
from morok.errors import DTypeError, ShapeError
from morok.tensor.base import common_dtype, fail
from morok.tensor.random import Random


class Attention(Random):
    """Methods that let places look at each other."""

    __slots__ = ()

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Self:
        """softmax(query @ key.T * scale + mask) @ value (Vaswani et al. 2017).

        This tensor is the query (…, L, E); key is (…, S, E), value (…, S, V), the result (…, L, V).

        `attn_mask` goes with (…, L, S): a bool one says who may be looked at, a float one is added.
        `is_causal`: place i looks at places up to i. A place that may look at nothing gets zeros.
        `scale` defaults to 1 / sqrt(E). `dropout_p` is applied as it is given: 0 in evaluation.
        `enable_gqa`: heads (the dim before the last two) of key and value serve several of the
        query's. Halves are computed in float32 and rounded once.
        """
        return self.attend(key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)[0]

    def attend(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> tuple[Self, Self]:
        """The result of `scaled_dot_product_attention`, and the weights (…, L, S) by which values
        were added up, behind the dropout."""
        name = "scaled_dot_product_attention"
        dtype = common_dtype(name, self.dtype, key.dtype, value.dtype)
        if dtype.kind != "f":
            fail(DTypeError, f"{name}: float tensors are needed, not {dtype}")
        shapes = f"{name}: shapes {self.shape}, {key.shape}, {value.shape}"
        if min(self.ndim, key.ndim, value.ndim) < 2 or self.shape[-1] != key.shape[-1]:
            fail(ShapeError, f"{shapes}: (…, L, E), (…, S, E) and (…, S, V) are needed")
        if key.shape[-2] != value.shape[-2]:
            fail(ShapeError, f"{shapes}: there are not as many keys as values")
        if is_causal and attn_mask is not None:
            fail(ShapeError, f"{name}: is_causal and attn_mask exclude each other")
        work = acc_dtype(dtype)
        query, key, value = self.cast(work), key.cast(work), value.cast(work)
        if enable_gqa:
            if self.ndim < 3 or key.ndim < 3 or self.shape[-3] % key.shape[-3]:
                fail(ShapeError, f"{shapes}: the query's heads are no multiple of the key's")
            key = key.repeat_interleave(self.shape[-3] // key.shape[-3], -3)
            value = value.repeat_interleave(self.shape[-3] // value.shape[-3], -3)
        scale = 1 / math.sqrt(max(self.shape[-1], 1)) if scale is None else scale
        scores = query.matmul(key.mT) * scale
        blind = False
        if is_causal:
            rows, columns = scores.shape[-2:]
            seen = self.arange(columns) <= self.arange(rows).unsqueeze(1)
            scores = seen.where(scores, -math.inf)
        elif attn_mask is not None and attn_mask.dtype.kind == "b":
            scores, blind = attn_mask.where(scores, -math.inf), True
        elif attn_mask is not None:
            scores, blind = scores + attn_mask.cast(work), True
        if blind:
            nothing = scores.max(-1, keepdim=True).detach().eq(-math.inf)
            weights = nothing.where(0.0, nothing.where(0.0, scores).softmax(-1))
        else:
            weights = scores.softmax(-1)
        weights = weights.dropout(dropout_p)
        return weights.matmul(value).cast(dtype), weights.cast(dtype)

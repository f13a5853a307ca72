"""Code that a compiler once got wrong with flags we used: the flags must keep it right."""

from __future__ import annotations

import numpy as np

from morok.runtime import Buffer, Device, ExecutionPlan, KernelSource

GATED_COPY = """
typedef __INT64_TYPE__ int64_t;
void gated(void **bufs, const int64_t *vars, void *scratch, int64_t lo, int64_t hi) {
  double *p0 = bufs[0];
  const double *p1 = bufs[1];
  for (int64_t i0 = 0; i0 < 15; i0++) {
    int64_t v0 = i0 * 22;
    int64_t v1 = i0 * 14;
    _Bool v2 = i0 < 11;
    _Bool v3 = i0 >= 3;
    for (int64_t i1 = 0; i1 < 11; i1++) {
      int64_t v4 = i1 * 2;
      int64_t v5 = v4 + v0;
      int64_t v6 = v4 + v1;
      _Bool v7 = (i1 >= 1) & (((i1 < 8) & v2) & v3);
      for (int64_t i2 = 0; i2 < 2; i2++) {
        p0[v5 + i2] = v7 ? p1[v6 + i2 + -44] : 0.0;
      }
    }
  }
}
"""


def test_gated_copy_keeps_every_element() -> None:
    """gcc 12.2, -O2 -mavx2 -fvect-cost-model=dynamic: 16 of 330 elements were 0."""
    (kernel,) = Device["CPU"].build([KernelSource("gated", GATED_COPY)])
    source = np.arange(1.0, 113.0)
    out = np.empty(330)
    plan = ExecutionPlan([(kernel, (0, 1))], 2)
    plan.run([Buffer.from_object(out), Buffer.from_object(source)])
    expected = np.zeros((15, 11, 2))
    expected[3:11, 1:8] = source.reshape(8, 7, 2)
    assert (out == expected.reshape(-1)).all()

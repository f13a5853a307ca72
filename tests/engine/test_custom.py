"""What a program writes itself: CUSTOM text in kernels, CUSTOM_FUNCTION hooks of a device."""

from __future__ import annotations

import numpy as np
import pytest

from morok.dtype import dtypes
from morok.engine import run_kernel
from morok.engine.plans import stored_slots
from morok.errors import DeviceError
from morok.ir import CustomFunctionKind, KernelInfo, UOp
from morok.runtime import CpuDevice, Device, KernelSource

F32 = dtypes.float32
ABI = "(void **bufs, const long *vars, void *scratch, long lo, long hi)"


def test_a_custom_function_runs_the_hook_of_its_kind() -> None:
    device = CpuDevice()
    node = UOp.custom_function(CustomFunctionKind.ENC_DEC, 3)
    data = np.arange(4, dtype=np.float32)
    with pytest.raises(DeviceError, match="kind EncDec"):
        run_kernel(node, [np.zeros_like(data), data], device)

    def scaled(payload: object) -> object:
        loop = f"for (int i = 0; i < 4; i++) out[i] = x[i] * {payload};"
        body = f"float *out = bufs[0], *x = bufs[1]; {loop}"
        return device.build([KernelSource("scaled", f"void scaled{ABI} {{ {body} }}")])[0]

    device.register_hook("EncDec", scaled)
    out, same = run_kernel(node, [np.zeros_like(data), data], device)
    assert np.array_equal(out, data * 3)
    assert np.array_equal(same, data)


def test_memory_that_a_text_is_given_counts_as_written() -> None:
    """Nothing may move a kernel with a CUSTOM before or behind another that reads its memory."""
    i = UOp.range(4, 0, renumbered=True)
    out, x = (UOp.param(slot, F32.ptr(), 4) for slot in (0, 1))
    sink = UOp.new_sink(
        UOp.custom("{0}[{1}] += {2}", out, i, x.at(i)).close(i), info=KernelInfo("k")
    )
    assert stored_slots(sink) == {0}
    data = np.arange(4, dtype=np.float32)
    result = run_kernel(sink, [np.ones_like(data), data], Device["CPU"])
    assert np.array_equal(result[0], data + 1)

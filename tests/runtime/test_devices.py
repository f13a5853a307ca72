"""The registry of devices."""

from __future__ import annotations

import numpy as np
import pytest
from handmade import kernel_source

from morok import config, dtypes
from morok.errors import DeviceError
from morok.runtime import CpuDevice, Device, ExecutionPlan, memory_stats


@pytest.fixture
def device(tmp_path):
    with config.override(cache_dir=tmp_path / "cache"):
        yield Device["CPU"]


def test_the_cpu_is_always_there():
    assert Device.list() == ["CPU"]
    assert Device.default in Device
    assert Device["CPU"] is Device["cpu"] is Device["CPU:0"]
    assert "GPU" not in Device
    assert 3 not in Device


def test_a_hook_is_what_a_custom_function_calls(device):
    """A device registers what makes the kernel of a kind; without one there is an error."""
    fresh = CpuDevice()
    with pytest.raises(DeviceError, match=r"CPU has no hook .* kind Graph \(registered: none\)"):
        fresh.hook("Graph", None)
    made = []

    def make(payload):
        made.append(payload)
        return device.build([kernel_source("hooked", "((int *)bufs[0])[0] += 41;")])[0]

    fresh.register_hook("Graph", make)
    data = np.array([1, 2], np.int32)
    plan = ExecutionPlan([(fresh.hook("Graph", "p"), (0,), 0, 0, 1, None, "hooked")], 1)
    plan.run([fresh.allocator.wrap(data)])
    assert data.tolist() == [42, 2]
    assert made == ["p"]
    with pytest.raises(DeviceError, match="registered: Graph"):
        fresh.hook("EncDec", None)


def test_unknown_devices_are_named_with_what_there_is():
    with pytest.raises(DeviceError, match=r"no device 'CPUU', did you mean 'CPU'\? \(there are: C"):
        Device["CPUU"]
    with pytest.raises(DeviceError, match=r"no device 'CPU:1'"):
        Device["CPU:1"]


def test_from_source_to_result(device):
    source = kernel_source("twice", "float *x = bufs[0]; for (long i = lo; i < hi; i++) x[i] *= 2;")
    kernel = device.build([source])[0]
    array = np.float32([1, 2, 3])
    ExecutionPlan([(kernel, (0,), 0, 0, 3)], 1).run([device.allocator.wrap(array)])
    assert array.tolist() == [2, 4, 6]


def test_a_binary_is_loaded(device):
    binary = device.c_compiler.compile(["void f(void) {}"])
    assert device.load(binary).symbol("f")
    with pytest.raises(DeviceError):
        device.load(b"not a library")


def test_the_allocator_counts(device):
    before = device.allocator.stats()["live_buffers"]
    buffer = device.allocator.allocate(100)
    assert device.allocator.stats()["live_buffers"] == before + 1
    del buffer
    device.allocator.release()
    assert device.allocator.stats()["pooled_bytes"] == 0
    assert device.allocator.stats() == memory_stats()


def test_the_pool_is_as_large_as_the_settings_say():
    with config.override(pool_size=12345):
        CpuDevice()
    assert memory_stats()["pool_limit"] == 12345
    CpuDevice()
    assert memory_stats()["pool_limit"] == config.get().pool_size


def test_the_c_compiler_follows_the_settings(device):
    compiler = device.c_compiler
    assert device.c_compiler is compiler
    with config.override(cc=[*compiler.command, "-DX"], cpu_compiler="c"):
        assert device.compiler.command == (*compiler.command, "-DX")
    with config.override(cc="no-such-compiler", cpu_compiler="c"):
        for _ in range(2):
            with pytest.raises(DeviceError, match="no-such-compiler"):
                _ = device.compiler
    assert device.c_compiler is compiler


def test_the_renderer_knows_the_processor(device):
    assert device.renderer is device.renderer
    width = device.renderer.capability.max_width(dtypes.float32)
    assert width == (16 if device.compiler.target.has("avx512f") else width)
    if device.compiler.target.has("avx2"):
        assert width >= 8

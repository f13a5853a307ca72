"""Libraries, kernels and execution plans."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
import weakref

import numpy as np
import pytest

from morok.errors import DeviceError, InvalidGraphError, OutOfMemoryError
from morok.runtime import Buffer, ExecutionPlan, Library, memory_stats

ADD = (
    "float *o = bufs[0]; const float *a = bufs[1], *b = bufs[2];"
    "for (long i = lo; i < hi; i++) o[i] = a[i] + b[i];"
)
INCREMENT = "long *o = bufs[0]; for (long i = lo; i < hi; i++) o[i] += 1;"


def filled(values) -> Buffer:
    array = np.asarray(values)
    buffer = Buffer(array.nbytes)
    buffer.view(array.dtype, array.shape)[...] = array
    return buffer


# ---- libraries -----------------------------------------------------------------------------------


def test_a_library_is_loaded_from_bytes(compiler):
    image = compiler.compile(["int seven(void) { return 7; }", "int eight(void) { return 8; }"])
    library = Library(image, "numbers")
    assert library.symbol("seven") != library.symbol("eight")
    assert library.kernel("seven").ptr == library.symbol("seven")
    assert library.kernel("seven").name == "seven"
    assert library.kernel("seven").library is library
    with pytest.raises(DeviceError, match=r"'numbers' has no kernel 'nine'"):
        library.symbol("nine")


@pytest.mark.parametrize("damage", ["empty", "garbage", "truncated"])
def test_what_is_no_library_is_refused(compiler, damage):
    image = compiler.compile(["void f(void) {}"])
    image = {"empty": b"", "garbage": b"garbage" * 1000, "truncated": image[:100]}[damage]
    with pytest.raises(DeviceError, match="cannot load the library 'odd'"):
        Library(image, "odd")


def test_missing_symbols_are_reported_at_load(compiler):
    image = compiler.compile(["void elsewhere(void); void f(void) { elsewhere(); }"])
    with pytest.raises(DeviceError, match="elsewhere"):
        Library(image)


def test_what_compilers_call_by_themselves_is_there(toolbox):
    """memcpy and memset of libc, and the helpers for wide division and half floats."""
    kernel = toolbox.kernel(
        "helpers",
        "char *o = bufs[0]; long n = vars[0];"
        "__builtin_memset(o, 3, n); __builtin_memcpy(o + n, o, n);"
        "__builtin_memmove(o + 1, o, n);"
        "__int128 wide = (__int128)vars[1] << 70; *(long *)scratch = (long)(wide / vars[2]);",
    )
    out = filled(np.zeros(300, np.uint8))
    ExecutionPlan([(kernel, (0,), 8, 0, 1)], 1, n_vars=3).run([out], (100, 5, 3))
    assert out.view(np.uint8).tolist() == [3] * 200 + [0] * 100


def test_libraries_of_the_same_bytes_are_separate_and_leave(compiler):
    """dlopen would hand out the first one again: by path, or by file."""
    image = compiler.compile(["long counter; void f(void) { counter++; }"])
    libraries = [Library(image) for _ in range(50)]
    assert len({library.symbol("f") for library in libraries}) == 50
    other = compiler.compile(["void g(void) {}"])
    del libraries
    gc.collect()
    for _ in range(50):
        assert Library(other).symbol("g")
        with pytest.raises(DeviceError):
            Library(other).symbol("f")


def test_open_files_do_not_grow(compiler):
    image = compiler.compile(["void f(void) {}"])
    before = len(os.listdir("/proc/self/fd"))
    libraries = [Library(image) for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(libraries) == 20


def test_without_memfd_a_file_serves(compiler, monkeypatch):
    def refuse(*_):
        raise OSError("no memfd here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert Library(compiler.compile(["void f(void) {}"])).symbol("f")


def test_handles_do_not_travel(toolbox):
    kernel = toolbox.kernel("nothing", "")
    for handle in (kernel, kernel.library, ExecutionPlan([], 0)):
        with pytest.raises(TypeError):
            pickle.dumps(handle)
    with pytest.raises(TypeError):
        type(kernel)()


# ---- plans ---------------------------------------------------------------------------------------


def test_a_plan_runs_its_kernels_in_order(toolbox):
    add = toolbox.kernel("add", ADD)
    a, b, c = filled(np.float32([1, 2, 3])), filled(np.float32([10, 20, 30])), Buffer(12)
    plan = ExecutionPlan([(add, (2, 0, 1), 0, 0, 3), (add, (2, 2, 0), 0, 1, 3)], 3)
    plan.run([a, b, c])
    assert c.view(np.float32).tolist() == [11, 24, 36]
    assert len(plan) == 2
    assert plan.names[0].startswith("add_")
    assert plan.lease_bytes == 0


def test_kernels_may_be_addresses(compiler):
    library = Library(compiler.compile([f"void f(void **bufs) {{ *(long *)bufs[0] = {42}; }}"]))
    plan = ExecutionPlan([(library.symbol("f"), (0,), 0)], 1, keep=[library])
    gone = weakref.ref(library)
    del library
    out = Buffer(8)
    plan.run([out])
    assert out.view(np.int64)[0] == 42
    del plan
    assert gone() is None


def test_a_plan_keeps_its_kernels_loaded(toolbox):
    kernel = toolbox.kernel("kept_alive", INCREMENT)
    gone = weakref.ref(kernel.library)
    plan = ExecutionPlan([(kernel, [0])], 1)
    del kernel
    gc.collect()
    out = filled(np.int64([4]))
    plan.run((out,))
    assert out.view(np.int64)[0] == 5
    del plan
    assert gone() is None


def test_an_empty_plan_does_nothing():
    ExecutionPlan([], 0).run([])
    assert ExecutionPlan([], 2).run_profiled([Buffer(1), Buffer(1)])[1] == ()


def test_variables_go_to_the_kernels_that_want_them(toolbox):
    kernel = toolbox.kernel("vars", "((long *)bufs[0])[lo] = vars[0] * 100 + vars[1];")
    calls = [
        (kernel, (0,), 0, 0, 1, (0, 1)),
        (kernel, (0,), 0, 1, 2, (1, 0)),
        (kernel, (0,), 0, 2, 3, (2, 2)),
        (kernel, (0,), 0, 3, 4, None),
    ]
    plan = ExecutionPlan(calls, 1, n_vars=3)
    out = Buffer(32)
    plan.run([out], (1, 2, 3))
    assert out.view(np.int64).tolist() == [102, 201, 303, 102]
    plan.run([out], vars=(-(2**40), 0, 7))
    assert out.view(np.int64).tolist() == [-(2**40) * 100, -(2**40), 707, -(2**40) * 100]
    with pytest.raises(OverflowError):
        plan.run([out], (1 << 63, 0, 0))
    with pytest.raises(InvalidGraphError, match="3 values"):
        plan.run([out], (1,))


def test_scratch_belongs_to_the_execution(toolbox):
    kernel = toolbox.kernel(
        "scratch",
        "long *s = scratch; *(long *)bufs[0] = (long)s % 64;"
        "for (long i = 0; i < 1000; i++) s[i] = i;"
        "for (long i = 0; i < 1000; i++) ((long *)bufs[0])[1] += s[i];",
    )
    before = memory_stats()["live_bytes"]
    plan = ExecutionPlan([(kernel, (0,), 8000), (kernel, (0,), 64_000)], 1)
    assert plan.lease_bytes == 64_000
    out = filled(np.int64([0, 0]))
    plan.run([out])
    assert out.view(np.int64).tolist() == [0, 2 * 499_500]
    assert memory_stats()["live_bytes"] > before + 64_000
    del plan, out
    assert memory_stats()["live_bytes"] == before


def test_own_slots_lie_in_the_arena(toolbox):
    increment = toolbox.kernel("increment", INCREMENT)
    copy = toolbox.kernel("copy", "*(long *)bufs[0] = *(long *)bufs[1];")
    calls = [(copy, (2, 0)), (increment, (2,)), (copy, (3, 2)), (increment, (3,)), (copy, (1, 3))]
    plan = ExecutionPlan(calls, 2, arena=(0, 64), arena_bytes=128)
    source, target = filled(np.int64([5])), Buffer(8)
    plan.run([source, target])
    assert target.view(np.int64)[0] == 7
    assert source.view(np.int64)[0] == 5
    for arena, arena_bytes in (((0,), 0), ((128,), 128), ((8,), 128), ((-64,), 128)):
        with pytest.raises(InvalidGraphError, match="arena"):
            ExecutionPlan(calls, 3, arena=arena, arena_bytes=arena_bytes)


def test_external_memory_and_slices_are_arguments(toolbox):
    increment = toolbox.kernel("increment", INCREMENT)
    array = np.zeros(4, np.int64)
    whole = Buffer.from_object(array)
    ExecutionPlan([(increment, (0,), 0, 0, 2)], 1).run([whole.slice(16, 16)])
    assert array.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "call",
    [
        (),
        (1,),
        (1, (0,), 0, 0, 1, None, "x", True, 9),
        (1, (0,), 0, 1, 2, None, "x", True),
        (1, (1,)),
        (1, (-1,)),
        (1, (0,), -1),
        (1, (0,), 0, 0, 1, (0,)),
        (0, (0,)),
    ],
)
def test_malformed_kernels_are_refused(call):
    with pytest.raises(InvalidGraphError):
        ExecutionPlan([call], 1)


def test_wrong_types_are_refused(toolbox):
    with pytest.raises(TypeError, match="str"):
        ExecutionPlan([("add", (0,))], 1)
    plan = ExecutionPlan([(toolbox.kernel("increment", INCREMENT), (0,))], 1)
    with pytest.raises(TypeError, match="slot 0 of a plan takes a Buffer, not ndarray"):
        plan.run([np.zeros(1)])
    with pytest.raises(InvalidGraphError, match="1 buffers"):
        plan.run([])
    out = filled(np.int64([1]))
    plan.run([out])
    assert out.view(np.int64)[0] == 2
    for slots, variables in ((-1, 0), (1 << 40, 0), (1, -1)):
        with pytest.raises(InvalidGraphError):
            ExecutionPlan([], slots, n_vars=variables)


def test_no_memory_to_lease_leaves_the_plan_usable(toolbox):
    kernel = toolbox.kernel("increment", INCREMENT)
    out = filled(np.int64([1]))
    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match="scratch"):
            ExecutionPlan([(kernel, (0,), 1 << 50)], 1).run([out])
    assert out.view(np.int64)[0] == 1


def test_profiled_runs_compute_the_same_and_time_each_kernel(toolbox):
    nap, increment = toolbox.kernels(
        ("nap", "for (volatile long i = 0; i < 2000000; i++);"), ("increment", INCREMENT)
    )
    plan = ExecutionPlan([(increment, (0,)), (nap, ()), (increment, (0,))], 1)
    out = filled(np.int64([0]))
    earlier = time.perf_counter_ns()
    start, durations = plan.run_profiled([out])
    assert out.view(np.int64)[0] == 2
    assert earlier <= start <= time.perf_counter_ns()
    assert len(durations) == 3
    assert durations[1] > 100_000 > durations[0] >= 0


def test_threads_run_one_plan_at_once(toolbox):
    """Scratch is not shared: each thread finds its own numbers there."""
    kernel = toolbox.kernel(
        "fill",
        "long *s = scratch; long v = *(long *)bufs[0];"
        "for (long r = 0; r < 200; r++) {"
        "  for (long i = 0; i < 1000; i++) s[i] = v;"
        "  for (long i = 0; i < 1000; i++) if (s[i] != v) ((long *)bufs[0])[1] = 1; }",
    )
    plan = ExecutionPlan([(kernel, (0,), 8000)] * 3, 1)
    outs = [filled(np.int64([number, 0])) for number in range(8)]

    def work(out):
        for _ in range(20):
            plan.run([out])

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [out.view(np.int64).tolist() for out in outs] == [[number, 0] for number in range(8)]


def test_the_gil_is_free_while_kernels_run(toolbox):
    """The kernel waits for a number only another Python thread can write."""
    kernel = toolbox.kernel("wait", "while (!*(volatile long *)bufs[0]);")
    flag = filled(np.int64([0]))
    view = flag.view(np.int64)
    timer = threading.Timer(0.05, lambda: view.__setitem__(0, 1))
    timer.start()
    ExecutionPlan([(kernel, (0,))], 1).run([flag])
    timer.join()


def test_buffers_stay_alive_while_kernels_run(toolbox):
    """The caller's list is emptied by another thread in the middle of the run."""
    kernel = toolbox.kernel(
        "slow", "for (volatile long i = 0; i < 20000000; i++); ((long *)bufs[0])[0] = 1;"
    )
    buffers = [Buffer(64)]
    live = memory_stats()["live_buffers"]
    seen = []
    timer = threading.Timer(
        0.005, lambda: (buffers.clear(), seen.append(memory_stats()["live_buffers"]))
    )
    timer.start()
    ExecutionPlan([(kernel, (0,))], 1).run(buffers)
    timer.join()
    assert seen == [live]


def test_a_forked_child_runs_plans(toolbox):
    plan = ExecutionPlan([(toolbox.kernel("increment", INCREMENT), (0,), 64)], 1)
    out = filled(np.int64([1]))
    plan.run([out])
    child = os.fork()
    if child == 0:
        plan.run([out])
        later = ExecutionPlan([(toolbox.kernel("born_in_child", INCREMENT), (0,))], 1)
        later.run([out])
        os._exit(0 if out.view(np.int64)[0] == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert out.view(np.int64)[0] == 2


def test_nothing_grows_over_many_plans(toolbox):
    kernel = toolbox.kernel("increment", INCREMENT)
    out = filled(np.int64([0]))
    before = memory_stats()
    for _ in range(2000):
        ExecutionPlan([(kernel, (0,), 128)], 1, arena=(0,), arena_bytes=64).run([out])
    after = memory_stats()
    assert out.view(np.int64)[0] == 2000
    assert after["live_bytes"] == before["live_bytes"]
    assert after["live_buffers"] == before["live_buffers"]

"""The pool of threads: every iteration once, on scratch of its own, whatever else goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from morok import config
from morok.cores import available_cores, cores_of_quota
from morok.errors import ConfigError
from morok.runtime import Buffer, ExecutionPlan, memory_stats, pool_stats, stop_workers

COUNT = "long *o = bufs[0]; for (long i = lo; i < hi; i++) o[i] += i + 1;"
# Writes the whole scratch, waits a little, and looks whether it is still what it wrote.
SCRATCH = (
    "volatile long *s = scratch; long *o = bufs[0];"
    "for (long i = lo; i < hi; i++) {"
    " for (int k = 0; k < 512; k++) s[k] = i + k;"
    " for (volatile int w = 0; w < 200; w++) {}"
    " long good = 1; for (int k = 0; k < 512; k++) good &= s[k] == i + k;"
    " o[i] += good; }"
)
STRESS = Path(__file__).with_name("pool_stress.c")
CORE = Path(__file__).parents[2] / "morok" / "_core"


def plan_of(kernel, n: int, scratch: int = 0) -> ExecutionPlan:
    return ExecutionPlan([(kernel, (0,), scratch, 0, n, None, "", True)], 1)


def counted(plan: ExecutionPlan, n: int) -> bool:
    """Whether one run adds i + 1 to every element, once."""
    array = np.zeros(n, np.int64)
    plan.run([Buffer.from_object(array)])
    return bool((array == np.arange(1, n + 1)).all())


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 1000, 100_003])
def test_every_iteration_runs_once(toolbox, n, threads):
    plan = plan_of(toolbox.kernel("count", COUNT), n)
    with config.override(threads=threads):
        assert all(counted(plan, n) for _ in range(20))


def test_kernels_of_a_plan_run_one_after_another(toolbox):
    """The second kernel needs what other threads wrote in the first"""
    add = toolbox.kernel("count", COUNT)
    back = toolbox.kernel(
        "back",
        "long *o = bufs[0]; const long *a = bufs[1];"
        f"for (long i = lo; i < hi; i++) o[i] = a[{50_000} - 1 - i];",
    )
    rows = [(add, (0,), 0, 0, 50_000, None, "", True), (back, (1, 0), 0, 0, 50_000, None, "", True)]
    plan = ExecutionPlan(rows, 2)
    with config.override(threads=4):
        for _ in range(50):
            first, second = np.zeros(50_000, np.int64), np.zeros(50_000, np.int64)
            plan.run([Buffer.from_object(first), Buffer.from_object(second)])
            assert (second == np.arange(50_000, 0, -1)).all()


def test_scratch_belongs_to_one_thread(toolbox):
    plan = plan_of(toolbox.kernel("own", SCRATCH), 3000, scratch=4096)
    array = np.zeros(3000, np.int64)
    with config.override(threads=4):
        plan.run([Buffer.from_object(array)])
    assert (array == 1).all()


def test_scratch_does_not_grow(toolbox):
    kernel = toolbox.kernel("own", SCRATCH)
    plans = [plan_of(kernel, 64, scratch=4096 << k) for k in range(8)]
    array = np.zeros(64, np.int64)
    buffer = Buffer.from_object(array)
    stop_workers()
    with config.override(threads=3):
        for _ in range(30):
            for plan in plans:
                plan.run([buffer])
        before = memory_stats()["live_bytes"]
        for _ in range(300):
            for plan in plans:
                plan.run([buffer])
    assert (array == 330 * 8).all()
    assert memory_stats()["live_bytes"] == before
    stats = pool_stats()
    assert stats["workers"] == 2
    assert stats["scratch_bytes"] <= 2 * (4096 << 7)  # the largest, once a worker


def test_threads_stop_and_start_again(toolbox):
    plan = plan_of(toolbox.kernel("count", COUNT), 1000)
    with config.override(threads=3):
        assert counted(plan, 1000)
        assert pool_stats()["workers"] >= 2
        stop_workers()
        assert pool_stats()["workers"] == 0
        assert pool_stats()["scratch_bytes"] == 0
        stop_workers()
        assert counted(plan, 1000)
        assert pool_stats()["workers"] == 2


def test_workers_sleep_when_there_is_nothing_to_do(toolbox):
    plan = plan_of(toolbox.kernel("count", COUNT), 1000)
    with config.override(threads=3):
        counted(plan, 1000)
        time.sleep(0.05)
        before = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - before < 0.2  # two that look for work would take 0.6
        assert counted(plan, 1000)


def test_many_threads_share_the_pool(toolbox):
    plan = plan_of(toolbox.kernel("own", SCRATCH), 50, scratch=4096)
    wrong = []

    def work():
        for _ in range(200):
            array = np.zeros(50, np.int64)
            plan.run([Buffer.from_object(array)])
            if not (array == 1).all():
                wrong.append(array)

    # More launches at a time than the pool has places for.
    threads = [threading.Thread(target=work) for _ in range(20)]
    config.set(threads=3)  # a block's settings are its own thread's
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        config.reload()
    assert not wrong


def test_the_child_of_a_fork_has_threads_of_its_own(toolbox):
    plan = plan_of(toolbox.kernel("own", SCRATCH), 500, scratch=4096)

    def right() -> bool:
        array = np.zeros(500, np.int64)
        plan.run([Buffer.from_object(array)])
        return bool((array == 1).all())

    with config.override(threads=3):
        assert right()
        config.set(threads=3)
        try:
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    started = pool_stats()["workers"]
                    good = started == 0 and right() and pool_stats()["workers"] == 2
                    os._exit(0 if good else 1)
                assert os.waitpid(child, 0)[1] == 0
                assert right()
        finally:
            config.reload()


def test_a_fork_while_other_threads_run(toolbox):
    plan = plan_of(toolbox.kernel("count", COUNT), 20_000)
    stop = threading.Event()

    def work():
        with config.override(threads=3):
            while not stop.is_set():
                counted(plan, 20_000)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                with config.override(threads=3):
                    os._exit(0 if counted(plan, 20_000) and counted(plan, 20_000) else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_rounding_is_that_of_the_thread_that_launches(toolbox):
    """Subnormals are flushed to zero by all threads of a kernel or by none"""
    if not toolbox.compiler.target.has("SSE"):
        pytest.skip("the test sets a register of x86")
    control = toolbox.kernel(
        "control", "__builtin_ia32_ldmxcsr(lo); *(unsigned *)bufs[0] = __builtin_ia32_stmxcsr();"
    )
    halve = toolbox.kernel(
        "halve",
        "volatile float *o = bufs[0];"
        "for (long i = lo; i < hi; i++) { o[i] = 1e-40f; o[i] = o[i] * 0.5f; }",
    )
    word = np.zeros(1, np.uint32)
    plan = plan_of(halve, 200_000)

    def set_control(value: int) -> None:
        ExecutionPlan([(control, (0,), 0, value, 0)], 1).run([Buffer.from_object(word)])

    for value, flushed in ((0x9FC0, True), (0x1F80, False)):
        try:
            set_control(value)
            array = np.zeros(200_000, np.float32)
            with config.override(threads=3):
                plan.run([Buffer.from_object(array)])
        finally:
            set_control(0x1F80)
        assert np.count_nonzero(array) == (0 if flushed else len(array))


def test_the_interpreter_exits_while_a_kernel_runs():
    code = (
        "import threading, numpy as np\n"
        "from morok import config\n"
        "from morok._core import COPY_KERNEL\n"
        "from morok.runtime import Buffer, ExecutionPlan, pool_stats\n"
        "config.set(threads=3)\n"
        "a, b = (Buffer.from_object(np.ones(1 << 24, np.uint8)) for _ in range(2))\n"
        "plan = ExecutionPlan([(COPY_KERNEL, (0, 1), 0, 0, 1 << 24, None, 'copy', True)], 2)\n"
        "plan.run([a, b])\n"
        "assert pool_stats()['workers'] == 2\n"
        "def work():\n"
        "    while True: plan.run([a, b])\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "print('done')\n"
    )
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, timeout=60, check=False, text=True
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_the_pool_under_sanitizers(tmp_path, sanitizer):
    program = tmp_path / "stress"
    flags = ["-std=gnu11", "-O1", "-g", f"-fsanitize={sanitizer}", f"-I{CORE}", "-pthread"]
    built = subprocess.run(
        ["cc", *flags, str(STRESS), "-o", str(program)], capture_output=True, check=False, text=True
    )
    if built.returncode != 0:
        pytest.skip(f"no sanitizer here: {built.stderr.strip().splitlines()[-1]}")
    run = subprocess.run([str(program)], capture_output=True, check=False, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "WARNING" not in run.stderr
    assert "0 workers" in run.stdout


# ---- how many ------------------------------------------------------------------------------------


def test_the_number_of_threads_is_a_setting():
    assert config.from_environment({}).threads == 0
    assert config.from_environment({"MOROK_THREADS": "3"}).threads == 3
    assert config.from_environment({"OMP_NUM_THREADS": "4,2"}).threads == 4
    both = {"MOROK_THREADS": "3", "OMP_NUM_THREADS": "4"}
    assert config.from_environment(both).threads == 3
    with pytest.raises(ConfigError, match="MOROK_THREADS=many"):
        config.from_environment({"MOROK_THREADS": "many"})
    assert 1 <= available_cores() <= (os.cpu_count() or 1)


def test_quotas_of_control_groups(tmp_path):
    groups = tmp_path / "sys/fs/cgroup"
    (groups / "a/b").mkdir(parents=True)
    (groups / "a/b/cpu.max").write_text("max 100000\n")
    assert cores_of_quota(tmp_path, "0::/a/b\n") is None
    (groups / "a/cpu.max").write_text("350000 100000\n")
    assert cores_of_quota(tmp_path, "0::/a/b\n") == 3
    (groups / "a/b/cpu.max").write_text("50000 100000\n")
    assert cores_of_quota(tmp_path, "0::/a/b\n") == 1
    assert cores_of_quota(tmp_path, "0::/elsewhere\n") is None
    (groups / "cpu/c").mkdir(parents=True)
    (groups / "cpu/c/cpu.cfs_quota_us").write_text("-1\n")
    (groups / "cpu/c/cpu.cfs_period_us").write_text("100000\n")
    assert cores_of_quota(tmp_path, "4:memory:/c\n3:cpu,cpuacct:/c\n") is None
    (groups / "cpu/c/cpu.cfs_quota_us").write_text("250000\n")
    assert cores_of_quota(tmp_path, "4:memory:/c\n3:cpu,cpuacct:/c\n") == 2
    assert cores_of_quota(tmp_path, "4:memory:/c\n") is None

"""Plans on disk: a second process runs what a first one lowered, and nothing wrong ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import morok as mk
from morok import config, engine
from morok.engine import finished
from morok.runtime import Device, default_cache
from morok.tensor import Tensor

OTHER_USER = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
Array = np.ndarray


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A cache of one's own, and nothing in memory."""
    config.set(cache_dir=tmp_path / "cache", verify=False)
    mk.clear_caches()
    yield tmp_path / "cache" / "v1"
    mk.clear_caches()


def numbers(*shape: int) -> Array:
    count = int(np.prod(shape))
    return (np.arange(count, dtype=np.float32) % 13 - 6).reshape(shape)


def compute() -> Array:
    """Two kernels at least; what they give is whole numbers."""
    a, b = Tensor(numbers(24, 16)), Tensor(numbers(16, 20))
    return ((a @ b).sum(0) * 2).numpy()


EXPECTED = (numbers(24, 16) @ numbers(16, 20)).sum(0) * 2


def second(work: Callable[[], Array] = compute) -> tuple[int, int]:
    """What a process that remembers nothing does: how many kernels it lowers, how many plans it
    finds; it gets the right answer."""
    mk.clear_caches()
    before = engine.stats.lowered, engine.stats.found
    assert np.array_equal(work(), EXPECTED)
    return engine.stats.lowered - before[0], engine.stats.found - before[1]


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def test_the_second_time_nothing_is_lowered(folder: Path) -> None:
    lowered, found = second()
    assert lowered >= 1
    assert found == 0
    lowered, found = second()
    assert lowered == 0
    assert found >= 1


SCRIPT = """
import json, sys
import numpy as np
import morok as mk
from morok import Tensor, engine
net = [mk.nn.Linear(12, 8), mk.nn.Linear(8, 3)]
for layer in net:
    for name in ("weight", "bias"):
        old = getattr(layer, name)
        new = np.arange(np.prod(old.shape), dtype=np.float32).reshape(old.shape) % 7 - 3
        with mk.no_grad():
            old.assign(Tensor(new))
optimizer = mk.optim.SGD([t for layer in net for t in (layer.weight, layer.bias)], lr=1.0)
x = Tensor(np.arange(48, dtype=np.float32).reshape(4, 12) % 5)
loss = net[1](net[0](x).relu()).sum()
loss.backward()
optimizer.step()
heavy = ("morok.codegen", "morok.rangeify", "morok.symbolic", "morok.optimizer", "morok.renderers",
         "llvmlite", "subprocess")
print(json.dumps({
    "loss": loss.item(), "weight": net[0].weight.tolist(), "lowered": engine.stats.lowered,
    "heavy": [name for name in heavy if name in sys.modules],
}))
"""


def in_process(cache: Path, **settings: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "MOROK_VERIFY"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "MOROK_CACHE_DIR": str(cache), **settings},
    )


def answer(process: subprocess.Popen[str]) -> dict[str, object]:
    said, _ = process.communicate()
    assert process.returncode == 0
    found: dict[str, object] = json.loads(said)
    return found


@pytest.mark.parametrize("compiler", ["c", "llvm"])
def test_a_second_process_imports_neither_compilers_nor_stages(
    tmp_path: Path, compiler: str
) -> None:
    if compiler == "llvm":
        pytest.importorskip("llvmlite")
    first, again = (answer(in_process(tmp_path, MOROK_CPU_COMPILER=compiler)) for _ in range(2))
    assert first["lowered"] != 0
    assert again["lowered"] == 0
    assert again["heavy"] == []
    assert (again["loss"], again["weight"]) == (first["loss"], first["weight"])


def test_eight_cold_processes_at_once(tmp_path: Path) -> None:
    answers = [answer(each) for each in [in_process(tmp_path) for _ in range(8)]]
    assert all(
        (each["loss"], each["weight"]) == (answers[0]["loss"], answers[0]["weight"])
        for each in answers
    )
    assert answer(in_process(tmp_path))["lowered"] == 0


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        flip,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(os.urandom(3000)),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: path.chmod(0o666),
    ],
    ids=["gone", "flipped", "empty", "random", "cut", "longer", "others can write"],
)
def test_damaged_files_are_a_miss(folder: Path, damage: Callable[[Path], None]) -> None:
    second()
    for path in entries(folder):
        damage(path)
    assert second()[0] >= 1
    assert second() == (0, 1)


def test_each_file_alone_may_be_damaged(folder: Path) -> None:
    """A plan whose machine code is gone, machine code whose plan is gone."""
    second()
    for number in range(len(entries(folder))):
        flip(sorted(entries(folder))[number])
        second()
        assert second()[0] == 0


def test_entries_that_changed_places_are_a_miss(folder: Path) -> None:
    second()
    contents = [path.read_bytes() for path in entries(folder)]
    for path, content in zip(entries(folder), [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    assert second()[0] >= 1


@pytest.mark.parametrize("junk", [b"", b"\x00", b"i\x05\x00\x00\x00", b"(\x02", b"{0", b"N" * 9])
def test_whole_entries_of_nonsense_are_a_miss(folder: Path, junk: bytes) -> None:
    second()
    for path in entries(folder):
        default_cache().put(bytes.fromhex(path.name), junk)
    assert second()[0] >= 1
    assert second() == (0, 1)


@only_root
def test_somebody_elses_files_are_a_miss(folder: Path) -> None:
    second()
    for path in entries(folder):
        os.chown(path, OTHER_USER, OTHER_USER)
    assert second()[0] >= 1


@only_root
def test_a_cache_that_cannot_be_written_still_serves(folder: Path) -> None:
    second()
    before = sorted(path.name for path in entries(folder))
    for path in entries(folder):
        os.chown(path, OTHER_USER, OTHER_USER)
        path.chmod(0o400)
    os.chown(folder, OTHER_USER, OTHER_USER)
    folder.chmod(0o500)
    for parent in (*folder.parents,)[:-2]:
        if parent.stat().st_uid == 0 and parent != Path("/tmp"):
            parent.chmod(0o755)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(OTHER_USER)
            os.setuid(OTHER_USER)
            config.set(cache_dir=folder.parent, verify=False, cache_size=(1 << 30) + 1)
            code = 0 if second() == (0, 1) else 2
            mk.clear_caches()
            assert Tensor(numbers(3, 5)).sum(1).numpy().tolist() == numbers(3, 5).sum(1).tolist()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(path.name for path in entries(folder)) == before


def test_killed_while_writing(folder: Path) -> None:
    second()
    for wait in (0.0, 0.004, 0.011, 0.03):
        child = os.fork()
        if child == 0:
            planned = engine.plan(engine.Normal(engine.sink_of([lazy().uop])), Device["CPU"])
            while True:
                finished.store_plan(planned, Device["CPU"])
        time.sleep(wait)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert second()[0] == 0
        assert all(path.stat().st_size for path in entries(folder))


def lazy() -> Tensor:
    return (Tensor(numbers(24, 16)) @ Tensor(numbers(16, 20))).sum(0) * 2


def test_other_settings_compilers_and_files_are_other_plans(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second()
    with config.override(noopt=True):
        assert second()[0] >= 1
        assert second() == (0, 1)
    with config.override(verify=True):  # whose point is to look at the stages
        assert second()[0] >= 1
    with config.override(cache_size=0):
        assert second()[0] >= 1
    compiler = Device["CPU"].compiler
    monkeypatch.setitem(compiler.__dict__, "identity", compiler.identity + " another version")
    assert second()[0] >= 1
    monkeypatch.undo()
    config.set(cache_dir=folder.parent, verify=False)
    for files in ("other files", None):
        monkeypatch.setattr(finished, "_files", lambda files=files: files)
        assert second()[0] >= 1
    assert second()[0] >= 1  # None: nothing is kept
    monkeypatch.undo()
    config.set(cache_dir=folder.parent, verify=False)
    assert second() == (0, 1)


def test_files_that_changed_meanwhile_may_not_be_what_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    finished._files.cache_clear()
    assert finished._files() is not None
    finished._files.cache_clear()
    monkeypatch.setattr(finished, "_BORN", 0)
    assert finished._files() is None
    finished._files.cache_clear()


def test_reports_and_sources_are_the_same(folder: Path) -> None:
    def seen() -> tuple[object, ...]:
        mk.clear_caches()
        with mk.watch_schedules() as reports:
            compute()
        planned = lazy().prepare()
        kernels = [
            (k.name, k.flops, k.bytes_read, k.bytes_written) for r in reports for k in r.kernels
        ]
        return kernels, [r.peak_memory for r in reports], planned.sources(), planned.kernels

    lowered, found = seen(), seen()
    assert found == lowered
    assert "void" in found[2][0]


def programs() -> dict[str, Callable[[], list[Tensor]]]:
    x = numbers(6, 10)

    def written() -> list[Tensor]:
        table = Tensor(numbers(8, 4))
        table[2:5] = Tensor(numbers(3, 4)) * 2
        table[6] += 1
        return [table, table.cumsum(0)]

    def variable() -> list[Tensor]:
        n = mk.Variable("n", 1, 9).bind(4)
        return [Tensor(x)[:, :n].sum(1)]

    def called() -> list[Tensor]:
        @mk.function
        def layer(t: Tensor) -> Tensor:
            return (t * 2).relu() + t.sum()

        return [layer(layer(Tensor(x)))]

    def gradient() -> list[Tensor]:
        weight = Tensor(numbers(10, 3), requires_grad=True)
        (Tensor(x) @ weight).relu().sum().backward()
        assert weight.grad is not None
        return [weight.grad]

    return {
        "written": written,
        "variable": variable,
        "called": called,
        "gradient": gradient,
        "softmax": lambda: [Tensor(x).softmax(1), Tensor(x).argmax(1)],
        "conv": lambda: [Tensor(numbers(1, 2, 7, 7)).conv2d(Tensor(numbers(3, 2, 3, 3)))],
        "half": lambda: [(Tensor(x.astype(np.float16)) * 3).sum(0)],
        "picked": lambda: [Tensor(x)[[1, 1, 5]], Tensor(x).cumsum(1)],
    }


@pytest.mark.parametrize("name", programs())
def test_programs_give_the_same_bits(folder: Path, name: str) -> None:
    results = []
    for _ in range(2):
        mk.clear_caches()
        lowered = engine.stats.lowered
        results.append([t.numpy().tobytes() for t in programs()[name]()])
    assert engine.stats.lowered == lowered
    assert results[0] == results[1]

"""What a replay could not repeat is refused, with the line at fault; check mode finds the rest."""

from __future__ import annotations

from collections import deque
from types import ModuleType

import numpy as np
import pytest

import morok as mk
from morok.errors import JitError
from morok.tensor import Tensor


def line_of(error: pytest.ExceptionInfo[JitError]) -> str:
    """The text of the line that the message ends with."""
    place = str(error.value).rpartition("\n  at ")[2]
    file, _, rest = place.rpartition(":")
    with open(file) as source:
        return source.readlines()[int(rest.split()[0]) - 1]


def call_often(function) -> None:
    for _ in range(20):
        function()


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),  # READ
        lambda x: x.numpy(),  # READ
        lambda x: x.tolist(),  # READ
        lambda x: bool(x.sum() > 0),  # READ
        lambda x: 1 if x.sum() > 0 else 2,  # READ
        lambda x: str(x),  # READ
        lambda x: float(x.sum()),  # READ
        lambda x: [1, 2, 3][x.sum().cast(mk.dtypes.int32)],  # READ
        lambda x: np.asarray(x),  # READ
        lambda x: x[x > 0],  # READ
    ],
)
def test_reading_a_value_inside(read) -> None:
    function = mk.jit(read)
    with pytest.raises(JitError, match="reads a value") as error:
        function(Tensor([1.0, 0.5]))
    assert "# READ" in line_of(error)
    x = Tensor([1.0])
    assert (x + 1).item() == 2


def test_a_branch_on_data() -> None:
    @mk.jit
    def absolute(x):
        if (x < 0).any():  # HERE
            return -x
        return x

    with pytest.raises(JitError, match=r"where\(\)") as error:
        absolute(Tensor([1.0]))
    assert "# HERE" in line_of(error)


class Holder:
    def __init__(self) -> None:
        self.h = Tensor([0.0])
        self.items = [Tensor([1.0])]

    @mk.jit
    def rebind(self, x):
        self.h = self.h + x
        return self.h

    @mk.jit
    def rebind_item(self, x):
        self.items[0] = x + 1
        return x

    @mk.jit
    def write(self, x):
        self.h.assign(self.h + x)
        return self.h + 0


def test_another_tensor_in_the_place_of_one() -> None:
    holder = Holder()
    with pytest.raises(JitError, match=r"'self\.h'.*self\.h\.assign"):
        holder.rebind(Tensor([1.0]))
    with pytest.raises(JitError, match=r"self\.items\[0\]"):
        holder.rebind_item(Tensor([1.0]))
    holder = Holder()
    for i in range(5):
        assert holder.write(Tensor([1.0])).item() == i + 1


def test_another_tensor_in_the_closure() -> None:
    holder = Holder()

    @mk.jit
    def rebind(x):
        holder.h = holder.h + x

    with pytest.raises(JitError, match=r"'holder\.h'"):
        rebind(Tensor([1.0]))


def test_a_tensor_exchanged_outside_is_traced_again() -> None:
    holder = Holder()

    @mk.jit
    def read(x):
        return holder.h + x

    for value in (1.0, 2.0):
        holder.h = Tensor([value])
        for i in range(4):
            assert read(Tensor([float(i)])).item() == value + i


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("list", lambda held: held.append(Tensor([4.0]))),
        ("list", lambda held: held.pop()),
        ("list", lambda held: held.__setitem__(0, Tensor([4.0]))),
        ("deque", lambda held: held.append(Tensor([4.0]))),
        ("deque", lambda held: held.__setitem__(0, Tensor([4.0]))),
        ("set", lambda held: held.add(Tensor([4.0]))),
        ("set", lambda held: (held.clear(), held.add(Tensor([4.0])))),
        ("dict", lambda held: held.__setitem__("b", Tensor([4.0]))),
        ("dict", lambda held: held.__setitem__("a", Tensor([4.0]))),
    ],
)
def test_a_container_in_the_closure_that_changes(name, change) -> None:
    one = Tensor([1.0])
    held = {"list": [one], "deque": deque([one]), "set": {one}, "dict": {"a": one}}[name]

    def total(x):
        return sum(held.values() if isinstance(held, dict) else held, x)

    jitted = mk.jit(total)
    for i in range(10):
        if i == 4:
            change(held)
        assert jitted(Tensor([2.0])).tolist() == total(Tensor([2.0])).tolist()
    assert jitted.captures == 2


@pytest.mark.parametrize("how", ["object", "class", "method", "argument", "shadowed", "module"])
def test_a_tensor_of_a_class_or_module(how) -> None:
    class Scale:
        by = Tensor([3.0])

        def times(self, x):
            return x * self.by

        @mk.jit
        def jitted(self, x):
            return x * self.by

    scale, module = Scale(), ModuleType("settings")
    module.by = Scale.by
    holder = {"shadowed": scale, "module": module}.get(how, Scale)
    times = {
        "object": mk.jit(lambda x: x * scale.by),
        "class": mk.jit(lambda x: x * Scale.by),
        "method": mk.jit(scale.times),
        "argument": lambda x: scale.jitted(x),
        "shadowed": mk.jit(lambda x: x * scale.by),
        "module": mk.jit(lambda x: x * module.by),
    }[how]
    for i in range(4):
        assert times(Tensor([float(i)])).item() == 3 * i
    holder.by = Tensor([5.0])
    for i in range(4):
        assert times(Tensor([float(i)])).item() == 5 * i
    holder.by.assign(Tensor([7.0]))
    assert times(Tensor([2.0])).item() == 14


def test_a_tensor_of_a_class_is_written() -> None:
    class Count:
        calls = Tensor([0.0])

    @mk.jit
    def step(x):
        Count.calls += 1
        return x + Count.calls

    for i in range(6):
        assert step(Tensor([1.0])).item() == i + 2
    assert Count.calls.item() == 6
    assert step.replays == 4


def test_calls_that_alternate_between_tensors_of_the_closure() -> None:
    weights = [Tensor([2.0]), Tensor([3.0])]
    box = [weights[0]]
    times = mk.jit(lambda x: x * box[0])
    for i in range(12):
        box[0] = weights[i % 2]
        assert times(Tensor([float(i)])).item() == i * (2 + i % 2)
        assert times(weights[0]).item() == 2 * (2 + i % 2)
    assert times.captures == 3


def test_a_value_that_differs_from_call_to_call() -> None:
    counts = iter(range(100))

    @mk.jit
    def count(x):
        return x + Tensor([next(counts)])

    seen = []
    with pytest.raises(JitError, match="from Python or NumPy data differs"):
        seen.extend(count(Tensor([0])).item() for _ in range(20))
    assert seen == list(range(len(seen)))
    assert 2 < len(seen) < 10


def test_a_computation_that_differs_from_call_to_call() -> None:
    counts = iter(range(1, 100))

    @mk.jit
    def grow(x):
        for _ in range(next(counts)):
            x = x * 2
        return x

    seen = []
    with pytest.raises(JitError, match="computes something else"):
        seen.extend(grow(Tensor([1.0])).item() for _ in range(20))
    assert seen == [2.0 ** (i + 1) for i in range(len(seen))]


def test_a_computation_that_differs_every_other_time() -> None:
    count = [0]

    @mk.jit
    def scaled(x):
        count[0] += 1
        return x * (2 + count[0] % 2)

    for i in range(6):
        assert scaled(Tensor([1.0])).item() == 2 + (i + 1) % 2
    with pytest.raises(JitError, match="something else from call to call"):
        scaled(Tensor([1.0]))


def test_results_that_differ_from_call_to_call() -> None:
    counts = iter(range(100))

    @mk.jit
    def numbered(x):
        return x + 1, next(counts)

    with pytest.raises(JitError, match="returns something else"):
        call_often(lambda: numbered(Tensor([1.0])))


def test_python_values_of_arguments_that_the_function_changes() -> None:
    class Counter:
        count = 0
        on = False

        @mk.jit
        def step(self, x):
            self.on = not self.on
            return x + (1 if self.on else 2)

    counter = Counter()
    seen = []
    with pytest.raises(JitError, match="changes Python values"):
        seen.extend(counter.step(Tensor([0.0])).item() for _ in range(30))
    assert seen == [1 + i % 2 for i in range(len(seen))]


def test_state_made_in_the_first_call() -> None:
    class Lazy:
        state = None

        @mk.jit
        def step(self, x):
            if self.state is None:
                self.state = Tensor([0.0])
            self.state.assign(self.state + x)
            return self.state * 1

    lazy = Lazy()
    assert [lazy.step(Tensor([2.0])).item() for _ in range(8)] == [2.0 * i for i in range(1, 9)]
    assert Lazy.step.replays >= 4


def realised(tensor, x) -> None:
    tensor += x
    tensor.realize()


def pending(tensor, x) -> None:
    tensor += x


def differentiated(tensor, x) -> None:
    (tensor * x).sum().backward()


@pytest.mark.parametrize("change", [realised, pending, differentiated])
def test_a_tensor_that_cannot_be_followed_changes(change) -> None:
    state = Tensor([0.0], requires_grad=change is differentiated)
    source = iter(lambda: state, None)

    @mk.jit
    def write(x):
        change(next(source), x)
        return x

    with pytest.raises(JitError, match="neither in its arguments nor in its closure"):
        call_often(lambda: write(Tensor([1.0])))


def test_an_error_leaves_everything_usable() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)

    @mk.jit
    def bad(x):
        with mk.no_grad():
            weight.assign(weight + x)
        return weight.sum().item()

    with pytest.raises(JitError):
        bad(Tensor([1.0, 1.0]))
    assert weight.tolist() == [2.0, 3.0]
    (weight * weight).sum().backward()
    assert weight.grad.tolist() == [4.0, 6.0]


def test_check_mode_finds_a_changed_closure_value() -> None:
    factor = 2
    settings = {"add": 1}

    @mk.jit
    def scale(x):
        return {"out": x * factor + settings["add"]}

    with mk.config.override(jit_check=True):
        for i in range(5):
            assert scale(Tensor([float(i)]))["out"].item() == 2 * i + 1
        factor = 3
        with pytest.raises(JitError, match=r"its result\['out'\]: 11\.0, not 16\.0"):
            scale(Tensor([5.0]))
        factor = 2
        assert scale(Tensor([5.0]))["out"].item() == 11
        settings["add"] = 2
        with pytest.raises(JitError, match="pass it as an argument"):
            scale(Tensor([5.0]))


def test_check_mode_finds_changed_writes_and_gradients() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    total = Tensor([0.0])
    rate = 0.5

    @mk.jit
    def step(x, power):
        weight.grad = None
        (weight * x * power).sum().backward()
        with mk.no_grad():
            total.assign(total + rate)

    with mk.config.override(jit_check=True):
        for i in range(5):
            step(Tensor([1.0, 2.0]), 2)
            assert total.item() == 0.5 * (i + 1)
            assert weight.grad.tolist() == [2.0, 4.0]
        rate = 1.0
        with pytest.raises(JitError, match=r"in total: 3\.0, not 3\.5"):
            step(Tensor([1.0, 2.0]), 2)


def test_check_mode_passes_what_is_right() -> None:
    from morok import nn
    from morok.nn.state import get_parameters
    from morok.optim import Adam

    mk.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = Adam(get_parameters(model), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x.dropout(0.5, training=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    rng = np.random.default_rng(0)
    batches = rng.standard_normal((10, 5, 4)).astype(np.float32)
    with mk.config.override(jit_check=True):
        checked = mk.jit(step)
        seen = [checked(Tensor(x)).item() for x in batches]
    assert checked.replays == 8
    mk.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = Adam(get_parameters(model), lr=0.1)
    assert [step(Tensor(x)).item() for x in batches] == seen


def test_another_device() -> None:
    @mk.jit
    def move(x):
        return x.to("GPU")

    with pytest.raises(mk.errors.DeviceError):
        move(Tensor([1.0]))
    with pytest.raises(mk.errors.DeviceError):
        mk.jit(lambda x, device: x.to(device))(Tensor([1.0]), "OPENCL")

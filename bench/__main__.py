"""python -m bench NAME [--peers tinygrad,torch,jax] [--json FILE] [--rounds N] [--quick]
                        [--kernels] [--only MODEL|ROW,…] [--threads N]
   python -m bench fuzz [--kind KIND,…] [--seconds N | --cases N] [--seed S]
   python -m bench roundtrip [--only MODEL,…]
   python -m bench expressions [--count N] [--seed S]
   python -m bench shapes [--shapes N]

NAME is a module of this package with a `main(args)`; without one, the names are listed. Peers are
other systems: each runs in a process of its own, in turns with ours (A B A B …) after a warm-up,
and the ratio is taken pair by pair. A peer that is not installed is a line that says so.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import bench

OWN_OPTIONS = (
    "accuracy",
    "expressions",
    "fuzz",
    "launch",
    "roundtrip",
    "shapes",
)  # their `main` takes the rest of the line
NO_BENCHMARKS = (
    "harness",
    "models",
    "programs",
    "state_machine",
    "numpy_model",
    "fit_polynomials",
)


def names() -> list[str]:
    """The benchmarks there are."""
    found = (module.name for module in pkgutil.iter_modules(bench.__path__))
    return sorted(name for name in found if name not in NO_BENCHMARKS and not name.startswith("_"))


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    arguments.formatter_class = argparse.RawDescriptionHelpFormatter
    arguments.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names()))
    arguments.add_argument(
        "--peers",
        default="",
        help="comma separated: tinygrad, torch (or torch.eager), jax; c or llvm: morok by that",
    )
    arguments.add_argument("--json", metavar="FILE", help="also write all results there")
    arguments.add_argument("--rounds", type=int, default=5, help="pairs of runs (default 5)")
    arguments.add_argument("--quick", action="store_true", help="smaller inputs, for a smoke test")
    arguments.add_argument("--only", default="", help="train: models, kernels: rows")
    arguments.add_argument("--threads", type=int, default=1, help="kernels: so many threads")
    arguments.add_argument("--kernels", action="store_true", help="train: the costly kernels too")
    return arguments


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv and argv[0] in OWN_OPTIONS:
        code: int = importlib.import_module(f"bench.{argv[0]}").main(argv[1:])
        return code
    args = parser().parse_args(argv)
    args.peers = [peer for peer in args.peers.split(",") if peer]
    if not args.names:
        print("benchmarks:", ", ".join(names()))
        return 0
    unknown = [name for name in args.names if name not in names()]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}: there are {', '.join(names())}")
        return 2
    for name in args.names:
        importlib.import_module(f"bench.{name}").main(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Benchmarks: `python -m bench NAME`. Each module here is one benchmark with a `main(args)`."""

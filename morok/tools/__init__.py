"""Tools for people: each module is one command of `python -m morok`."""

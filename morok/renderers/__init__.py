"""Renderers: a LINEAR in, source text out. C for processors."""

from morok.renderers.c import CRenderer

__all__ = ["CRenderer"]

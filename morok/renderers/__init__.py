"""Renderers: a LINEAR in, source text out. C and LLVM IR, both for processors."""

from morok.renderers.c import CRenderer
from morok.renderers.llvm import LLVMRenderer

__all__ = ["CRenderer", "LLVMRenderer"]

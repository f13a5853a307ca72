"""The sizes of the models that are measured, for every system alike."""

from __future__ import annotations

MLP = (784, 512, 256, 10)
"""Widths of the layers."""

CNN_CHANNELS = (32, 64)
CNN_SIDE = 28

RESNET18 = (2, 2, 2, 2)
"""Blocks of each stage (He et al. 2015, table 1)."""
RESNET50 = (3, 4, 6, 3)

GPT_VOCABULARY = 256
GPT_LENGTH = 128
GPT_SIZE = 256
GPT_HEADS = 4
GPT_LAYERS = 4
GPT_BATCH = 8

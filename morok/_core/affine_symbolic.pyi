"""Affine forms and values that are no constants. Registers native rules; no Python face."""

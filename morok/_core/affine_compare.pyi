"""Comparisons, MAX and MIN of affine forms, chains of AND and OR. Registers native rules; no Python
face."""

"""Canonical sums of index arithmetic. Registers native rules; no Python face."""

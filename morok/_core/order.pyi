"""The order of commutative operands. Registers native rules; no Python face."""

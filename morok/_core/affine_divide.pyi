"""Floor division and remainder of affine forms. Registers native rules; no Python face."""

"""Values that their bounds decide, decided gates. Registers native rules; no Python face."""

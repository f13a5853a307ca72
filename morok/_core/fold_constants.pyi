"""Native rule "fold": constants of every dtype, in its own semantics. No Python face."""

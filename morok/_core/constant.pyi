"""Constants of every dtype as patterns and rules see them. No Python face."""

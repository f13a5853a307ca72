"""Evaluation of guards and right sides of compiled rules. No Python face."""

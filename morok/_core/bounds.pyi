"""Bounds of integer and bool nodes: inferred when a node is made; nothing here for Python."""

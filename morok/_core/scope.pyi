"""Open ranges of nodes: inferred when a node is made; nothing here for Python."""

"""What can be said of a rule from the ops around a node alone; for other core modules."""

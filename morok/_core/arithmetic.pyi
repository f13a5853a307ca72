"""Integer arithmetic on constants: used by the rules that fold them; nothing here for Python."""

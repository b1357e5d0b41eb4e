"""Tables and choices of one machine."""

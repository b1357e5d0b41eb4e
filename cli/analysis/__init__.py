"""What the commands compute, before it is rendered. Pure."""

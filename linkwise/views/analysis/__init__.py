"""The results of commands, before they are rendered. Pure."""

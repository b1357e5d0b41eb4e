"""Text, JSON, YAML, CI formats and HTML pages of results."""

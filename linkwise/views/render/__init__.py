"""Renders results as text, documents, CI formats and HTML pages."""

"""Plain text, tables, versioned documents and progress bars on standard output and error."""

"""Pages that people open in a browser: one file each, nothing loaded from elsewhere."""

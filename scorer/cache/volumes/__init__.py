"""Claims, volumes and their classes as watched."""

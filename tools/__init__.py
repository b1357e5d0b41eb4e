"""Tools for those who develop and release Linkwise."""

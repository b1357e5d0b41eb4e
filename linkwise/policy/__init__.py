"""Settings of administrators: profiles, the catalogue of models and drivers, the Policy. Pure."""

"""What administrators decide: profiles, the catalogue of models and drivers, the Policy. Pure."""

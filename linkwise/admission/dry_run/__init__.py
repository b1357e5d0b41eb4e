"""Admission of the pods of a manifest, without creating them."""

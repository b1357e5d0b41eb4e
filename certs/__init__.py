"""Serving certificates of Linkwise: issuance, storage in one Secret, renewal, caBundle injection.

Read `bundle` first: the Secret is the whole state, so any replica can continue the work of another
one. `authority` issues certificates and `renewal` decides when; `store` and `ca_bundle` write to
the API server, driven by `reconciler`.
"""

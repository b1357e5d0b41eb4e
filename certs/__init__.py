"""Certificates of Linkwise's servers: made, kept in one Secret, renewed, and made known.

Read `bundle` first: what the Secret holds is the whole state, so that any replica can go on where
another one ended. `authority` issues, `renewal` says when; `store`, `inject` and `keep` act.
"""

"""What pods ask for, what nodes hold, and who has which GPU. Pure.

Read `keys` (every word on the wire), `pod` and `request` first; `ledger` holds who has what.
"""

"""The scorer as an extender of a stock scheduler, for pods that are placed one by one.

Read `fit` (which nodes may take a pod) and `bind` (what becomes of it there); `wire` is the
protocol.
"""

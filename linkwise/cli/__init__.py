"""The `linkwise` command: its parameters, and one module for each command.

What it reads, computes and shows is in `linkwise.views`.
"""

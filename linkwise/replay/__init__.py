"""Replays a trace of jobs on a simulated fleet, under several scheduling policies. Pure.

A run, in the order of the modules:

1. `traces` reads the jobs of a published trace, line by line; `arrivals` scales their arrivals.
2. `fleet` builds the empty fleet, as a snapshot of the scorer.
3. `engine` takes jobs as they arrive, lets them wait, and ends them.
4. `policies` choose nodes and GPUs; `linkwise` is the planner of the scorer itself.
5. `measures` records what people compare, and `league` compares the runs of all policies.
"""

"""The `linkwise` command: the same functions as the servers, on files.

Read `__main__` (what there is to call), then `inputs` (what `check` and `simulate` are given),
`workload` (which pods a manifest makes) and `cluster` (what a cluster file tells). `value` keeps
the line of everything that people wrote, and `source` alone reads files.
"""

"""The `linkwise` command: the same functions as the servers, on files.

Read `__main__` (what there is to call), then `inputs` (what `check` and `simulate` are given) and
`cluster` (what a cluster file tells). `source` alone reads files; what stands in them is read by
`webhook.manifest`.
"""

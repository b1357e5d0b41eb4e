"""The `linkwise` command: the functions of the webhook and the scorer, on files and live clusters.

`commands` has the command line, `render` the text, documents and pages of results, `analysis` what
they show, `live` the reading of clusters, `files` the reading of files, `output` the printing.
"""

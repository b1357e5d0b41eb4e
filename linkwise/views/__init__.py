"""Results for people: read, computed, drawn and printed.

`files` and `live` read clusters, `analysis` computes what is shown, `render` has
the text, documents and pages of results, `output` the printing.
"""

"""What is read, computed and drawn for people.

`files` and `live` read clusters, `analysis` computes what is shown, `render` has
the text, documents and pages of results, `output` the printing.
"""

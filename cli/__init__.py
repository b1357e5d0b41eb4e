"""The `linkwise` command: the same functions as the servers, on files."""

"""The command line: the commands of `linkwise` and their parameters."""

"""The commands of `linkwise` and their parameters."""

"""The `linkwise` command."""


def main() -> None:
    """Run the command line."""

"""The help of a server: its settings, from the table in the docstring of its `read_settings`."""

from collections.abc import Iterator

_ROW = "| `LINKWISE_"


def settings_help(package: str, table: str) -> str:
    """Return the help of `python -m <package>`.

    Args:
        package: Name of the server's package.
        table: A text with Markdown rows of a variable, its default and its meaning.
    """
    rows = list(_rows(table))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = (f"  {a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows)
    return (
        f"Usage: python -m {package}\n\n"
        "Runs until SIGTERM or SIGINT. Its settings are environment variables; an unset or empty "
        "one has its default.\n\n" + "\n".join(lines) + "\n"
    )


def _rows(table: str) -> Iterator[tuple[str, str, str]]:
    yield "VARIABLE", "DEFAULT", "MEANING"
    for line in table.splitlines():
        if line.strip().startswith(_ROW):
            name, default, meaning = line.replace("`", "").strip().strip("|").split("|", 2)
            yield name.strip(), default.strip(), meaning.strip()

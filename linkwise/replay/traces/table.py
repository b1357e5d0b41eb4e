"""Reads a CSV file line by line; every error names its line."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from linkwise.manifest.value import InputError

_EMPTY = {"", "nan", "none", "null"}
"""A field without a value, in lower case."""
_MOST = 1e15
"""No amount of a trace is larger."""
_FIELD_MAX = 4096
"""Characters of a field."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    file: str
    line: int
    fields: Mapping[str, str]

    def error(self, problem: str) -> InputError:
        """Return the error of this line."""
        return InputError(f"{self.file}:{self.line}: {problem}")

    def text(self, column: str) -> str:
        """Return a field; empty for one without a value."""
        text = self.fields[column].strip()
        return "" if text.lower() in _EMPTY else text

    def number(self, column: str, most: float = _MOST) -> float | None:
        """Return a number of at least 0, or None for a field without a value.

        Raises:
            InputError: It is no number from 0 to `most`.
        """
        text = self.text(column)
        if not text:
            return None
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0 <= number <= most:
            raise self.error(f"{column} is {text[:40]!r}; a number to {most:,.0f} is expected.")
        return number

    def whole(self, column: str, most: int) -> int:
        """Return a whole number, 0 for a field without a value.

        Raises:
            InputError: It is no whole number from 0 to `most`.
        """
        number = self.number(column) or 0.0
        if number != int(number) or number > most:
            shown = self.text(column)[:40]
            raise self.error(f"{column} is {shown!r}; a whole number to {most:,} is expected.")
        return int(number)

    def time(self, column: str) -> float | None:
        """Return a date and time [s since 1970], or None for a field without a value.

        Without an offset it is in UTC.

        Raises:
            InputError: It is not like `2017-10-07 01:11:39`.
        """
        text = self.text(column)
        if not text:
            return None
        try:
            read = datetime.fromisoformat(text)
        except ValueError:
            problem = f"{column} is {text[:40]!r}; a time like 2017-10-07 01:11:39 is expected."
            raise self.error(problem) from None
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def rows_of(lines: Iterable[str], file: str, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the lines of a CSV file with a header.

    Args:
        lines: The text, line by line.
        file: Its name, for messages.
        columns: The columns that are read.

    Raises:
        InputError: A column is missing, or a line has too few or too many fields, such as the last
            one of a truncated file.
    """
    reader = csv.reader(lines)
    line = 1
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [column for column in columns if column not in header]
        if missing:
            found = ", ".join(header)[:200] or "nothing"
            problem = f"the columns {', '.join(missing)} are missing; the line has {found}."
            raise InputError(f"{file}:1: {problem}")
        places = [header.index(column) for column in columns]
        for fields in reader:
            line = reader.line_num
            if not fields:
                continue
            if len(fields) != len(header):
                problem = f"{len(fields)} fields, but the header has {len(header)}"
                raise InputError(f"{file}:{line}: {problem}. Is the file complete?")
            if any(len(fields[place]) > _FIELD_MAX for place in places):
                raise InputError(f"{file}:{line}: a field is longer than {_FIELD_MAX} characters.")
            picked = zip(columns, places, strict=True)
            yield Row(file, line, {column: fields[place] for column, place in picked})
    except csv.Error as error:
        raise InputError(f"{file}:{line + 1}: {error}.") from None

"""One row about running processes."""

from dataclasses import dataclass

from bench.rounds import Spread


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement: its name, its target and its result."""

    name: str
    target: str
    spread: Spread
    unit: str = ""

    def __str__(self) -> str:
        median, low, high = (
            f"{value:.3g}" for value in (self.spread.median, self.spread.low, self.spread.high)
        )
        ends = f"({low} to {high} {self.unit}".rstrip() + ")"
        return f"{self.name:<66} {self.target:>9}  {f'{median} {self.unit}':>10}  {ends}"

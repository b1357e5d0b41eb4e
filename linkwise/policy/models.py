"""The shipped catalogue of ACS GPU models: drivers and permitted GPU counts."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Model:
    """One GPU model."""

    name: str
    drivers: tuple[str, ...] = ()
    """Supported driver versions, opaque strings; empty: unknown, any is accepted."""
    counts: tuple[int, ...] = ()
    """Permitted numbers of GPUs for a pod of class `gpu`; empty: unknown, any is accepted."""
    memory: int | None = None
    """Memory of one GPU [GiB], or None."""
    default: str | None = None
    """Driver version for pods that name none, or None."""
    aliases: tuple[str, ...] = ()
    """Other names of the same model."""

    @property
    def title(self) -> str:
        """The name with its aliases, as `L20 (GN8IS)`."""
        return f"{self.name} ({', '.join(self.aliases)})" if self.aliases else self.name


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The known models, by name and alias."""

    models: tuple[Model, ...]
    _by_name: Mapping[str, Model] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        names = {name: model for model in self.models for name in (model.name, *model.aliases)}
        object.__setattr__(self, "_by_name", names)

    def find(self, name: str) -> Model | None:
        """Return a model by its name or an alias, or None."""
        return self._by_name.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name and alias."""
        return tuple(self._by_name)

    @property
    def titles(self) -> str:
        """The models as a list for people."""
        return ", ".join(model.title for model in self.models)

    def drivers(self, model: Model | None) -> tuple[str, ...]:
        """Return the driver versions of a model; of all models for None."""
        if model:
            return model.drivers
        return tuple(dict.fromkeys(one for known in self.models for one in known.drivers))


_UP_TO_8 = (1, 2, 4, 8)
_OPEN = "580.95.05-open"

SHIPPED = Catalogue(
    (
        Model("GU8TF", (_OPEN, "550.90.07"), _UP_TO_8, 96, "550.90.07"),
        Model("GU8TEF", (_OPEN, "570.133.20", "550.127.08"), _UP_TO_8, 141, "570.133.20"),
        Model(
            "L20",
            (_OPEN, "570.133.20", "550.90.07", "535.161.08"),
            _UP_TO_8,
            48,
            "550.90.07",
            ("GN8IS",),
        ),
        Model("L20X", (_OPEN, "570.133.20", "550.127.08"), (8,), 141, "570.133.20", ("GX8SF",)),
        Model(
            "P16EN",
            ("2.1.0", "2.0.0", "1.5.4", "1.5.1", "1.5.0", "1.4.1"),
            (*_UP_TO_8, 16),
            96,
            "1.4.1",
        ),
        Model("T4", (_OPEN, "570.133.20", "535.161.08", "525.105.17"), (1, 2), 16, "535.161.08"),
        Model("A10", (_OPEN, "570.133.20", "550.90.07"), _UP_TO_8, 24, "550.90.07"),
        Model("G49E", (_OPEN, "570.124.06"), _UP_TO_8, 48),
        Model("G59", (_OPEN, "575.64.05"), _UP_TO_8, 32),
        Model("G28Ti", (_OPEN,)),
        Model("L20N", (_OPEN, "580.126.09-open"), default=_OPEN),
        Model("L20NE", ("580.126.09-open",), default="580.126.09-open"),
        # Its pods ask for `alibabacloud.com/ppu`; the table of drivers does not have it.
        Model("PPU810E"),
    )
)
"""Source: ACS documentation, GPU models and driver versions, as of 2026-09-24."""

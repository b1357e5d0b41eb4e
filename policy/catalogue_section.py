"""GPU models as a policy writes them: added to those shipped, changing them, or in their place."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from manifest.place import Path
from policy.models import SHIPPED, Catalogue, Model
from policy.wire import LabelValue, Wire


class ModelEntry(Wire):
    """A GPU model; what is left out stays as shipped, or is not known."""

    memory: Annotated[int, Field(gt=0)] | None = None
    """Of one GPU [GiB]."""
    counts: tuple[Annotated[int, Field(gt=0)], ...] | None = None
    drivers: tuple[LabelValue, ...] | None = None
    default: LabelValue | None = None
    aliases: tuple[LabelValue, ...] | None = None


class CatalogueSection(Wire):
    """GPU models that the shipped catalogue lacks or has otherwise."""

    replace: bool = False
    """Take these models only, none of those shipped."""
    models: dict[LabelValue, ModelEntry] = Field(default_factory=dict)


def catalogue_of(section: CatalogueSection) -> Catalogue:
    """Return the shipped catalogue with a policy's models added, changed, or in its place."""
    base = _base(section)
    models = {model.name: model for model in base.models}
    for name, entry in section.models.items():
        models[name] = _changed(base.find(name) or Model(name), entry)
    return Catalogue(tuple(models.values()))


def slips(section: CatalogueSection) -> Iterator[tuple[Path, str, str]]:
    """Yield what no single value can tell: path in `models`, message, fix."""
    base, catalogue = _base(section), catalogue_of(section)
    owners: dict[str, str] = {}
    for model in catalogue.models:
        for name in (model.name, *model.aliases):
            owner = owners.setdefault(name, model.name)
            if owner != model.name:
                path = (model.name if model.name in section.models else owner,)
                yield path, f"{name} is a name of both {owner} and {model.name}", "rename one"
    for name, entry in section.models.items():
        known = base.find(name)
        if known and known.name != name:
            yield (name,), f"{name} is another name of {known.name}", f"write {known.name}"
        drivers = _changed(known or Model(name), entry).drivers
        if entry.default is not None and drivers and entry.default not in drivers:
            message = f"{entry.default} is none of the model's drivers: {', '.join(drivers)}"
            yield (name, "default"), message, "add it to drivers, or write one of them"


def _base(section: CatalogueSection) -> Catalogue:
    return Catalogue(()) if section.replace else SHIPPED


def _changed(known: Model, entry: ModelEntry) -> Model:
    drivers = known.drivers if entry.drivers is None else entry.drivers
    return Model(
        known.name,
        drivers,
        known.counts if entry.counts is None else entry.counts,
        entry.memory or known.memory,
        entry.default or (known.default if known.default in drivers else None),
        known.aliases if entry.aliases is None else entry.aliases,
    )

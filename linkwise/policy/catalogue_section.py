"""The `catalogue` section of a policy: GPU models that extend, change or replace those shipped."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from linkwise.manifest.place import Path
from linkwise.policy.models import SHIPPED, Catalogue, Model
from linkwise.policy.wire import LabelValue, Wire


class ModelEntry(Wire):
    """A GPU model. Omitted fields keep the shipped value, if there is one."""

    memory: Annotated[int, Field(gt=0)] | None = None
    """Of one GPU [GiB]."""
    counts: tuple[Annotated[int, Field(gt=0)], ...] | None = None
    drivers: tuple[LabelValue, ...] | None = None
    default: LabelValue | None = None
    aliases: tuple[LabelValue, ...] | None = None


class CatalogueSection(Wire):
    """GPU models that are added to the shipped catalogue, or change it."""

    replace: bool = False
    """Use only these models, none of those shipped."""
    models: dict[LabelValue, ModelEntry] = Field(default_factory=dict)


def catalogue_of(section: CatalogueSection) -> Catalogue:
    """Return the catalogue that a policy defines."""
    base = _base(section)
    models = {model.name: model for model in base.models}
    for name, entry in section.models.items():
        models[name] = _changed(base.find(name) or Model(name), entry)
    return Catalogue(tuple(models.values()))


def slips(section: CatalogueSection) -> Iterator[tuple[Path, str, str]]:
    """Yield contradictions between models: path in `models`, message, fix."""
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

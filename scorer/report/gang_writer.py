"""Create and patch Gang objects, based on the newest version of each that is known."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from linkwise.cluster.gang import GangKey, Link
from linkwise.planning.gang.crd import Gang, GangStatus, gangs_of, name_of, object_key
from linkwise.planning.gang.crd_patch import (
    annotation_steps,
    new_gang,
    owners_of,
    plan_steps,
    status_steps,
)
from linkwise.planning.gang.crd_plan import GangPlan
from linkwise.planning.gang.unit import Unit
from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.runtime.kube.objects import Key, OwnerReference
from linkwise.runtime.kube.paths import path_below
from scorer.cache.informers import Informers
from scorer.fence import WRITE_TIMEOUT

_OUTDATED = frozenset({404, 409, 422})
"""Statuses of a write that was based on an older version of the Gang."""


class GangWriter:
    """Writes the Gangs of one term of the Lease."""

    def __init__(self, kube: Kube, informers: Informers) -> None:
        """Write nothing yet."""
        self._kube, self._informers = kube, informers
        self._written: dict[Key, Gang] = {}
        """Gangs as the API server returned them: newer than those of the watch."""
        self._statuses: dict[GangKey, GangStatus] = {}
        """The last status that was written, whichever of its fields the API server has kept."""

    def find(self, key: GangKey) -> Gang | None:
        """Return the newest known version of a Gang; None: there is no Gang."""
        return self._written.get(object_key(key)) or self._informers.gang(key)

    def last_status(self, gang: Gang, key: GangKey) -> GangStatus:
        """Return the status that was written last. An older CRD may not keep all its fields."""
        return self._statuses.get(key, gang.status)

    async def write_plan(self, unit: Unit, plan: GangPlan) -> None:
        """Write a plan into its Gang, which is created if there is none.

        Raises:
            KubeError: It could not be written.
        """
        await self._on_newest(unit.key, lambda: self._write_plan(unit, plan))

    async def shrink_plan(self, gang: Gang, plan: GangPlan, size: int | None) -> None:
        """Write a plan as its members are now, unless the Gang has changed.

        Raises:
            KubeError: It could not be written.
        """
        await self._patch_plan(gang, plan, size=size, link=gang.spec.link)

    async def annotate(self, key: GangKey, name: str, value: str) -> None:
        """Set an annotation of a Gang.

        A second attempt is made only if it still has the value of before: another one may be that
        of a newer leader.

        Raises:
            KubeError: It could not be written.
        """
        gang = self.find(key)
        before = gang.metadata.annotations.get(name) if gang else None
        await self._on_newest(
            key,
            lambda: self._annotate(key, name, value),
            lambda gang: gang is not None and gang.metadata.annotations.get(name) == before,
        )

    async def _annotate(self, key: GangKey, name: str, value: str) -> None:
        gang = self.find(key)
        if gang is None:
            raise ApiError(404, "NotFound", "there is no Gang")
        steps, params = annotation_steps(gang, name, value), WRITE_TIMEOUT
        self._keep(await self._kube.patch(gang.path, steps, Gang, kind="json", params=params))

    async def write_status(self, gang: Gang, key: GangKey, status: GangStatus) -> None:
        """Write the status of a Gang, where it differs from the last one.

        Raises:
            KubeError: It could not be written.
        """
        if status != self.last_status(gang, key):
            steps = status_steps(gang, status)
            self._keep(
                await self._kube.patch(path_below(gang.path, "status"), steps, Gang, kind="json")
            )
            self._statuses[key] = status

    async def create(
        self, unit: Unit, plan: GangPlan | None = None, params: Mapping[str, str] | None = None
    ) -> Gang:
        """Create the Gang of a unit.

        Raises:
            KubeError: It could not be created.
        """
        owners = _owners(unit)
        gang = new_gang(unit.key, owners, size=unit.needed, link=unit.link, plan=plan)
        path = gangs_of(unit.key.namespace)
        return self._keep(await self._kube.create(path, gang, Gang, params=params or {}))

    async def _on_newest(
        self,
        key: GangKey,
        write: Callable[[], Awaitable[None]],
        is_repeatable: Callable[[Gang | None], bool] = lambda _: True,
    ) -> None:
        """Write; once more on the newest version if the first write was based on an older one.

        Raises:
            KubeError: It could not be written.
        """
        try:
            await write()
        except ApiError as error:
            if error.status not in _OUTDATED:
                raise
            await self.refresh(key)
            if not is_repeatable(self.find(key)):
                raise
            await write()

    async def refresh(self, key: GangKey) -> None:
        """Read a Gang again.

        Raises:
            KubeError: It could not be read.
        """
        self._written.pop(object_key(key), None)
        path = path_below(gangs_of(key.namespace), name_of(key))
        if gang := await self._kube.find(path, Gang):
            self._keep(gang)

    def forget(self, key: GangKey) -> None:
        """Drop what is kept of a gang without pods."""
        self._written.pop(object_key(key), None)
        self._statuses.pop(key, None)

    async def _write_plan(self, unit: Unit, plan: GangPlan) -> None:
        gang = self.find(unit.key)
        if gang is None:
            await self.create(unit, plan, WRITE_TIMEOUT)
        elif gang.spec.plan is None or gang.spec.plan.id != plan.id:
            owners = _owners(unit) if unit.co_owners else ()
            await self._patch_plan(gang, plan, size=unit.needed, link=unit.link, owners=owners)

    async def _patch_plan(
        self,
        gang: Gang,
        plan: GangPlan,
        *,
        size: int | None,
        link: Link,
        owners: Sequence[OwnerReference] = (),
    ) -> None:
        steps = plan_steps(gang, plan, size=size, link=link, owners=owners)
        path, params = gang.path, WRITE_TIMEOUT
        self._keep(await self._kube.patch(path, steps, Gang, kind="json", params=params))

    def _keep(self, gang: Gang) -> Gang:
        self._written[gang.metadata.namespace, gang.metadata.name] = gang
        return gang


def _owners(unit: Unit) -> tuple[OwnerReference, ...]:
    """Return the owners of the Gang of a unit."""
    # While its size is not known, neither is it known which owners make one gang.
    co_owners = unit.co_owners if unit.needed else ()
    return owners_of(unit.owner, (*unit.waiting, *unit.settled), co_owners)

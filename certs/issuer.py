"""Mode `self`: issue CAs and leaves, and rotate them."""

from collections.abc import Callable, Hashable
from dataclasses import replace

import structlog

from certs.authorities import Authorities
from certs.authority import KeySource, renewal_time
from certs.ca_bundle import inject_ca_bundle
from certs.clock import skew_of, skew_problem
from certs.leaf import Server, renew, renewal_reason
from certs.outcome import Outcome
from certs.reporter import Reporter
from certs.rotation import (
    IssuancePolicy,
    Phase,
    is_in_effect,
    next_due,
    next_transition,
    phase_of,
    required_wait,
)
from certs.snapshot import Snapshot
from certs.status import fingerprint, state_of
from certs.store import Store
from certs.transition import Action, Transition
from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.process.clock import Clock

_log = structlog.get_logger()


class EffectTimer:
    """Measures for how long the same state has been in effect, by a monotonic clock.

    A monotonic clock does not count the time in which a machine was suspended, and no client sees
    a bundle in that time.
    """

    def __init__(self, monotonic: Clock) -> None:
        self._monotonic = monotonic
        self._state: Hashable = None
        self._since = 0.0

    def observe(self, state: Hashable, *, in_effect: bool) -> float:
        """Return for how long a state has been in effect, at each observation [s]."""
        now = self._monotonic()
        if not in_effect or state != self._state:
            self._state, self._since = (state if in_effect else None), now
        return now - self._since


class Issuer:
    """Brings Secrets and webhook configurations to their desired state."""

    def __init__(  # noqa: PLR0913 - each is one part of the outside world.
        self,
        kube: Kube,
        store: Store,
        reporter: Reporter,
        policy: IssuancePolicy,
        *,
        key_source: KeySource,
        clock: Clock,
        monotonic: Clock,
        on_transition: Callable[[Action], None] = lambda _action: None,
    ) -> None:
        """Prepare the issuer.

        Args:
            kube: Client of the API server.
            store: The Secrets and webhook configurations.
            reporter: Publishes what has happened.
            policy: Servers and durations.
            key_source: Source of keys and serial numbers.
            clock: The wall clock [s since 1970].
            monotonic: A monotonic clock [s].
            on_transition: Called after each change of the CAs.
        """
        self._kube, self._store, self._reporter = kube, store, reporter
        self._policy, self._key_source = policy, key_source
        self._clock, self._timer = clock, EffectTimer(monotonic)
        self._on_transition = on_transition
        self._wrong_since: str | None = None
        """When the clock was first seen to be wrong, by the API server's clock."""

    async def reconcile(self) -> Outcome | None:
        """Change the CAs if that is due, and return None; else write all that depends on them.

        Raises:
            KubeError: A read or a write failed; all other writes of the pass were tried.
        """
        snapshot = await self._store.read()
        now = self._clock()
        skew = skew_of(snapshot, now)
        if problem := skew_problem(skew):
            return await self._wait_for_clock(snapshot, now, skew, problem)
        self._wrong_since = None
        in_effect = is_in_effect(snapshot, self._policy, now)
        effective = self._timer.observe(_version(snapshot), in_effect=in_effect)
        transition = next_transition(snapshot, self._policy, now, effective, self._key_source)
        if transition:
            await self._store_transition(snapshot, transition)
            return None
        authorities = snapshot.authorities.value
        if authorities is None:
            raise AssertionError("missing CAs are always issued")
        await self._apply(snapshot, authorities, now)
        phase = phase_of(authorities, in_effect=in_effect)
        await self._report_phase(snapshot, authorities, phase)
        since = await self._reporter.publish(
            now, lambda since: state_of(snapshot, authorities, self._policy, phase, now, since)
        )
        pause = self._pause(snapshot, authorities, phase, now, effective)
        return Outcome(snapshot, _expiry(authorities), phase, since, pause, skew)

    async def _wait_for_clock(
        self, snapshot: Snapshot, now: float, skew: float | None, problem: str
    ) -> Outcome:
        """Restore bundles, which needs no clock; other replicas do the rest."""
        self._timer.observe(None, in_effect=False)
        self._wrong_since = self._wrong_since or str(snapshot.server_time)
        message = f"{problem}. Correct the clock of the node of this pod, or of the API server."
        change = self._wrong_since
        await self._reporter.record(snapshot.uid, "ClockSkew", message, change, is_warning=True)
        authorities = snapshot.authorities.value
        if authorities and (errors := await self._inject(snapshot, authorities)):
            raise errors[0]
        return Outcome(snapshot, _expiry(authorities), None, now, None, skew, problem)

    async def _store_transition(self, snapshot: Snapshot, transition: Transition) -> None:
        new = transition.authorities
        if not await self._store.write_authorities(snapshot.authorities, new):
            return
        action = transition.action
        _log.info("CAs changed", action=action.value, reason=transition.reason)
        self._on_transition(action)
        if action is Action.RETIRE and snapshot.authorities.value:
            change = fingerprint(snapshot.authorities.value.previous[-1])
            message = "The previous CA is no longer trusted."
            await self._reporter.record(snapshot.uid, action, message, change)
        if action is Action.ISSUE and new.current:
            change = fingerprint(new.current.certificate)
            message = f"A new CA signs at once: {transition.reason}."
            await self._reporter.record(snapshot.uid, action, message, change, is_warning=True)

    async def _apply(self, snapshot: Snapshot, authorities: Authorities, now: float) -> None:
        """Write what differs from the CAs: bundles first, since servers load leaves later."""
        errors = await self._inject(snapshot, authorities)
        for server in self._policy.servers:
            try:
                await self._write_leaf(snapshot, server, authorities, now)
            except KubeError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _inject(self, snapshot: Snapshot, authorities: Authorities) -> list[KubeError]:
        """Write each bundle that differs; return the errors."""
        errors = []
        for target, configuration in snapshot.configurations.items():
            try:
                await inject_ca_bundle(self._kube, target, configuration, authorities.bundle)
            except KubeError as error:
                errors.append(error)
        return errors

    async def _write_leaf(
        self, snapshot: Snapshot, server: Server, authorities: Authorities, now: float
    ) -> None:
        stored, duration = snapshot.leaves[server], self._policy.leaf_duration
        leaf = stored.value
        reason: str | None = stored.error
        if leaf is None and authorities.current is None:
            return
        if leaf:
            reason = renewal_reason(leaf, server, authorities, duration, now)
        if leaf and reason is None:
            if leaf.trusted != authorities.bundle:
                kept = replace(leaf, trusted=authorities.bundle)
                await self._store.write_leaf(server, stored, kept)
            return
        new = renew(leaf, server, authorities, duration, now, self._key_source)
        if await self._store.write_leaf(server, stored, new):
            _log.info("Certificate issued", server=server.name, reason=reason)

    async def _report_phase(
        self, snapshot: Snapshot, authorities: Authorities, phase: Phase
    ) -> None:
        """Record the Events of a rotation that is under way; those that exist are kept."""
        wait = f"{required_wait(snapshot, self._policy):g} s"
        if authorities.next:
            change = fingerprint(authorities.next.certificate)
            message = "A new CA is announced: it is added to every caBundle, and signs later."
            await self._reporter.record(snapshot.uid, Action.ANNOUNCE, message, change)
        elif authorities.current and authorities.previous:
            change = fingerprint(authorities.current.certificate)
            message = "The new CA signs: servers get new certificates."
            await self._reporter.record(snapshot.uid, Action.SWITCH, message, change)
        else:
            return
        if phase in {Phase.WAIT, Phase.RETIRE}:
            reason, message = _WAITS[phase]
            await self._reporter.record(snapshot.uid, reason, message.format(wait), change)

    def _pause(
        self,
        snapshot: Snapshot,
        authorities: Authorities,
        phase: Phase,
        now: float,
        effective: float,
    ) -> float | None:
        leaves = [stored.value for stored in snapshot.leaves.values() if stored.value]
        due = [next_due(authorities), *(renewal_time(leaf.certificate) for leaf in leaves)]
        pauses = [moment - now for moment in due]
        if phase in _WAITS:
            pauses.append(required_wait(snapshot, self._policy) - effective)
        return min((pause for pause in pauses if pause > 0), default=None)


_WAITS = {
    Phase.WAIT: ("CAWaiting", "Both CAs are in every caBundle; API servers get {} to see them."),
    Phase.RETIRE: ("CARetiring", "All certificates are new; servers get {} to load them."),
}


def _version(snapshot: Snapshot) -> Hashable:
    """Return what changes with the CAs and with any write of a `caBundle`."""
    configurations = snapshot.configurations.values()
    return (
        snapshot.authorities.version,
        *((each.metadata.uid, each.metadata.generation) for each in configurations),
    )


def _expiry(authorities: Authorities | None) -> float | None:
    """Return when the CA that signs expires [s since 1970]; None where there is none."""
    return authorities.current.expiry if authorities and authorities.current else None

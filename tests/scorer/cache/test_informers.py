from support.servers.informers_harness import node_in, watching
from support.waiting import until

from linkwise.cluster import keys
from linkwise.runtime.kube.client import Kube
from scorer.cache.informers import Informers


async def test_missing_names_the_resource_that_was_not_listed(cluster):
    async with Kube(cluster.url) as kube:
        informers = Informers(kube)

        assert informers.missing() == "pods were not listed yet: the list is under way"
        assert {age() for age in informers.ages().values()} == {None}


async def test_every_resource_is_listed_and_has_an_age(cluster):
    async with watching(cluster) as informers:
        ages = informers.ages()

        assert informers.missing() is None
        assert ages.keys() == {
            "pods",
            "nodes",
            "topologies",
            "policy",
            "jobs",
            "statefulsets",
            "gangs",
            "poddisruptionbudgets",
            "persistentvolumeclaims",
            "persistentvolumes",
            "storageclasses",
            "csinodes",
            "namespaces",
        }
        await until(lambda: all(age() < 30 for age in ages.values()))


async def test_nodes_and_pods_are_added_and_deleted(cluster):
    cluster.node()
    async with watching(cluster) as informers:
        assert node_in(informers).name == "gpu-0"
        informers.changed.clear()
        cluster.node("gpu-1")
        cluster.pod("alone")
        await until(lambda: node_in(informers, "gpu-1") and list(informers.state.groups))
        assert informers.changed.is_set()
        cluster.remove("/api/v1/nodes/gpu-0")
        cluster.delete("alone")
        await until(lambda: not node_in(informers) and not list(informers.state.groups))


async def test_an_invalid_policy_leaves_the_last_valid_one_in_use(cluster):
    cluster.node(pool="a")
    async with watching(cluster) as informers:
        assert informers.policy.policy.gangs.ageing_minutes == 10
        cluster.policy(
            "gangs: {ageingMinutes: 3, domains: [rack], nicBandwidth: 25}\n"
            "placement: {strategy: spread}\n"
            "machines:\n- {nodeLabels: {pool: a}, machine: dgx1-v100}\n"
        )
        await until(lambda: informers.policy.policy.gangs.ageing_minutes == 3)
        snapshot = informers.state.snapshot()
        assert (snapshot.preferences.domains, snapshot.preferences.placement) == (
            ("rack",),
            "spread",
        )
        assert snapshot.preferences.nic_bandwidth == 25
        assert node_in(informers).machine_known
        generation = informers.policy.generation

        cluster.policy("gangs: {ageingMinutes: no}\n")
        cluster.node("sign")
        await until(lambda: node_in(informers, "sign"))
        await until(
            lambda: (
                informers._policy.items[keys.POLICY_NAMESPACE, keys.POLICY_NAME].data
                == {keys.POLICY_KEY: "gangs: {ageingMinutes: no}\n"}
            )
        )
        assert informers.policy.policy.gangs.ageing_minutes == 3
        assert informers.policy.generation == generation
        assert node_in(informers).machine_known

        cluster.policy("gangs: {ageingMinutes: 4}\n")
        await until(lambda: informers.policy.policy.gangs.ageing_minutes == 4)
        assert not node_in(informers).machine_known


async def test_a_changed_policy_applies_to_nodes_that_exist(cluster):
    cluster.node("other", **{keys.NODE_PLACEMENT: "binpack"})
    cluster.node()
    async with watching(cluster) as informers:
        for strategy in ("spread", "binpack"):
            cluster.policy(f"placement: {{strategy: {strategy}}}\n")
            await until(lambda wanted=strategy: node_in(informers).placement == wanted)
            assert node_in(informers, "other").placement == "binpack"


async def test_a_deleted_policy_restores_the_defaults(cluster):
    cluster.policy("gangs: {ageingMinutes: 3}\n")
    async with watching(cluster) as informers:
        assert informers.policy.policy.gangs.ageing_minutes == 3
        path = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"
        cluster.remove(path)
        await until(lambda: informers.policy.policy.gangs.ageing_minutes == 10)


async def test_nodes_of_an_unknown_machine_in_the_policy_are_left_out(cluster):
    cluster.node("a", pool="a")
    cluster.node("b", pool="b")
    cluster.policy("machines:\n- {nodeLabels: {pool: a}, machine: no-such}\n")
    async with watching(cluster) as informers:
        assert (node_in(informers, "a"), node_in(informers, "b").name) == (None, "b")

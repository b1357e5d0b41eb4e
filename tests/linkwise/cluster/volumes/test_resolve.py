"""Requirements of a pod's volumes, followed through claims, volumes and classes."""

import pytest
from support.volumes import (
    a_storage_class,
    a_volume,
    a_volume_claim,
    one_of,
    volume_objects,
)

from linkwise.cluster import keys, volume_keys
from linkwise.cluster.volumes.pod_claims import NamedClaim
from linkwise.cluster.volumes.resolve import attachments, resolve
from linkwise.cluster.volumes.volume import Attachment

NODES = {
    "a": {keys.HOSTNAME: "a", volume_keys.ZONE: "z1", volume_keys.REGION: "r"},
    "b": {keys.HOSTNAME: "b", volume_keys.ZONE: "z2", volume_keys.REGION: "r"},
    "old": {keys.HOSTNAME: "old", volume_keys.ZONE_BEFORE: "z1"},
    "bare": {keys.HOSTNAME: "bare"},
}
DATA = NamedClaim("data", "")
EPHEMERAL = NamedClaim("train-scratch", "scratch")
MADE = a_storage_class("fast", "ebs")


def resolved(named=DATA, *, claims=(), volumes=(), classes=(), user=None):
    objects = volume_objects(claims, volumes, classes)
    return resolve("team", "uid-of-train", [named], objects, lambda _: user)


def nodes_of(found):
    """Return the nodes that satisfy all choices."""
    return {
        name
        for name, labels in NODES.items()
        if all(choice.matches(name, labels) for choice in found.choices)
    }


def ephemeral(**owner):
    owners = [{"kind": "Pod", "name": "train", "uid": "uid-of-train", "controller": True, **owner}]
    return a_volume_claim("train-scratch", "pv", metadata={"ownerReferences": owners})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param(
            {}, "PersistentVolumeClaim team/data, which does not exist", id="no such claim"
        ),
        pytest.param(
            {"named": EPHEMERAL},
            "PersistentVolumeClaim team/train-scratch, which kube-controller-manager has not made "
            "yet for volume 'scratch'",
            id="no claim yet of an ephemeral volume",
        ),
        pytest.param(
            {"named": EPHEMERAL, "claims": [ephemeral(uid="other")]},
            "PersistentVolumeClaim team/train-scratch, whose name volume 'scratch' needs, and "
            "which is not that of this pod",
            id="a claim of the name of an ephemeral volume",
        ),
        pytest.param(
            {"claims": [a_volume_claim(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})]},
            "PersistentVolumeClaim team/data, which is being deleted",
            id="a claim that ends",
        ),
        pytest.param(
            {"claims": [a_volume_claim(volume="pv", phase="Lost")]},
            "PersistentVolumeClaim team/data, which has lost its PersistentVolume pv",
            id="a lost volume",
        ),
        pytest.param(
            {"claims": [a_volume_claim(volume="pv")]},
            "PersistentVolume pv of PersistentVolumeClaim team/data, which does not exist",
            id="no such volume",
        ),
        pytest.param(
            {"claims": [a_volume_claim()]},
            "PersistentVolumeClaim team/data, which is not bound to a PersistentVolume yet",
            id="no class",
        ),
        pytest.param(
            {"claims": [a_volume_claim(storage_class="fast")]},
            "PersistentVolumeClaim team/data, which is not bound to a PersistentVolume yet: there "
            "is no StorageClass fast",
            id="no such class",
        ),
        pytest.param(
            {
                "claims": [a_volume_claim(storage_class="fast")],
                "classes": [a_storage_class("fast", "ebs", immediate=True)],
            },
            "PersistentVolumeClaim team/data, which is not bound to a PersistentVolume yet",
            id="a provisioner has not made it yet",
        ),
        pytest.param(
            {
                "claims": [a_volume_claim(storage_class="fast", volumeName="pv")],
                "classes": [MADE],
            },
            "PersistentVolumeClaim team/data, which is not bound to a PersistentVolume yet",
            id="a volume that was named in advance",
        ),
        pytest.param(
            {"claims": [a_volume_claim(storage_class="local")], "classes": [a_storage_class()]},
            "a free PersistentVolume of StorageClass local for PersistentVolumeClaim team/data",
            id="no free volume",
        ),
        pytest.param(
            {
                "claims": [a_volume_claim(volume="pv", accessModes=["ReadWriteOncePod"])],
                "volumes": [a_volume()],
                "user": "pod other",
            },
            "PersistentVolumeClaim team/data, which only one pod may use (ReadWriteOncePod), and "
            "pod other does",
            id="another pod has it",
        ),
    ],
)
def test_a_pod_waits_for_what_its_volumes_lack(given, reason):
    assert resolved(**given).waits == reason


@pytest.mark.parametrize(
    ("given", "nodes"),
    [
        pytest.param({"volumes": [a_volume()]}, {"a", "b", "old", "bare"}, id="any node"),
        pytest.param({"volumes": [a_volume(hosts=["b"])]}, {"b"}, id="node affinity"),
        pytest.param({"volumes": [a_volume(hosts=[])]}, set(), id="no value"),
        pytest.param(
            {"volumes": [a_volume(nodeAffinity={"required": {"nodeSelectorTerms": []}})]},
            set(),
            id="no term",
        ),
        pytest.param(
            {"volumes": [a_volume(labels={volume_keys.ZONE: "z1"})]},
            {"a", "bare"},
            id="label of a zone",
        ),
        pytest.param(
            {"volumes": [a_volume(labels={volume_keys.ZONE: "z1__z2"})]},
            {"a", "b", "bare"},
            id="label of two zones",
        ),
        pytest.param(
            {"volumes": [a_volume(labels={volume_keys.ZONE_BEFORE: "z1"})]},
            {"a", "old", "bare"},
            id="label of a zone as it was",
        ),
        pytest.param(
            {"volumes": [a_volume(labels={volume_keys.ZONE: "z1__"})]},
            {"a", "b", "old", "bare"},
            id="a label that says nothing",
        ),
        pytest.param(
            {
                "claims": [a_volume_claim(storage_class="fast")],
                "classes": [a_storage_class("fast", "ebs", zones=["z2"])],
            },
            {"b"},
            id="allowed topologies",
        ),
        pytest.param(
            {"claims": [a_volume_claim(storage_class="fast")], "classes": [MADE]},
            {"a", "b", "old", "bare"},
            id="a volume is made for any node",
        ),
        pytest.param(
            {
                "claims": [
                    a_volume_claim(
                        storage_class="fast",
                        metadata={"annotations": {volume_keys.SELECTED_NODE: "old"}},
                    )
                ],
                "classes": [MADE],
            },
            {"old"},
            id="a volume is being made for a node",
        ),
    ],
)
def test_volumes_choose_the_nodes_from_which_they_can_be_used(given, nodes):
    found = resolved(**{"claims": [a_volume_claim(volume="pv")], **given})
    assert found.waits is None
    assert nodes_of(found) == nodes


def test_labels_of_zones_do_not_count_for_ephemeral_volumes():
    zoned = a_volume(labels={volume_keys.ZONE: "z1"})
    found = resolved(EPHEMERAL, claims=[ephemeral()], volumes=[zoned])
    assert found.waits is None
    assert nodes_of(found) == set(NODES)


def test_a_volume_that_names_too_many_nodes_is_waited_for():
    many = a_volume(hosts=[f"node-{i:060}" for i in range(400)])
    found = resolved(claims=[a_volume_claim(volume="pv")], volumes=[many])
    assert found.waits == (
        "PersistentVolume pv, which names more nodes than are compared: give these nodes a label "
        "in common"
    )


LOCAL = {"claims": [a_volume_claim(storage_class="local")], "classes": [a_storage_class()]}


def local(name="pv", **fields):
    return a_volume(name, **{"storage_class": "local", "hosts": ["a"], **fields})


@pytest.mark.parametrize(
    ("volume", "claim", "count"),
    [
        pytest.param({}, {}, 1, id="fits"),
        pytest.param({"size": "1G"}, {}, 0, id="too small"),
        pytest.param({"size": "1Ti"}, {}, 1, id="larger"),
        pytest.param({"storage_class": "other"}, {}, 0, id="another class"),
        pytest.param({"phase": "Released"}, {}, 0, id="released"),
        pytest.param({"phase": "Pending"}, {}, 0, id="pending"),
        pytest.param({"volumeMode": "Block"}, {}, 0, id="a block device"),
        pytest.param({"volumeMode": "Block"}, {"volumeMode": "Block"}, 1, id="as asked"),
        pytest.param({}, {"accessModes": ["ReadWriteMany"]}, 0, id="access mode"),
        pytest.param({}, {"volumeAttributesClassName": "gold"}, 0, id="attributes"),
        pytest.param(
            {"labels": {"disk": "nvme"}},
            {"selector": {"matchLabels": {"disk": "nvme"}}},
            1,
            id="selected",
        ),
        pytest.param({}, {"selector": {"matchLabels": {"disk": "nvme"}}}, 0, id="not selected"),
        pytest.param({}, {"selector": {}}, 1, id="empty selector"),
        pytest.param(
            {"claimRef": {"namespace": "team", "name": "data"}},
            {"accessModes": ["ReadWriteMany"]},
            1,
            id="for this claim",
        ),
        pytest.param(
            {"claimRef": {"namespace": "team", "name": "data", "uid": "before"}},
            {},
            0,
            id="for an earlier claim",
        ),
        pytest.param(
            {"claimRef": {"namespace": "other", "name": "data"}}, {}, 0, id="for another claim"
        ),
    ],
)
def test_an_unbound_claim_may_bind_free_volumes_that_suit_it(volume, claim, count):
    found = resolved(
        claims=[a_volume_claim(storage_class="local", **claim)],
        classes=[a_storage_class()],
        volumes=[local(**volume)],
    )
    assert sum(one.candidates.total for one in found.bindings) == count
    assert (found.waits is None) == bool(count)


def test_a_volume_that_is_meant_for_a_claim_is_its_only_one():
    meant = local("meant", hosts=["b"], claimRef={"namespace": "team", "name": "data"})
    found = resolved(**LOCAL, volumes=[meant, local()])
    (binding,) = found.bindings
    assert binding.candidates.by_label == {keys.HOSTNAME: {"b": 1}}


def test_a_volume_can_be_made_where_none_is_free():
    zoned = a_storage_class("local", "lvm", zones=["z2"])
    (binding,) = resolved(**{**LOCAL, "classes": [zoned]}, volumes=[local()]).bindings
    assert binding.provision is not None
    assert binding.provision.matches("b", NODES["b"])
    everywhere = a_storage_class("local", "lvm")
    assert not resolved(**{**LOCAL, "classes": [everywhere]}, volumes=[local()]).bindings


def test_free_volumes_are_counted_by_their_nodes():
    zone = local("zone", nodeAffinity={"required": one_of(volume_keys.ZONE, "z1")}, hosts=None)
    either = {"key": keys.HOSTNAME, "operator": "NotIn", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [either]}]}
    others = local("others", nodeAffinity={"required": terms}, hosts=None)
    volumes = [local(), local("pv-2", hosts=["a", "b"]), zone, others, local("any", hosts=None)]
    (binding,) = resolved(**LOCAL, volumes=volumes).bindings
    found = binding.candidates
    assert found.by_label == {keys.HOSTNAME: {"a": 2, "b": 1}, volume_keys.ZONE: {"z1": 1}}
    assert [count for _, count in found.others] == [1]
    assert found.anywhere == 1


def test_a_changed_volume_is_seen():
    objects = volume_objects(**LOCAL)
    (other,) = volume_objects(volumes=[local()])._volumes.items()
    assert resolve("team", "uid", [DATA], objects, lambda _: None).waits
    assert objects.update(dict([other]), {other[0]}) == {"local"}
    assert resolve("team", "uid", [DATA], objects, lambda _: None).bindings
    assert objects.update({}, {other[0]}) == {"local"}
    assert resolve("team", "uid", [DATA], objects, lambda _: None).waits


def test_volumes_of_drivers_are_attached():
    csi = a_volume(csi={"driver": "ebs", "volumeHandle": "vol-1"})
    claims = [a_volume_claim(volume="pv"), a_volume_claim("new", storage_class="fast")]
    objects = volume_objects(claims, [csi], [MADE])
    expected = {Attachment("ebs", "vol-1"), Attachment("ebs", "/team/new")}
    assert attachments("team", ["data", "new", "missing"], objects) == expected
    named = [DATA, NamedClaim("new", "")]
    assert resolve("team", "uid", named, objects, lambda _: None).attached == expected


def test_claims_that_differ_only_in_size_may_bind_the_same_candidates():
    claims = [
        a_volume_claim(f"data-{size}", storage_class="local", size=f"{size}Gi")
        for size in range(1, 200)
    ]
    volumes = [local(f"pv-{i}", size="100Gi" if i % 2 else "150Gi") for i in range(10)]
    objects = volume_objects(claims, volumes, [a_storage_class()])
    found = {
        one.candidates
        for size in range(1, 151)
        for one in resolve(
            "team", "uid", [NamedClaim(f"data-{size}", "")], objects, lambda _: None
        ).bindings
    }
    assert sorted(one.total for one in found) == [5, 10]


@pytest.mark.parametrize(("requirements", "count"), [(8, 1), (9, 0)])
def test_a_claim_with_a_long_selector_is_compared_with_no_volume(requirements, count):
    labels = {f"label-{i}": "x" for i in range(requirements)}
    found = resolved(
        claims=[a_volume_claim(storage_class="local", selector={"matchLabels": labels})],
        classes=[a_storage_class()],
        volumes=[local(labels=labels)],
    )
    assert sum(one.candidates.total for one in found.bindings) == count
    assert (found.waits is None) == bool(count)

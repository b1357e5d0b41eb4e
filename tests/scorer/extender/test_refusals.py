import msgspec
import pytest
from support.builders import a_pod

from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.placement.filtering.reasons import Reason
from scorer.extender.filter import FilterVerdict, request_of
from scorer.extender.refusals import Refusals

REFUSED = {"a": Reason.GPUS}


def refuse(refusals, name="pod", names=(), containers=1, **verdict):
    pod = msgspec.convert(a_pod(*[{keys.GPU_WHOLE: 1}] * containers, name=name), Pod)
    verdict = {"resolvable": REFUSED, "request": request_of(pod), **verdict}
    refusals.note(pod, FilterVerdict(names, **verdict))
    return "default", name


def test_a_pod_is_older_once_a_pass_came_after_its_refusal():
    refusals = Refusals()
    key = refuse(refusals, unresolvable={"b": Reason.UNKNOWN})

    assert refusals.older() == []
    [(found, refusal)] = refusals.older()
    assert (found, list(refusal.nodes)) == (key, ["a", "b"])
    # It was tried again meanwhile.
    refuse(refusals)
    assert refusals.older() == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"names": ["b"]}, id="it fits"),
        pytest.param({"request": None}, id="no change of a node helps it"),
    ],
)
def test_a_pod_is_forgotten_with_another_answer(answer):
    refusals = Refusals()
    refuse(refusals)
    refuse(refusals, **answer)
    refusals.older()
    assert refusals.older() == []


def test_a_pod_that_was_refused_anew_is_not_forgotten():
    refusals = Refusals()
    key = refuse(refusals)
    refusals.older()
    [(_, before)] = refusals.older()
    refuse(refusals)

    refusals.forget(key, before)

    refusals.older()
    [(_, now)] = refusals.older()
    refusals.forget(key, now)
    assert refusals.older() == []


def test_few_pods_are_kept_and_little_of_each():
    refusals = Refusals()
    for number in range(300):
        refuse(refusals, f"pod-{number}", containers=20)
    refusals.older()

    older = dict(refusals.older())

    assert len(older) == 256
    assert ("default", "pod-43") not in older
    assert all(len(refusal.request.containers) == 1 for refusal in older.values())

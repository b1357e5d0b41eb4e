"""Kubeflow's Notebook: a StatefulSet of one pod.

Source: kubeflow/kubeflow, notebook-controller: the StatefulSet has the notebook's name, and no pod
while the annotation `kubeflow-resource-stopped` is there.
"""

from linkwise.cluster.objects.kube_object import KubeObject
from linkwise.workloads.kind import Kind, Workload
from linkwise.workloads.kinds.stamps import ordinal
from linkwise.workloads.operator_keys import NOTEBOOK_NAME, NOTEBOOK_STOPPED
from linkwise.workloads.pod_set import Made, PodSet, Template


class _Spec(KubeObject, frozen=True):
    template: Template = Template()


class Notebook(Workload, frozen=True):
    """A Notebook."""

    spec: _Spec = _Spec()

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return its pod; none while it is stopped."""
        count = int(NOTEBOOK_STOPPED not in (self.metadata.annotations or {}))
        made = (Made("StatefulSet", "apps/v1", self.name),)
        stamp = ordinal(self.name, {NOTEBOOK_NAME: self.name})
        return (PodSet(("spec", "template"), self.spec.template.spec, count, stamp, made=made),)


NOTEBOOK = Kind("kubeflow.org", "Notebook", Notebook, sized=False)

"""Kinds of workloads: the objects whose controllers create pods. Pure.

`kinds` has one module per kind. The data types are in `kind`, `pod_set` and `state`:

* `Workload` is an object of some kind, decoded from the API server or from a file. It says what
  its kind says: its `pod_sets`, whether it is suspended, finished, or failed (`state`), whether it
  starts some pods after others, the least number of pods, and whether an eviction fails it.
* `PodSet` is the pods of one template: path of the template, number, role, the metadata that the
  controller sets on each pod, and the objects between the pods and the workload.
* `Kind` is the value that a module registers in `registry`: API group, kind, plural, versions, type
  of its objects, name in the policy (`gangs.kinds`), labels by which its operator names it on pods,
  and what its ordered start means (`OrderedStart`).

Everything else is derived from these: `members` sizes a gang, `paths` names an owner at the API
server, `owned_gang` recognizes the gang of a pod, `gang_owner` has findings, and `manifest` expands
files. `pod_group` reads PodGroups, which make no pods.

To add a kind, write its module, register it in `registry`, and add its rows to the tables of
`tests/linkwise/workloads`.
"""

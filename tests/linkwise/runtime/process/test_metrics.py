import time

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from support.waiting import until

from linkwise.runtime.http.observers import RequestMetrics
from linkwise.runtime.http.probes import metrics_handler
from linkwise.runtime.http.types import CompletedRequest, HttpRequest
from linkwise.runtime.process.metrics import Counters, Gauges, measure_loop_lag, new_registry


def families(registry):
    answer = metrics_handler(registry)(HttpRequest("/metrics", "", {}, b""))
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(answer.body.decode())}


def samples(registry, name):
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for sample in families(registry)[name].samples
    }


def test_requests_are_counted_by_route_and_status_and_timed_and_sized_by_route():
    registry = CollectorRegistry()
    observe = RequestMetrics(registry)

    for status, seconds in ((200, 0.002), (200, 0.3), (503, 0.0001)):
        observe(CompletedRequest("/mutate", status, seconds, 6600, {"pod": "ns/a"}))

    name = "linkwise_http_requests"
    total = samples(registry, name)
    assert total[f"{name}_total", "200", "/mutate"] == 2
    assert total[f"{name}_total", "503", "/mutate"] == 1
    name = "linkwise_http_request_duration_seconds"
    timed = samples(registry, name)
    assert timed[f"{name}_count", "/mutate"] == 3
    assert timed[f"{name}_bucket", "0.001", "/mutate"] == 1
    assert timed[f"{name}_bucket", "0.25", "/mutate"] == 2
    assert timed[f"{name}_bucket", "1.0", "/mutate"] == 3
    name = "linkwise_http_request_size_bytes"
    sized = samples(registry, name)
    assert (sized[f"{name}_sum", "/mutate"], sized[f"{name}_count", "/mutate"]) == (19_800, 3)


def test_nothing_that_a_request_says_becomes_a_label():
    registry = CollectorRegistry()
    observe = RequestMetrics(registry)

    for number in range(100):
        observe(CompletedRequest("other", 404, 0.0, number, {"pod": f"ns/{number}"}))

    assert sum(len(family.samples) for family in families(registry).values()) < 30


def test_gauges_are_read_with_the_metrics_and_are_absent_without_a_value():
    registry = CollectorRegistry()
    ages = {"pods": 1.0, "nodes": None}
    Gauges(
        registry,
        "linkwise_watch_age_seconds",
        "Since anything was heard.",
        {name: lambda name=name: ages[name] for name in ages},
        label="resource",
    )
    Gauges(registry, "linkwise_http_connections", "Open.", {"": lambda: 3})

    name = "linkwise_watch_age_seconds"
    assert samples(registry, name) == {(name, "pods"): 1}
    ages["nodes"] = 7
    assert samples(registry, name) == {(name, "pods"): 1, (name, "nodes"): 7}
    assert samples(registry, "linkwise_http_connections") == {("linkwise_http_connections",): 3}


def test_registry_has_memory_and_garbage_collections():
    assert {"process_resident_memory_bytes", "python_gc_collections"} <= set(
        families(new_registry())
    )


async def test_lag_of_a_blocked_loop_is_nearly_the_duration_of_the_block():
    registry = CollectorRegistry()
    measure_loop_lag(registry)

    time.sleep(1.5)  # noqa: ASYNC251 - it blocks the loop.

    name = "linkwise_event_loop_lag_seconds"
    await until(lambda: samples(registry, name)[f"{name}_sum",] > 1)
    lag = samples(registry, name)
    assert lag[f"{name}_bucket", "1.0"] < lag[f"{name}_count",]


def test_counters_are_read_with_the_metrics_and_their_samples_end_with_total():
    registry = CollectorRegistry()
    Counters(registry, "linkwise_dropped", "How many.", {"full": lambda: 2}, label="reason")

    assert families(registry)["linkwise_dropped"].type == "counter"
    assert samples(registry, "linkwise_dropped") == {("linkwise_dropped_total", "full"): 2}

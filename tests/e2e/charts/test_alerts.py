"""Each alert fires in its situation and in no other, by promtool on the rendered rules."""

import subprocess

import pytest
import yaml
from controlplane.chart import rendered
from controlplane.chart_programs import promtool
from controlplane.required import required

STEPS = 180
"""Of a minute each."""
NOW = 150
"""The alerts are evaluated at this step."""
DAY = 86_400
LATENCY = "apiserver_admission_webhook_admission_duration_seconds_bucket"
OF_PODS = 'name="pods.linkwise.dev"'


def steady(value):
    return f"{value}x{STEPS}"


def growing(per_minute):
    return f"0+{per_minute}x{STEPS}"


RECENT = f"_x{NOW - 3} 1x{STEPS - NOW}"
"""A counter whose labels appear with its first event, three minutes ago."""
FAILED_OPEN = f'apiserver_admission_webhook_fail_open_count{{{OF_PODS},instance="api"}}'
START = 'process_start_time_seconds{instance="api"}'
HEALTHY = {
    START: steady(1),
    'linkwise_policy_age_seconds{instance="webhook"}': growing(60),
    'process_resident_memory_bytes{instance="webhook"}': steady(100e6),
    'process_resident_memory_bytes{instance="scorer"}': steady(700e6),
    'process_resident_memory_bytes{instance="other"}': steady(900e6),
    'linkwise_policy_refused{config_map="linkwise"}': steady(0),
    'linkwise_policy_generation{digest="a",instance="1"}': steady(1),
    'linkwise_policy_generation{digest="a",instance="2"}': steady(3),
    'linkwise_watch_age_seconds{resource="pods"}': steady(80),
    "linkwise_certificate_expiry_timestamp_seconds": steady(30 * DAY),
    'linkwise_certs_expiry_timestamp_seconds{certificate="ca"}': steady(365 * DAY),
    'linkwise_certs_expiry_timestamp_seconds{certificate="webhook"}': steady(30 * DAY),
    'linkwise_certs_phase{phase="stable"}': steady(1),
    'linkwise_certs_phase{phase="announce"}': steady(0),
    'linkwise_certs_trusted{registration="mutatingwebhookconfigurations"}': steady(1),
    'linkwise_certs_clock_skew_seconds{instance="1"}': steady(-1),
    'linkwise_certs_clock_skew_seconds{instance="2"}': steady(300),
    'linkwise_leader{instance="scorer"}': steady(1),
    'linkwise_leader{instance="standby"}': steady(0),
    "linkwise_unaccounted_nodes": steady(0),
    'linkwise_gangs{phase="Committing"}': steady(0),
    "linkwise_partial_gangs": steady(0),
    "linkwise_faulty_gangs": steady(0),
    'linkwise_http_requests_total{path="/mutate",code="200"}': growing(100),
    f'{LATENCY}{{{OF_PODS},le="0.1"}}': growing(100),
    f'{LATENCY}{{{OF_PODS},le="1"}}': growing(100),
    f'{LATENCY}{{{OF_PODS},le="+Inf"}}': growing(100),
}
ABSENT = None
SITUATIONS = {
    "LinkwiseWebhookAbsent": [({'linkwise_policy_age_seconds{instance="webhook"}': ABSENT}, {})],
    "LinkwiseWebhookFailedOpen": [
        ({FAILED_OPEN: growing(1)}, {}),
        ({FAILED_OPEN: RECENT}, {}),
    ],
    "LinkwiseAdmissionSlow": [({f'{LATENCY}{{{OF_PODS},le="0.1"}}': growing(90)}, {})],
    "LinkwiseRequestFailed": [
        ({'linkwise_http_requests_total{path="/mutate",code="503"}': growing(1)}, {}),
        ({'linkwise_http_requests_total{path="/mutate",code="500"}': RECENT}, {}),
    ],
    "LinkwisePolicyRefused": [
        (
            {'linkwise_policy_refused{config_map="linkwise"}': steady(1)},
            {"config_map": "linkwise"},
        )
    ],
    "LinkwisePolicyDivergence": [
        ({'linkwise_policy_generation{digest="b",instance="2"}': steady(1)}, {})
    ],
    "LinkwiseWatchStale": [
        ({'linkwise_watch_age_seconds{resource="pods"}': steady(200)}, {"resource": "pods"})
    ],
    "LinkwiseCertificateExpiring": [
        ({"linkwise_certificate_expiry_timestamp_seconds": steady(6 * DAY)}, {})
    ],
    "LinkwiseCAExpiring": [
        ({'linkwise_certs_expiry_timestamp_seconds{certificate="ca"}': steady(60 * DAY)}, {})
    ],
    "LinkwiseCARotationStuck": [
        ({'linkwise_certs_phase{phase="announce"}': steady(1)}, {"phase": "announce"})
    ],
    "LinkwiseCANotTrusted": [
        (
            {'linkwise_certs_trusted{registration="mutatingwebhookconfigurations"}': steady(0)},
            {"registration": "mutatingwebhookconfigurations"},
        )
    ],
    "LinkwiseCertsAbsent": [
        ({'linkwise_certs_trusted{registration="mutatingwebhookconfigurations"}': ABSENT}, {})
    ],
    "LinkwiseCertsClockSkew": [
        ({'linkwise_certs_clock_skew_seconds{instance="1"}': steady(-301)}, {}),
        ({'linkwise_certs_clock_skew_seconds{instance="2"}': steady(400 * DAY)}, {}),
    ],
    "LinkwiseMemoryHigh": [
        (
            {'process_resident_memory_bytes{instance="webhook"}': steady(450e6)},
            {"instance": "webhook"},
        ),
        (
            {'process_resident_memory_bytes{instance="scorer"}': steady(900e6)},
            {"instance": "scorer"},
        ),
    ],
    "LinkwiseNoLeader": [
        ({'linkwise_leader{instance="scorer"}': steady(0)}, {}),
        ({'linkwise_leader{instance="standby"}': steady(1)}, {}),
        (
            {
                'linkwise_leader{instance="scorer"}': ABSENT,
                'linkwise_leader{instance="standby"}': ABSENT,
            },
            {},
        ),
    ],
    "LinkwiseNodeUnaccounted": [({"linkwise_unaccounted_nodes": steady(1)}, {})],
    "LinkwiseNodeUnfenced": [({"linkwise_unfenced_nodes": steady(1)}, {})],
    "LinkwiseSlicesMissing": [({"linkwise_incomplete_nodes": steady(1)}, {})],
    "LinkwiseClaimConflict": [({"linkwise_claim_conflicts_total": growing(1)}, {})],
    "LinkwiseClaimDiffers": [
        ({'linkwise_claim_problems{reason="ClaimDiffers"}': steady(1)}, {"reason": "ClaimDiffers"})
    ],
    "LinkwiseGangHalfBound": [({'linkwise_gangs{phase="Committing"}': steady(1)}, {})],
    "LinkwiseGangPartial": [({"linkwise_partial_gangs": steady(1)}, {})],
    "LinkwiseGangFaulty": [({"linkwise_faulty_gangs": steady(1)}, {})],
    "LinkwiseContainersRefused": [
        (
            {'linkwise_agent_refused_containers_total{instance="agent"}': growing(1)},
            {"instance": "agent"},
        )
    ],
    "LinkwiseProcessMismatch": [
        (
            {'linkwise_gpu_process_mismatches{node="gpu-0",gpu="0",uuid="a",model="b"}': steady(1)},
            {"node": "gpu-0"},
        )
    ],
    "LinkwiseFault": [
        ({'linkwise_faults_total{stage="planning"}': growing(1)}, {}),
        ({'linkwise_faults_total{stage="planning"}': RECENT}, {}),
    ],
}


@pytest.fixture(scope="module")
def groups(programs):
    (text,) = rendered(programs["helm"], "--set=monitoring.alerts=true")["alerts/rules.yaml"]
    return yaml.safe_load(text)["spec"]["groups"]


@pytest.fixture
def check(groups, tmp_path):
    program = str(required(promtool))
    rules = [rule for group in groups for rule in group["rules"]]

    def run(changes, firing, labels):
        series = {**HEALTHY, **changes}
        given = [{"series": name, "values": values} for name, values in series.items() if values]
        expected = [
            {
                "eval_time": f"{NOW}m",
                "alertname": rule["alert"],
                "exp_alerts": [
                    {
                        "exp_labels": rule["labels"] | labels,
                        "exp_annotations": rule["annotations"],
                    }
                ]
                if rule["alert"] == firing
                else [],
            }
            for rule in rules
        ]
        tests = [{"interval": "1m", "input_series": given, "alert_rule_test": expected}]
        (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
        document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
        (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
        argv = [program, "test", "rules", str(tmp_path / "tests.yaml")]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    return run


def test_no_alert_fires_in_a_healthy_cluster(check):
    ran = check({}, "", {})

    assert ran.returncode == 0, ran.stderr


def test_no_alert_fires_about_old_events_when_prometheus_starts(check):
    ran = check({FAILED_OPEN: RECENT, START: RECENT}, "", {})

    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("alert", "changes", "labels"),
    [(alert, *one) for alert, situations in SITUATIONS.items() for one in situations],
)
def test_alert_fires_in_its_situation_and_no_other_alert_does(check, alert, changes, labels):
    ran = check(changes, alert, labels)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_situation(groups):
    assert {rule["alert"] for group in groups for rule in group["rules"]} == SITUATIONS.keys()

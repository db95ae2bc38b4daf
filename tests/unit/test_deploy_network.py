"""The network of k8s/: who does not reach what its settings name, or reaches too much, is found."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from deploy.findings import title
from deploy.overlays import Overlay, build
from deploy.reach import check_reach, targets
from deploy.wiring import check_wiring

DNS_ONLY_TCP = [{"port": 53}]
PORTS = [{"port": 80, "endPort": 9000}]
METADATA = {"ipBlock": {"cidr": "169.254.169.254/32"}}
HALVES = [{"ipBlock": {"cidr": "0.0.0.0/1"}}, {"ipBlock": {"cidr": "128.0.0.0/1"}}]
V6 = [{"ipBlock": {"cidr": "::/0"}}]


@pytest.fixture(scope="module")
def overlays() -> Mapping[str, Overlay]:
    return {name: build(name) for name in ("cpu-demo", "gpu")}


def changed(overlay: Overlay, name: str, change: Mapping[str, Any]) -> Overlay:
    """The overlay with fields of one manifest changed, each by its path; None takes it away."""
    manifests: list[Any] = [copy.deepcopy(one) for one in overlay.manifests]
    for path, value in change.items():
        place: Any = next(one for one in manifests if title(one) == name)
        *way, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
        for key in way:
            place = place[key]
        place[last] = value
    return Overlay(overlay.name, manifests)


def said(overlay: Overlay) -> str:
    return "\n".join(str(one) for one in (*check_reach(overlay), *check_wiring(overlay)))


SERVERS, DNS, INTERNET = (f"NetworkPolicy/{name}" for name in ("servers", "dns", "internet"))
CPU, GPU = "cpu-demo", "gpu"


@pytest.mark.parametrize(
    ("name", "what", "change", "told"),
    [
        (CPU, SERVERS, {"spec.egress": []}, "lets dispatcher reach rabbitmq on 5672"),
        (GPU, SERVERS, {"spec.egress.0.ports": [{"port": 5432}]}, "lets worker reach host on 5671"),
        (
            CPU,
            SERVERS,
            {"spec.podSelector.matchExpressions.0.values": ["api", "fetcher"]},
            "lets worker reach postgres",
        ),
        (CPU, "NetworkPolicy/s3", {"spec.ingress": []}, "lets fetcher reach s3 on 8333"),
        (
            CPU,
            "NetworkPolicy/rabbitmq",
            {"spec.ingress.1.from": [{"podSelector": {}}]},
            "lets KEDA reach rabbitmq",
        ),
        (CPU, "Service/valkey", {"spec.ports.0.port": 6380}, "the Service valkey has no port 6379"),
        (CPU, "Service/postgres", {"metadata.name": "postgresql"}, "there is no Service postgres"),
        (
            CPU,
            "Secret/vqueue-keda",
            {"stringData.RABBITMQ_URL": "http://a:b@rabbitmq:15672/"},
            "rabbitmq.vqueue.svc",
        ),
        (
            CPU,
            "Deployment/vqueue-fetcher",
            {"spec.template.spec.containers.0.envFrom": []},
            "VQUEUE_DATABASE_URL: it is not given",
        ),
        (CPU, INTERNET, {"spec.egress": []}, "no NetworkPolicy lets it fetch"),
        (CPU, DNS, {"spec.egress.0.ports": DNS_ONLY_TCP}, "no NetworkPolicy lets it ask DNS"),
        (GPU, SERVERS, {"spec.egress.0.to": HALVES}, "worker can reach the internet"),
        (GPU, SERVERS, {"spec.egress.0.to.0": METADATA}, "reaches metadata services"),
        (GPU, SERVERS, {"spec.egress.0.to": []}, "worker can reach the internet"),
        (CPU, INTERNET, {"spec.egress.0.to": V6}, "not excepted: 2001::/23, 2001:db8::/32, 2002::/16"),
        (CPU, INTERNET, {"spec.egress.0.ports": PORTS}, "allow those of VQUEUE_FETCH_PORTS"),
        (
            CPU,
            "PodDisruptionBudget/vqueue-api",
            {"spec.maxUnavailable": "0%"},
            "no node with its pods can be emptied",
        ),
        (
            CPU,
            "PodDisruptionBudget/vqueue-api",
            {"spec.unhealthyPodEvictionPolicy": "IfHealthyBudget"},
            "keep a node",
        ),
    ],
)
def test_what_cuts_a_process_off_or_opens_too_much_is_found(
    overlays: Mapping[str, Overlay], name: str, what: str, change: Mapping[str, Any], told: str
) -> None:
    assert told in said(changed(overlays[name], what, change))


def test_urls_and_addresses_name_their_servers() -> None:
    given = {"A": "amqps://u:p@Broker//", "B": "rediss://:p@cache:7000/1", "C": "s3", "D": "cache.x.svc:6379"}
    assert [(one.variable, one.host, one.port) for one in targets(given)] == [
        ("A", "broker", 5671),
        ("B", "cache", 7000),
        ("D", "cache.x.svc", 6379),
    ]

"""Whether processes reach what their settings name through the network policies, and KEDA what it reads."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from deploy.findings import Finding, Tree
from deploy.overlays import Overlay, Pod, selects
from deploy.pods import contents, environment

# What each process of ours needs; where one is not set, vqueue looks on 127.0.0.1, which is the pod itself.
SERVERS = ("VQUEUE_DATABASE_URL", "VQUEUE_BROKER_URL", "VQUEUE_REDIS_URL")
OPTIONAL = ("VQUEUE_S3_ENDPOINT_URL",)  # without it S3 is that of AWS
PORTS = {
    "postgresql": 5432,
    "amqp": 5672,
    "amqps": 5671,
    "redis": 6379,
    "rediss": 6379,
    "http": 80,
    "https": 443,
}
TO_FILL_IN = "host"  # as the examples have it
KEDA, KEDA_NAMESPACE = "vqueue-keda", {"kubernetes.io/metadata.name": "keda"}
DNS = 53


@dataclass(frozen=True)
class Target:
    """A server as a variable names it. `host` is in small letters."""

    variable: str
    host: str
    port: int


def targets(variables: Mapping[str, str]) -> Iterator[Target]:
    """The servers that these URLs and HOST:PORT name."""
    for name, value in variables.items():
        url = urlsplit(value if "://" in value else f"//{value}")
        port = url.port or PORTS.get(url.scheme)
        if url.hostname and port:
            yield Target(name, url.hostname, port)


def check_reach(overlay: Overlay) -> Iterator[Finding]:
    """All rules of this kind for an overlay."""
    for pod in overlay.pods():
        for field, container in pod.containers:
            words: list[str] = container.get("args", [])
            if words[:1] == ["vqueue"]:
                yield from _process(overlay, pod, field, environment(overlay, container), words[1:2])
        if not _leaves(overlay, pod, [], DNS, "UDP"):
            yield Finding(
                overlay.file, pod.field, "no NetworkPolicy lets it ask DNS", "keep network/dns.yaml"
            )
        if pod.role == "fetcher" and not _is_outside(overlay, pod):
            yield Finding(
                overlay.file, pod.field, "no NetworkPolicy lets it fetch", "keep network/internet.yaml"
            )
    yield from _keda(overlay)


def _process(
    overlay: Overlay, pod: Pod, field: str, given: Mapping[str, str], command: list[str]
) -> Iterator[Finding]:
    needed = SERVERS[:1] if command == ["migrate"] else (*SERVERS, *OPTIONAL)
    for name in needed:
        if name in given:
            for target in targets({name: given[name]}):
                yield from _reached(overlay, pod, f"{field}.env.{name}", target)
        elif name in SERVERS:
            yield Finding(
                overlay.file, f"{field}.env.{name}", "it is not given", "envFrom the Secret that has it"
            )


def _reached(overlay: Overlay, pod: Pod, field: str, target: Target) -> Iterator[Finding]:
    if target.host not in overlay.names("Service"):
        if "." not in target.host and target.host != TO_FILL_IN:
            yield Finding(overlay.file, field, f"there is no Service {target.host}", "correct the URL")
        elif not _leaves(overlay, pod, [], target.port):
            yield _shut(overlay, field, pod.role, target)
        return
    servers, port = _behind(overlay, target)
    if port is None:
        yield Finding(
            overlay.file, field, f"the Service {target.host} has no port {target.port}", "correct it"
        )
    elif not _leaves(overlay, pod, servers, port) or not _enters(overlay, servers, port, pod):
        yield _shut(overlay, field, pod.role, target)


def _shut(overlay: Overlay, field: str, who: str, target: Target) -> Finding:
    problem = f"no NetworkPolicy lets {who} reach {target.host} on {target.port}"
    return Finding(overlay.file, field, problem, "see k8s/base/network/servers.yaml and the server's own")


def _behind(overlay: Overlay, target: Target) -> tuple[list[Pod], int | None]:
    """The pods of a Service, and which of their ports its port is."""
    (service,) = (one for one in overlay.of_kind("Service") if one["metadata"]["name"] == target.host)
    pods = [
        pod for pod in overlay.pods() if selects({"matchLabels": service["spec"]["selector"]}, pod.labels)
    ]
    for port in service["spec"]["ports"]:
        if port["port"] == target.port:
            return pods, _number(pods, port["targetPort"])
    return pods, None


def _number(pods: list[Pod], port: str | int) -> int | None:
    ports = [one for pod in pods for _, container in pod.containers for one in container.get("ports", [])]
    return next(
        (one["containerPort"] for one in ports if port in (one["containerPort"], one.get("name"))), None
    )


def _leaves(overlay: Overlay, pod: Pod, servers: list[Pod], port: int, protocol: str = "TCP") -> bool:
    """Whether the pod may call these servers; where there are none, some address outside."""
    return any(
        _has_port(rule, servers, port, protocol) and _names(rule.get("to"), servers)
        for rule in _egress(overlay, pod)
    )


def _is_outside(overlay: Overlay, pod: Pod) -> bool:
    peers = [peer for rule in _egress(overlay, pod) for peer in rule.get("to", [])]
    return any(peer.get("ipBlock", {}).get("cidr") == "0.0.0.0/0" for peer in peers)


def _egress(overlay: Overlay, pod: Pod) -> list[Tree]:
    return [
        rule
        for policy in overlay.of_kind("NetworkPolicy")
        if selects(policy["spec"]["podSelector"], pod.labels)
        for rule in policy["spec"].get("egress", [])
    ]


def _names(peers: list[Tree] | None, servers: list[Pod]) -> bool:
    if not peers:
        return True
    if not servers:
        return any("ipBlock" in peer or "namespaceSelector" in peer for peer in peers)
    ours = [
        peer["podSelector"] for peer in peers if "podSelector" in peer and "namespaceSelector" not in peer
    ]
    return any("ipBlock" in peer for peer in peers) or all(
        any(selects(selector, server.labels) for selector in ours) for server in servers
    )


def _enters(overlay: Overlay, servers: list[Pod], port: int, caller: Pod | None) -> bool:
    """Whether all these servers may be called: by a pod of ours, or by KEDA where it is none."""
    return all(
        any(
            _has_port(rule, [server], port, "TCP") and _is_let_in(rule.get("from"), caller)
            for policy in overlay.of_kind("NetworkPolicy")
            if selects(policy["spec"]["podSelector"], server.labels)
            for rule in policy["spec"].get("ingress", [])
        )
        for server in servers
    )


def _is_let_in(peers: list[Tree] | None, caller: Pod | None) -> bool:
    if not peers:
        return True
    if caller is None:
        return any(selects(peer.get("namespaceSelector"), KEDA_NAMESPACE) for peer in peers)
    ours = [
        peer["podSelector"] for peer in peers if "podSelector" in peer and "namespaceSelector" not in peer
    ]
    return any(selects(selector, caller.labels) for selector in ours)


def _has_port(rule: Tree, servers: list[Pod], port: int, protocol: str) -> bool:
    ports: list[Tree] = rule.get("ports", [])
    return not ports or any(
        one.get("protocol", "TCP") == protocol and port in (one["port"], _number(servers, one["port"]))
        for one in ports
    )


def _keda(overlay: Overlay) -> Iterator[Finding]:
    """KEDA runs in another namespace: full names, and the servers let it in."""
    asked = {
        one["key"]
        for login in overlay.of_kind("TriggerAuthentication")
        for one in login["spec"].get("secretTargetRef", [])
    }
    given = {name: value for name, value in contents(overlay, "Secret", KEDA).items() if name in asked}
    for target in targets({name: given[name] for name in given if name.endswith(("_URL", "_ADDRESS"))}):
        field = f"Secret/{KEDA}.stringData.{target.variable}"
        name, _, rest = target.host.partition(".")
        if not rest and name != TO_FILL_IN:
            yield Finding(
                overlay.file, field, f"in KEDA's namespace there is no {name}", f"{name}.vqueue.svc"
            )
        elif rest.startswith("vqueue.svc"):
            yield from _read_by_keda(overlay, field, Target(target.variable, name, target.port))


def _read_by_keda(overlay: Overlay, field: str, target: Target) -> Iterator[Finding]:
    if target.host not in overlay.names("Service"):
        yield Finding(overlay.file, field, f"there is no Service {target.host}", "correct the URL")
        return
    servers, port = _behind(overlay, target)
    if port is None or not _enters(overlay, servers, port, None):
        yield _shut(overlay, field, "KEDA", target)

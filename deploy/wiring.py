"""Rules between manifests: what one names, another must be."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network, IPv6Network, ip_network

from app.addresses import PRIVATE_V4, PRIVATE_V6
from app.config import Settings
from deploy.findings import Finding, Tree, title
from deploy.overlays import Overlay, Pod, selects
from deploy.pods import contents, process_settings

CLUSTER_WIDE = (
    "Namespace",
    "PriorityClass",
    "ClusterRole",
    "ClusterRoleBinding",
    "ClusterTriggerAuthentication",
)
# Who may reach the internet: see k8s/base/network/internet.yaml and k8s/components/weights/network.yaml.
WAY_OUT = frozenset({"fetcher", "dispatcher", "api", "weights"})
# What lies outside of 2000::/3 is private, link local or an IPv4 address.
PRIVATE = (*PRIVATE_V4, *PRIVATE_V6, *map(IPv6Network, ("::/3", "4000::/2", "8000::/1", "2002::/16")))
METADATA = tuple(
    map(ip_network, ("169.254.169.0/24", "169.254.170.0/24", "fd00:ec2::/32"))
)  # of nodes and of pods
# A wider block is no server's, but the internet.
LEAST_PREFIX = 8
MODEL = "vqueue.dev/model"


def check_wiring(overlay: Overlay) -> Iterator[Finding]:
    """All rules between the manifests of an overlay."""
    yield from _namespaces(overlay)
    for pod in overlay.pods():
        yield from _references(overlay, pod)
        yield from _own_pods(overlay, pod)
    yield from _budgets(overlay)
    yield from _services(overlay)
    yield from _policies(overlay)
    yield from _scalers(overlay)
    yield from _models(overlay)


def _namespaces(overlay: Overlay) -> Iterator[Finding]:
    for manifest in overlay.manifests:
        if manifest["kind"] not in CLUSTER_WIDE and manifest["metadata"].get("namespace") != "vqueue":
            yield Finding(
                overlay.file,
                f"{title(manifest)}.metadata.namespace",
                "it would land in whichever namespace is current",
                "set `namespace: vqueue` in its kustomization",
            )


def _references(overlay: Overlay, pod: Pod) -> Iterator[Finding]:
    """Names of other objects that a pod holds, and keys of Secrets."""
    spec = pod.spec
    wanted = [
        ("PriorityClass", "priorityClassName", spec.get("priorityClassName")),
        ("ServiceAccount", "serviceAccountName", spec.get("serviceAccountName")),
    ]
    for volume in spec.get("volumes", []):
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        wanted.append(("PersistentVolumeClaim", f"volumes[{volume['name']}]", claim))
    for _, container in pod.containers:
        for source in container.get("envFrom", []):
            wanted.append(("ConfigMap", "envFrom", source.get("configMapRef", {}).get("name")))
            wanted.append(("Secret", "envFrom", source.get("secretRef", {}).get("name")))
    for kind, field, name in wanted:
        if name and name not in overlay.names(kind):
            yield Finding(
                overlay.file, f"{pod.field}.{field}", f"there is no {kind} {name}", "correct it, or add one"
            )
    yield from _mounts(overlay.file, pod)
    yield from _keys(overlay, pod)


def _mounts(file: str, pod: Pod) -> Iterator[Finding]:
    claims = pod.owner["spec"].get("volumeClaimTemplates", [])
    volumes = {one["name"] for one in pod.spec.get("volumes", [])} | {
        one["metadata"]["name"] for one in claims
    }
    for field, container in pod.containers:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield Finding(
                    file, f"{field}.volumeMounts[{mount['name']}]", "the pod has no such volume", "add it"
                )


def _keys(overlay: Overlay, pod: Pod) -> Iterator[Finding]:
    for field, container in pod.containers:
        for variable in container.get("env", []):
            wanted = variable.get("valueFrom", {}).get("secretKeyRef")
            if wanted and wanted["key"] not in contents(overlay, "Secret", wanted["name"]):
                yield Finding(
                    overlay.file,
                    f"{field}.env[{variable['name']}]",
                    f"the Secret {wanted['name']} has no key {wanted['key']}",
                    "correct it, or add it where the Secret is made",
                )


def _own_pods(overlay: Overlay, pod: Pod) -> Iterator[Finding]:
    """Selectors that must mean the very pods that they stand beside."""
    selectors = [("spec.selector", pod.owner["spec"].get("selector"))] if pod.owner["kind"] != "Job" else []
    for rule in pod.spec.get("topologySpreadConstraints", []):
        selectors.append((f"topologySpreadConstraints[{rule['topologyKey']}]", rule.get("labelSelector")))
    for field, selector in selectors:
        if not selects(selector, pod.labels):
            yield Finding(
                overlay.file,
                f"{title(pod.owner)}.{field}",
                "it does not select its own pods",
                "repeat their labels",
            )


def _budgets(overlay: Overlay) -> Iterator[Finding]:
    pods = [pod for pod in overlay.pods() if pod.owner["kind"] == "Deployment"]
    budgets = overlay.of_kind("PodDisruptionBudget")
    for budget in budgets:
        meant = [pod for pod in pods if selects(budget["spec"].get("selector"), pod.labels)]
        if len(meant) != 1:
            yield Finding(
                overlay.file,
                f"{title(budget)}.spec.selector",
                f"it selects the pods of {len(meant)} Deployments",
                "select those of one",
            )
        yield from _drains(overlay.file, budget)
    for pod in pods:
        if not any(selects(budget["spec"].get("selector"), pod.labels) for budget in budgets):
            yield Finding(
                overlay.file, title(pod.owner), "no PodDisruptionBudget selects its pods", "add one beside it"
            )


def _drains(file: str, budget: Tree) -> Iterator[Finding]:
    """Nodes can be emptied, however few pods there are: a least number never lets the last one go."""
    spec, field = budget["spec"], f"{title(budget)}.spec"
    if str(spec.get("maxUnavailable", 0)).removesuffix("%") == "0":
        yield Finding(file, field, "no node with its pods can be emptied", "maxUnavailable: 1")
    if spec.get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
        yield Finding(
            file, f"{field}.unhealthyPodEvictionPolicy", "pods that do not start keep a node", "AlwaysAllow"
        )


def _services(overlay: Overlay) -> Iterator[Finding]:
    for service in overlay.of_kind("Service"):
        selector = {"matchLabels": service["spec"].get("selector", {})}
        meant = [pod for pod in overlay.pods() if selects(selector, pod.labels)]
        if not meant:
            yield Finding(overlay.file, f"{title(service)}.spec.selector", "it selects no pods", "correct it")
        for port in service["spec"]["ports"]:
            if any(port["targetPort"] not in _ports(pod) for pod in meant):
                yield Finding(
                    overlay.file,
                    f"{title(service)}.spec.ports[{port['port']}]",
                    f"the pods have no port {port['targetPort']}",
                    "name one of the container's ports",
                )


def _ports(pod: Pod) -> set[str | int]:
    """The ports of a pod's containers, by number and by name."""
    ports = [port for _, container in pod.containers for port in container.get("ports", [])]
    return {port["containerPort"] for port in ports} | {port["name"] for port in ports if "name" in port}


def _policies(overlay: Overlay) -> Iterator[Finding]:
    policies = overlay.of_kind("NetworkPolicy")
    denies = [one for one in policies if one["spec"]["podSelector"] == {} and not one["spec"].get("egress")]
    if not any({"Ingress", "Egress"} == set(one["spec"]["policyTypes"]) for one in denies):
        yield Finding(
            overlay.file,
            "NetworkPolicy",
            "nothing denies by default",
            "keep k8s/base/network/default-deny.yaml",
        )
    for policy in policies:
        selected = [pod for pod in overlay.pods() if selects(policy["spec"]["podSelector"], pod.labels)]
        if not selected:
            yield Finding(
                overlay.file, f"{title(policy)}.spec.podSelector", "it selects no pods", "repeat their labels"
            )
        for rule in policy["spec"].get("ingress", []):
            yield from _peers(overlay, policy, rule.get("from", []), rule, selected)
        for rule in policy["spec"].get("egress", []):
            yield from _peers(overlay, policy, rule.get("to", []), rule, None)
            yield from _way_out(overlay, policy, rule, selected)


def _peers(
    overlay: Overlay, policy: Tree, peers: list[Tree], rule: Tree, receivers: list[Pod] | None
) -> Iterator[Finding]:
    """Pods of this namespace that a rule names exist, and whoever is called has the port."""
    called = list(receivers or [])
    for peer in peers:
        if "podSelector" not in peer or "namespaceSelector" in peer:
            continue
        meant = [pod for pod in overlay.pods() if selects(peer["podSelector"], pod.labels)]
        called += meant if receivers is None else []
        if not meant:
            yield Finding(
                overlay.file,
                f"{title(policy)}.spec",
                f"no pods are {peer['podSelector']}",
                "repeat their labels",
            )
    if not called:
        return
    known = set[str | int]().union(*(_ports(pod) for pod in called))
    for port in rule.get("ports", []):
        if port["port"] not in known:
            yield Finding(
                overlay.file,
                f"{title(policy)}.spec",
                f"none of its pods has the port {port['port']}",
                "correct it",
            )


def _way_out(overlay: Overlay, policy: Tree, rule: Tree, selected: list[Pod]) -> Iterator[Finding]:
    """The internet is for a few, by the ports that are fetched from, and without private addresses."""
    blocks = [peer["ipBlock"] for peer in rule.get("to", []) if "ipBlock" in peer]
    if not rule.get("to"):
        blocks = [{"cidr": "0.0.0.0/0"}]
    field = f"{title(policy)}.spec.egress"
    for block in blocks:
        yield from _metadata(overlay.file, field, block)
    whole = [block for block in blocks if ip_network(block["cidr"]).prefixlen < LEAST_PREFIX]
    if not whole:
        return
    for role in sorted({pod.role for pod in selected} - WAY_OUT):
        yield Finding(
            overlay.file, field, f"{role} can reach the internet", "only the fetcher and webhooks may"
        )
    for block in whole:
        missing = _let_through(block, PRIVATE)
        if missing:
            yield Finding(
                overlay.file,
                field,
                f"private addresses are not excepted: {', '.join(sorted(missing))}",
                "add them",
            )
    ports = {port["port"] for port in rule.get("ports", [])}
    spans = any("endPort" in port for port in rule.get("ports", []))
    if not ports or spans or not ports <= set(Settings.model_fields["fetch_ports"].default):
        yield Finding(
            overlay.file, field, f"the ports are {sorted(ports)}", "allow those of VQUEUE_FETCH_PORTS"
        )


def _let_through(block: Tree, private: Iterable[IPv4Network | IPv6Network]) -> set[str]:
    """Which of these addresses a block reaches."""
    allowed = ip_network(block["cidr"])
    kept_out = [ip_network(one) for one in block.get("except", [])]
    return {
        str(one)
        for one in private
        if one.version == allowed.version
        and one.overlaps(allowed)
        and not any(one.subnet_of(out) for out in kept_out if out.version == one.version)  # pyright: ignore[reportArgumentType]
    }


def _metadata(file: str, field: str, block: Tree) -> Iterator[Finding]:
    """Whoever asks a cloud's metadata service has the rights of the node."""
    if reached := sorted(_let_through(block, METADATA)):
        problem = f"{block['cidr']} reaches metadata services"
        yield Finding(file, field, problem, f"except {', '.join(reached)}")


def _scalers(overlay: Overlay) -> Iterator[Finding]:
    for scaler in overlay.of_kind("HorizontalPodAutoscaler", "ScaledObject"):
        target = scaler["spec"]["scaleTargetRef"]
        kind = target.get("kind", "Deployment")
        meant = [one for one in overlay.of_kind(kind) if one["metadata"]["name"] == target["name"]]
        if not meant:
            yield Finding(
                overlay.file,
                f"{title(scaler)}.spec.scaleTargetRef",
                f"there is no {kind} {target['name']}",
                "name one of the overlay's",
            )
        for one in meant:
            if "replicas" in one["spec"]:
                yield Finding(
                    overlay.file,
                    f"{title(one)}.spec.replicas",
                    f"every apply undoes what {title(scaler)} has set",
                    "remove it",
                )


def _models(overlay: Overlay) -> Iterator[Finding]:
    """Each model that clients may ask for has workers, named and labelled after it."""
    served: set[str] = set()
    known: set[str] = set()
    for pod in overlay.pods():
        settings = process_settings(overlay, pod.containers[-1][1])
        if settings is None or pod.role not in ("api", "worker"):
            continue
        known |= set(settings.served_models)
        if pod.role == "worker":
            served |= set(settings.resident_models)
            if pod.labels.get(MODEL) not in settings.resident_models:
                yield Finding(
                    overlay.file,
                    f"{pod.field}.containers[worker].env.VQUEUE_WORKER_MODELS",
                    f"the pods' label {MODEL} is {pod.labels.get(MODEL)!r}",
                    "give both the model's name",
                )
    for model in sorted(known - served):
        yield Finding(
            overlay.file,
            "ConfigMap/vqueue.data.VQUEUE_MODELS",
            f"no worker serves {model}",
            "add its folder of k8s/models to the overlay's resources",
        )

"""Whether a manifest is one that its API takes: by Kubernetes' own schemas, and by those of the operators."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry, Resource

from deploy import keda
from deploy.findings import Finding, Tree, title
from deploy.overlays import ROOT

# The oldest release that docs/deploy.md promises, and the newest that there are schemas for.
RELEASES = ("1.32.0", "1.37.0")
SCHEMAS = ROOT / "deploy" / "schemas"


def check_kind(file: str, manifest: Tree) -> Iterator[Finding]:
    """What the API that a manifest is for would refuse."""
    kind = f"{manifest.get('apiVersion')}/{manifest.get('kind')}"
    if check := CHECKS.get(kind):
        yield from check(file, manifest)
        return
    for release in RELEASES:
        validator = _validator(kind, release)
        if validator is None:
            yield Finding(
                file,
                f"{title(manifest)}.apiVersion",
                f"Kubernetes {release} has no {kind}",
                "correct it, or give deploy/kinds.py a check for it",
            )
            return
        yield from _mistakes(file, manifest, validator, f"Kubernetes {release}")


def _mistakes(file: str, manifest: Tree, validator: Draft202012Validator, judge: str) -> Iterator[Finding]:
    for error in validator.iter_errors(manifest):
        yield Finding(file, _path(manifest, error), f"{error.message} ({judge})", "correct the field")


def _path(manifest: Tree, error: ValidationError) -> str:
    return ".".join([title(manifest), *(str(part) for part in error.absolute_path)])


@cache
def _definitions(release: str) -> Registry[Any]:
    contents = json.loads((_folder(release) / "_definitions.json").read_text())
    return Resource.from_contents(contents) @ Registry()


@cache
def _validator(kind: str, release: str) -> Draft202012Validator | None:
    group_version, _, name = kind.rpartition("/")
    group, _, version = group_version.rpartition("/")
    # networking.k8s.io/v1 NetworkPolicy is networkpolicy-networking-v1.json there.
    parts = [name.lower(), group.split(".")[0], version] if group else [name.lower(), version]
    schema = _folder(release) / f"{'-'.join(parts)}.json"
    if not schema.is_file():
        return None
    return Draft202012Validator(json.loads(schema.read_text()), registry=_definitions(release))


def _folder(release: str) -> Any:  # importlib's Traversable, whose name differs by Python
    return files("kubernetes_validate") / "kubernetes-json-schema" / f"v{release}-local-strict"


@cache
def _external_secret() -> Draft202012Validator:
    schema = json.loads((SCHEMAS / "externalsecret-v1.json").read_text())
    return Draft202012Validator(_closed(schema, top=True))


def _closed(schema: Any, *, top: bool = False) -> Any:
    """A schema that refuses fields which it does not name: the API server drops them in silence."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    tree: dict[str, Any] = {key: _closed(value) for key, value in schema.items()}
    if "properties" in tree and not top and "x-kubernetes-preserve-unknown-fields" not in tree:
        tree.setdefault("additionalProperties", False)
    return tree


def check_external_secret(file: str, manifest: Tree) -> Iterator[Finding]:
    """By the schema that the External Secrets Operator installs."""
    yield from _mistakes(file, manifest, _external_secret(), "External Secrets Operator")


# For kinds that operators bring.
CHECKS: dict[str, Callable[[str, Tree], Iterator[Finding]]] = {
    "external-secrets.io/v1/ExternalSecret": check_external_secret,
    **keda.CHECKS,
}

"""Schemas of the three custom resources that the chart may have: the Kubernetes schemas do not contain them.

Written from the references of the Spark operator (`sparkoperator.k8s.io/v1beta2`) and of the Prometheus operator
(`monitoring.coreos.com/v1`), with the fields that the chart uses and no others: an unknown field is an error. What is Kubernetes' own in them
(volumes, security contexts, tolerations) is validated by Kubernetes' definitions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
from referencing import Registry, Resource

_TEXT: Final = {"type": "string", "minLength": 1}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}


def _core(name: str) -> dict[str, str]:
    return {"$ref": f"_definitions.json#/$defs/io.k8s.api.core.v1.{name}"}


def _object(required: str, **properties: object) -> dict[str, object]:
    return {"type": "object", "required": required.split(), "additionalProperties": False, "properties": properties}


def _list(item: Mapping[str, object]) -> dict[str, object]:
    return {"type": "array", "items": item}


_METADATA: Final = {"$ref": "_definitions.json#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
_POD: Final[dict[str, object]] = {
    "cores": {"type": "integer", "minimum": 1},
    "memory": {"type": "string", "pattern": "^[0-9]+[kmgt]$"},
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "env": _list(_core("EnvVar")),
    "podSecurityContext": _core("PodSecurityContext"),
    "securityContext": _core("SecurityContext"),
    "nodeSelector": _TEXTS,
    "tolerations": _list(_core("Toleration")),
    "affinity": _core("Affinity"),
    "volumeMounts": _list(_core("VolumeMount")),
}
_PORT: Final = _object(
    "name containerPort protocol", name=_TEXT, containerPort={"type": "integer"}, protocol={"enum": ["TCP", "UDP", "SCTP"]}
)
_ENDPOINT: Final = _object(
    "port", port=_TEXT, path={"type": "string", "pattern": "^/"}, interval={"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}
)
_RULE: Final = _object(
    "alert expr",
    alert=_TEXT,
    expr=_TEXT,
    **{"for": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}},
    labels=_TEXTS,
    annotations=_TEXTS,
)
SCHEMAS: Final[Mapping[str, dict[str, object]]] = {
    "SparkApplication": _object(
        "apiVersion kind metadata spec",
        apiVersion={"enum": ["sparkoperator.k8s.io/v1beta2"]},
        kind={"enum": ["SparkApplication"]},
        metadata=_METADATA,
        spec=_object(
            "type mode sparkVersion image mainApplicationFile driver executor restartPolicy",
            type={"enum": ["Java", "Scala", "Python", "R"]},
            pythonVersion={"enum": ["2", "3"]},
            mode={"enum": ["cluster", "client", "in-cluster-client"]},
            sparkVersion=_TEXT,
            image=_TEXT,
            imagePullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            imagePullSecrets=_list(_TEXT),
            mainApplicationFile=_TEXT,
            arguments=_list(_TEXT),
            sparkConf=_TEXTS,
            restartPolicy=_object(
                "type",
                type={"enum": ["Never", "Always", "OnFailure"]},
                onFailureRetryInterval={"type": "integer", "minimum": 1},
                onSubmissionFailureRetryInterval={"type": "integer", "minimum": 1},
            ),
            volumes=_list(_core("Volume")),
            driver=_object("cores memory serviceAccount", **_POD, serviceAccount=_TEXT, ports=_list(_PORT)),
            executor=_object("cores memory instances", **_POD, instances={"type": "integer", "minimum": 1}),
        ),
    ),
    "ServiceMonitor": _object(
        "apiVersion kind metadata spec",
        apiVersion={"enum": ["monitoring.coreos.com/v1"]},
        kind={"enum": ["ServiceMonitor"]},
        metadata=_METADATA,
        spec=_object(
            "selector endpoints",
            selector={"$ref": "_definitions.json#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"},
            endpoints={**_list(_ENDPOINT), "minItems": 1},
        ),
    ),
    "PrometheusRule": _object(
        "apiVersion kind metadata spec",
        apiVersion={"enum": ["monitoring.coreos.com/v1"]},
        kind={"enum": ["PrometheusRule"]},
        metadata=_METADATA,
        spec=_object("groups", groups=_list(_object("name rules", name=_TEXT, rules=_list(_RULE)))),
    ),
}


def validate_custom(document: Mapping[str, Any], kubernetes: str) -> None:
    """Raise `jsonschema.ValidationError` unless the resource is as its operator wants it."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{kubernetes}-local-strict"
    definitions = json.loads((folder / "_definitions.json").read_text("utf-8"))
    registry = Registry().with_resource("_definitions.json", Resource.from_contents(definitions))
    jsonschema.Draft202012Validator(SCHEMAS[document["kind"]], registry=registry).validate(document)

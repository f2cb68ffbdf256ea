"""The Helm chart: rendered, linted, and validated by the schemas of Kubernetes; what a pod may do; the settings that it gets."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from devservers.prometheus_server import Prometheus
from schemas.settings import secret_keys, task_from_mapping
from tests.packaging.custom_resources import SCHEMAS, validate_custom
from tests.packaging.distributions import ROOT
from tests.packaging.helm import CHART, render, run_helm
from tidemark.process import config

TASK: Mapping[str, Any] = {"sources": [{"name": "shop"}], "kafka": {"bootstrap_servers": "kafka:9092"}, "format": {"registry": "http://r"}, "target": {}}
VALUES = ("small", "full", "operator")
OLDEST, NEWEST = "1.25.0", "1.37.0"


def tasks(*settings: Mapping[str, Any]) -> list[str]:
    """Arguments of helm that set tasks."""
    return ["--set-json", f"tasks.settings={json.dumps([{**TASK, **one} for one in settings])}"]


def test_the_chart_has_the_versions_of_the_project_and_of_its_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart, values = (yaml.safe_load((CHART / name).read_text("utf-8")) for name in ("Chart.yaml", "values.yaml"))
    assert chart["version"] == chart["appVersion"] == project["version"]
    assert f"pyspark=={values['merge']['operator']['sparkVersion']}" in project["optional-dependencies"]["spark"]


def test_the_chart_runs_the_images_of_the_dockerfile_as_their_user() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text("utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    for part in ("producer", "merge", "page", "tasks"):
        target = values[part]["image"]["repository"].removeprefix("tidemark-")
        assert f" AS {target}\n" in dockerfile
    assert f"--uid {values['podSecurityContext']['runAsUser']} " in dockerfile


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("values", VALUES)
def test_the_chart_is_rendered_linted_and_valid(values: str) -> None:
    linted = run_helm("lint", "--strict", str(CHART), "--values", str(CHART / "ci" / f"{values}-values.yaml"))
    assert linted.returncode == 0, linted.stdout + linted.stderr
    kinds = set()
    for kubernetes in (OLDEST, NEWEST):
        for document in render(values, kubernetes):
            kinds.add(document["kind"])
            if document["kind"] in SCHEMAS:
                validate_custom(document, kubernetes)
            else:
                kubernetes_validate.validate(document, kubernetes, strict=True)
            assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", document["metadata"]["name"])
    assert {"ConfigMap", "Deployment", "Service"} < kinds


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_validation_finds_what_kubernetes_and_the_operators_refuse() -> None:
    objects = {document["kind"]: document for document in render("operator", NEWEST)}
    deployment, spark = objects["Deployment"], objects["SparkApplication"]
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(deployment, NEWEST, strict=True)
    for wrong in ({"executors": {}}, {"volumes": [{"name": "tmp", "emptydir": {}}]}, {"mode": "local"}):
        with pytest.raises(jsonschema.ValidationError):
            validate_custom({**spark, "spec": {**spark["spec"], **wrong}}, NEWEST)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("values", VALUES)
def test_a_container_may_write_to_its_volumes_only_and_has_no_rights(values: str) -> None:
    found = 0
    for pod, container in containers(render(values, NEWEST)):
        found += 1
        security = container["securityContext"]
        assert security == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
        user = pod.get("securityContext") if "containers" in pod else pod["podSecurityContext"]
        assert (user["runAsNonRoot"], user["runAsUser"], user["seccompProfile"]) == (True, 10001, {"type": "RuntimeDefault"})
        paths = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        assert {path for path, is_read_only in paths.items() if not is_read_only} <= {"/tmp", "/lake", "/data"}  # noqa: S108 - in the pod
        assert paths["/etc/tidemark"]
        if "containers" in pod:
            assert pod["enableServiceLinks"] is False
            assert pod["automountServiceAccountToken"] is False
            probes = {"startupProbe", "livenessProbe", "readinessProbe"} if pod.get("restartPolicy") != "Never" else set()
            assert probes | {"resources"} <= container.keys()
    assert found == {"small": 3, "full": 6, "operator": 3}[values]


def containers(documents: list[dict[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Each container with the pod's own settings; driver and executor of a SparkApplication are both in one."""
    for document in documents:
        if document["kind"] in ("Deployment", "Job"):
            pod = document["spec"]["template"]["spec"]
            yield from ((pod, container) for container in pod["containers"])
        elif document["kind"] == "SparkApplication":
            yield from ((document["spec"][part], document["spec"][part]) for part in ("driver", "executor"))


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("values", VALUES)
def test_the_settings_are_accepted_and_match_the_ports_and_volumes(values: str, tmp_path: Path) -> None:
    objects = render(values, NEWEST)
    data, *tasks = (document["data"] for document in objects if document["kind"] == "ConfigMap")
    path = tmp_path / "tidemark.yaml"
    path.write_text(re.sub("/run/secrets/", f"{tmp_path}/", data["tidemark.yaml"]), "utf-8")
    for secret in ("tidemark-source/password", "tidemark-service/token"):
        (tmp_path / secret).parent.mkdir(exist_ok=True)
        (tmp_path / secret).write_text("secret\n", "utf-8")
    for task in tasks:
        loaded = task_from_mapping(yaml.safe_load(task["task.yaml"].replace("/run/secrets/", f"{tmp_path}/")))
        assert (loaded.service.host, loaded.service.port) == ("0.0.0.0", 8082)  # noqa: S104 - in the pod
    assert len(tasks) == (2 if values == "full" else 0)
    settings = config.load(path, {})
    assert (settings.service.port, settings.service.merge_port) == (8080, 8081)
    assert settings.spark.master == ("local[2]" if values != "operator" else "k8s://https://kubernetes.default.svc:443")
    mounted = {mount["mountPath"] for _, container in containers(objects) for mount in container["volumeMounts"]}
    assert any(settings.sinks[0].path.startswith(path) for path in mounted)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("values", VALUES)
def test_services_budgets_and_monitors_select_pods_that_there_are(values: str) -> None:
    objects = render(values, NEWEST)
    pods = [document["spec"]["template"]["metadata"]["labels"] for document in objects if document["kind"] == "Deployment"]
    pods += [document["spec"]["driver"]["labels"] for document in objects if document["kind"] == "SparkApplication"]
    for document in objects:
        if document["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
            selector = document["spec"].get("selector") or document["spec"]["podSelector"]
            wanted = selector.get("matchLabels", selector)
            of_both = document["kind"] == "NetworkPolicy" and "task" in wanted.values()
            assert sum(wanted.items() <= labels.items() for labels in pods) == 1 + of_both, document["metadata"]["name"]
    budgets = [document for document in objects if document["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == (0 if values == "small" else 1)
    (producer,) = (one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"].endswith("-producer"))
    probe = producer["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]
    assert probe["httpGet"]["path"] == ("/readyz" if values == "small" else "/livez")


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--set", "producers.replicas=3"], "producers"),
        (["--set-json", 'tasks.settings=[{"task": "a"}]'], "tasks/settings/0"),
        (tasks({"task": "a_b"}, {"task": "a-b"}), "tasks.settings.1.task: an earlier task is called a-b"),
        (tasks({"task": "a", "target": {"password": "s3cret"}}), "tasks.settings.0.target.password: "),
        (["--set", "merge.mode=yarn"], "merge/mode"),
        (["--set", "settings.name="], "settings/name"),
        (["--set", "merge.mode=operator"], "merge.mode: the executors of the operator run on several nodes"),
        (["--set", "merge.mode=operator,lake.accessModes={ReadWriteMany}"], "merge.operator.image: name an image"),
        (["--set", "producer.mountLake=true"], "producer.mountLake: the producers run on several nodes"),
        (["--set", "page.mountLake=always,lake.accessModes={ReadWriteOncePod}"], "page.mountLake: always: one pod only"),
        (["--set", "settings.spark.master=local[*]"], "settings.spark.master: local[*] takes every core"),
        (["--set", "settings.source.password=s3cret"], "settings.source.password: settings are stored in a ConfigMap"),
        (["--set", "settings.kafka.sasl.password=s3cret"], "settings.kafka.sasl.password: "),
        (["--set", r"settings.kafka.options.sasl\.password=s3cret"], "settings.kafka.options.sasl.password: "),
        (["--set", r"settings.spark.conf.spark\.hadoop\.fs\.s3a\.access\.key=s3cret"], "settings.spark.conf.spark.hadoop.fs.s3a.access.key: "),
        (["--set", "settings.sinks[0].password=s3cret"], "settings.sinks.0.password: "),
        (["--set", "settings.format.registry=http://u:s3cret@registry:8080"], "settings.format.registry: the address has a password in it"),
        (["--set", "settings.records.column_mask_hash_v2[0].salt=s3cret"], "settings.records.column_mask_hash_v2.0.salt: "),
    ],
)
def test_wrong_values_are_refused_with_their_name(more: list[str], reason: str) -> None:
    done = run_helm("template", "demo", str(CHART), "--kube-version", NEWEST, "--values", str(CHART / "ci" / "small-values.yaml"), *more)
    assert done.returncode != 0
    assert reason in done.stderr.replace(".", "/") or reason in done.stderr
    assert "s3cret" not in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_change_of_the_settings_starts_new_pods() -> None:
    def sums(*more: str) -> set[str]:
        documents = [document for document in render("full", NEWEST, *more) if document["kind"] == "Deployment"]
        ours = [document["spec"]["template"]["metadata"] for document in documents]
        return {one["annotations"]["checksum/settings"] for one in ours if one["labels"]["app.kubernetes.io/component"] != "task"}

    assert len(sums()) == 1
    assert sums() != sums("--set", "settings.kafka.bootstrap_servers=other:9092")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_values_of_the_documentation_are_rendered(tmp_path: Path) -> None:
    (values,) = re.findall("```yml\n(.*?)```", (ROOT / "docs" / "kubernetes.md").read_text("utf-8"), re.DOTALL)
    file = tmp_path / "values.yaml"
    file.write_text(values, "utf-8")
    done = run_helm("template", "shop", str(CHART), "--kube-version", NEWEST, "--values", str(file))
    assert done.returncode == 0, done.stderr
    names = {document["metadata"]["name"] for document in yaml.safe_load_all(done.stdout) if document["kind"] == "Deployment"}
    assert names == {"shop-tidemark-producer", "shop-tidemark-merge", "shop-tidemark-page"}


def test_the_chart_refuses_each_setting_that_is_a_secret() -> None:
    helpers = (CHART / "templates" / "_helpers.tpl").read_text("utf-8")
    (names,) = re.findall(r"has \$key \(list (.*?)\)", helpers)
    refused = set(re.findall('"(.*?)"', names))
    mappings = {"kafka.options", "spark.conf"}
    assert {path.rsplit(".", 1)[-1] for path in secret_keys() - mappings} == refused
    assert all(f'hasSuffix ".{path}."' in helpers for path in mappings)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_file_of_a_secret_and_harmless_options_are_accepted() -> None:
    options = {
        r"settings.kafka.options.ssl\.ca\.location": "/etc/tls/ca.pem",
        r"settings.kafka.options.ssl\.endpoint\.identification\.algorithm": "https",
        r"settings.spark.conf.spark\.sql\.shuffle\.partitions": "4",
        "settings.kafka.sasl.password_file": "/run/secrets/kafka/password",
    }
    assert render("small", NEWEST, *(text for item in options.items() for text in ("--set-string", "=".join(item))))


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_page_mounts_only_a_lake_that_its_node_can_have() -> None:
    def page(*more: str) -> dict[str, Any]:
        (pod,) = (
            document["spec"]["template"]["spec"]
            for document in render("small", NEWEST, *more)
            if document["kind"] == "Deployment" and document["metadata"]["name"].endswith("-page")
        )
        return dict(pod)

    def mounts(pod: dict[str, Any]) -> bool:
        return any(volume["name"] == "lake" for volume in pod["volumes"])

    assert not mounts(page())
    assert mounts(page("--set", "lake.accessModes={ReadWriteMany}"))
    beside = page("--set", "page.mountLake=always")
    (term,) = beside["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert mounts(beside)
    assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "merge"
    assert "affinity" not in page("--set", "page.mountLake=always,merge.enabled=false")


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_the_rules_of_a_release_are_valid_and_see_its_own_metrics_only(tmp_path: Path) -> None:
    (rules,) = (document for document in render("full", NEWEST, "--namespace", "ops") if document["kind"] == "PrometheusRule")
    written = yaml.safe_load((CHART / "alerts.yml").read_text("utf-8"))
    for rule, original in zip(rules["spec"]["groups"][0]["rules"], written["groups"][0]["rules"], strict=True):
        metrics = re.findall("tidemark_[a-z_]+", original["expr"])
        assert rule["expr"].count('{namespace="ops",job=~"cdc-(producer|merge|task-.+)",') == len(metrics)
        assert {**rule, "expr": ""} == {**original, "expr": ""}
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(rules["spec"]), "utf-8")
    promtool = Prometheus(tmp_path, tmp_path / "prometheus.yml").promtool
    done = subprocess.run([str(promtool), "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

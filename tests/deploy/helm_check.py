#!/usr/bin/env python3
"""Lints the chart, renders every example and validates the result against Kubernetes' schemas. No part of the test
run, since Helm is not in Debian:

    python3 -m venv /tmp/helm && /tmp/helm/bin/pip install helm-python-sdk kubernetes-validate pyyaml jsonschema
    /tmp/helm/bin/python tests/deploy/helm_check.py [--crds FOLDER]

FOLDER has the Prometheus operator's definitions of its resources (example/prometheus-operator-crd of its sources); without it
its two kinds are rendered and not validated.
"""
import argparse
import glob
import os
import sys

import jsonschema
import kubernetes_validate
import yaml
from helm_python import chart

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHART = os.path.join(SOURCE, "deploy", "helm")
KUBERNETES = "1.31"
# The Prometheus operator's.
OPERATOR_KINDS = {"ServiceMonitor", "PrometheusRule"}


def documents(values):
    with chart.Chart.load(CHART) as loaded:
        rendered = loaded.render(values=values, name="demo", namespace="ocr")
    return [document for path, text in rendered.items() if path.endswith(".yaml")
            for document in yaml.safe_load_all(text) if document]


def notes(values):
    with chart.Chart.load(CHART) as loaded:
        rendered = loaded.render(values=values, name="demo", namespace="ocr")
    return next(text for path, text in rendered.items() if path.endswith("NOTES.txt"))


def strict(schema):
    """A custom resource's schema that takes no fields beyond those it names."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # Patterns are Go's, not all of which Python reads.
    result = {key: strict(part) for key, part in schema.items() if not (key == "pattern" and isinstance(part, str))}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    return result


def operator_schemas(folder):
    """{kind: schema} of the custom resources defined in `folder`."""
    schemas = {}
    for path in glob.glob(os.path.join(folder, "*.yaml")):
        with open(path, encoding="utf-8") as file:
            definition = yaml.safe_load(file)["spec"]
        schema = strict(definition["versions"][0]["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}  # of Kubernetes itself
        schemas[definition["names"]["kind"]] = schema
    missing = OPERATOR_KINDS - schemas.keys()
    if missing:
        sys.exit(f"{folder} does not define {', '.join(sorted(missing))}")
    return schemas


def check(path, schemas):
    with open(path, encoding="utf-8") as file:
        made = documents(yaml.safe_load(file))
    for document in made:
        if document["kind"] not in OPERATOR_KINDS:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        elif schemas:
            jsonschema.validate(document, schemas[document["kind"]])
    by_kind = {document["kind"]: document for document in made}
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (by_kind["Deployment"]["spec"]["selector"]["matchLabels"], by_kind["Service"]["spec"]["selector"],
                     by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
                     by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]):
        assert selector.items() <= labels.items(), (path, selector)
    if "PrometheusRule" in by_kind:
        shipped = []
        for rules in sorted(glob.glob(os.path.join(SOURCE, "deploy", "prometheus", "rules", "*.yml"))):
            with open(rules, encoding="utf-8") as file:
                shipped += yaml.safe_load(file)["groups"]
        assert by_kind["PrometheusRule"]["spec"]["groups"] == shipped, "the chart's rules are not those of prometheus/"
    print(f"{os.path.basename(path)}: {', '.join(sorted(by_kind))}")


def check_shared_memory():
    """One volume in memory as /dev/shm of the encoder and the sidecar, and of no chart without it."""
    model = {"existingClaim": "model"}
    sidecar = {"enabled": True, "container": {"name": "llm", "image": "llm"}}
    for enabled in (False, True):
        made = documents({"model": model, "sidecar": sidecar, "sharedMemory": {"enabled": enabled}})
        pod = next(one for one in made if one["kind"] == "Deployment")["spec"]["template"]["spec"]
        mounted = [mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]
                   if mount["mountPath"] == "/dev/shm"]
        volumes = [volume for volume in pod["volumes"] if volume["name"] == "shared-memory"]
        asked = {"name": "DEEPENCODER_SHARED_MEMORY", "value": "true"} in pod["containers"][0]["env"]
        if enabled:
            assert mounted == ["shared-memory"] * 2 and asked and volumes[0]["emptyDir"]["medium"] == "Memory", (mounted, volumes)
        else:
            assert not mounted and not volumes and not asked, (mounted, volumes)


def check_network_policy_and_device():
    """A sidecar's own ports are open to clients, h2c is only said without TLS, a CUDA image wants its GPU."""
    model = {"existingClaim": "model"}
    sidecar = {"enabled": True, "container": {"name": "llm", "image": "llm", "ports": [{"name": "http", "containerPort": 8000}]}}
    made = {one["kind"]: one for one in documents({"model": model, "sidecar": sidecar})}
    ports = [port["port"] for port in made["NetworkPolicy"]["spec"]["ingress"][0]["ports"]]
    assert ports == ["grpc", 8000], ports
    environment = made["Deployment"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "DEEPENCODER_DEVICE", "value": "cuda"} in environment, environment
    assert made["Service"]["spec"]["ports"][0]["appProtocol"] == "kubernetes.io/h2c", made["Service"]
    made = {one["kind"]: one for one in documents({"model": model, "tls": {"secret": "tls"}, "image": {"target": "cpu"}})}
    assert "appProtocol" not in made["Service"]["spec"]["ports"][0], made["Service"]
    environment = made["Deployment"]["spec"]["template"]["spec"]["containers"][0].get("env") or []
    assert all(one["name"] != "DEEPENCODER_DEVICE" for one in environment), environment


def check_notes():
    """They name the port that clients reach: the pods' own unless the Service has an address."""
    for headless, port in ((True, 50051), (False, 443)):
        text = notes({"model": {"existingClaim": "model"}, "service": {"port": 443, "headless": headless}})
        assert f"dns:///demo.ocr.svc:{port}\n" in text, text


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--crds", help="folder of the Prometheus operator's definitions")
    options = parser.parse_args()
    schemas = operator_schemas(options.crds) if options.crds else {}
    messages = chart.lint(CHART, values={"model": {"existingClaim": "model"}})
    assert not messages["errors"], messages
    for path in sorted(glob.glob(os.path.join(CHART, "examples", "*.yaml"))):
        if os.path.basename(path) != "prometheus-adapter.yaml":  # values of another chart
            check(path, schemas)
    check_shared_memory()
    check_network_policy_and_device()
    check_notes()
    for wrong in ({}, {"image": {"target": "rocm"}, "model": {"existingClaim": "model"}},
                  {"sharedMemory": {"enabled": True}, "model": {"existingClaim": "model"}}):
        try:
            documents(wrong)
        except Exception as error:  # pylint: disable=broad-except
            print("refused:", str(error).splitlines()[0][:120])
        else:
            sys.exit(f"{wrong} should not render")


if __name__ == "__main__":
    main()

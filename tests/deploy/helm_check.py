#!/usr/bin/env python3
"""Lints the chart, renders every example and validates the result against Kubernetes' schemas. No part of the test
run, since Helm is not in Debian:

    python3 -m venv /tmp/helm && /tmp/helm/bin/pip install helm-python-sdk kubernetes-validate pyyaml
    /tmp/helm/bin/python tests/deploy/helm_check.py
"""
import glob
import os
import sys

import kubernetes_validate
import yaml
from helm_python import chart

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHART = os.path.join(SOURCE, "deploy", "helm")
KUBERNETES = "1.31"
# The Prometheus operator's, which has no schema here.
UNKNOWN_KINDS = {"ServiceMonitor", "PrometheusRule"}


def documents(values):
    with chart.Chart.load(CHART) as loaded:
        rendered = loaded.render(values=values, name="demo", namespace="ocr")
    return [document for path, text in rendered.items() if path.endswith(".yaml")
            for document in yaml.safe_load_all(text) if document]


def check(path):
    with open(path, encoding="utf-8") as file:
        made = documents(yaml.safe_load(file))
    for document in made:
        if document["kind"] not in UNKNOWN_KINDS:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
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


def main():
    messages = chart.lint(CHART, values={"model": {"existingClaim": "model"}})
    assert not messages["errors"], messages
    for path in sorted(glob.glob(os.path.join(CHART, "examples", "*.yaml"))):
        if os.path.basename(path) != "prometheus-adapter.yaml":  # values of another chart
            check(path)
    check_shared_memory()
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

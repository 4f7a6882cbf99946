"""Helm takes the chart for one, and what it makes of it is what Kubernetes understands: by default the manifest of `deploy`, and
with limits of one's own an argument, a file and where it comes from."""

import os
import pathlib
import subprocess
import tempfile
import tomllib

import kubernetes_validate
import yaml

DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"
VERSION = "1.33"
ALLOWED = ["BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"]


def main():
    helm("lint", "--strict", DEPLOY / "helm")
    chart = yaml.safe_load((DEPLOY / "helm/Chart.yaml").read_text())
    workspace = tomllib.loads((DEPLOY.parent / "Cargo.toml").read_text())["workspace"]["package"]
    assert chart["appVersion"] == chart["version"] == workspace["version"], chart
    by_default = rendered()
    assert by_default == [yaml.safe_load((DEPLOY / "kubernetes.yaml").read_text())], by_default
    rules = DEPLOY / "alerts.toml"
    with_rules = rendered("--set-file", f"rules={rules}", "--set", "options={--otlp,http://collector:4318}", "--set", "metricsPort=9999")
    told = next(one for one in with_rules if one["kind"] == "ConfigMap")
    assert told["data"] == {"rules.toml": rules.read_text()}, told
    pod = next(one for one in with_rules if one["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["args"][-4:] == ["--rules", "/etc/gpuwhy/rules.toml", "--otlp", "http://collector:4318"], container["args"]
    assert "0.0.0.0:9999" in container["args"] and container["ports"][0]["containerPort"] == 9999, container
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    sources = {volume["name"]: volume for volume in pod["volumes"]}
    assert mounted.keys() == sources.keys() and mounted["rules"] == "/etc/gpuwhy", (mounted, sources)
    assert sources["rules"]["configMap"]["name"] == told["metadata"]["name"], sources["rules"]
    print(f"  helm: {len(with_rules)} resources, valid for Kubernetes {VERSION}")


def rendered(*values):
    resources = list(yaml.safe_load_all(helm("template", "gpuwhy", DEPLOY / "helm", *values)))
    for resource in resources:
        kubernetes_validate.validate(resource, VERSION, strict=True)
        if resource["kind"] == "DaemonSet":
            secured = resource["spec"]["template"]["spec"]["containers"][0]["securityContext"]
            assert secured["capabilities"] == {"drop": ["ALL"], "add": ALLOWED} and not secured["privileged"], secured
    return resources


def helm(*words):
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run([os.environ["HELM"], *words], capture_output=True, text=True, env={**os.environ, "HOME": home})
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


if __name__ == "__main__":
    main()

"""The official Python client against a running server, as its users write it.

Every function named check_* is one check. Needs the package `kubernetes` and KUBECONFIG."""
import datetime
import os
import sys
import threading
import time
import traceback

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

NAMESPACE = "default"
GROUP, VERSION, PLURAL = "python.example.com", "v1", "boats"
PATIENCE_SECONDS = 240


def refused(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == code, (error.status, error.body)
        return error
    raise AssertionError("not refused with %d" % code)


def until(what, condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "%s did not come" % what
        time.sleep(0.05)


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


def check_core_objects():
    core = client.CoreV1Api()
    assert "default" in [one.metadata.name for one in core.list_namespace().items]
    made = core.create_namespaced_config_map(NAMESPACE, config_map("one", a="1"))
    assert made.metadata.uid and made.metadata.resource_version
    assert isinstance(made.metadata.creation_timestamp, datetime.datetime)
    refused(409, core.create_namespaced_config_map, NAMESPACE, config_map("one"))
    made.data["a"] = "2"
    replaced = core.replace_namespaced_config_map("one", NAMESPACE, made)
    assert replaced.data == {"a": "2"}
    made.data["a"] = "3"
    refused(409, core.replace_namespaced_config_map, "one", NAMESPACE, made)
    listed = core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=one")
    assert [one.metadata.name for one in listed.items] == ["one"]
    core.delete_namespaced_config_map("one", NAMESPACE)
    error = refused(404, core.read_namespaced_config_map, "one", NAMESPACE)
    assert '"reason":"NotFound"' in error.body.replace(" ", "")


def check_every_type_of_patch():
    core, apps = client.CoreV1Api(), client.AppsV1Api()
    core.create_namespaced_config_map(NAMESPACE, config_map("patched", a="1", b="2"))
    # A dictionary is sent as a strategic merge patch.
    core.patch_namespaced_config_map("patched", NAMESPACE, {"data": {"b": None, "c": "3"}})
    assert core.read_namespaced_config_map("patched", NAMESPACE).data == {"a": "1", "c": "3"}
    # A list is sent as a JSON patch.
    steps = [{"op": "replace", "path": "/data/a", "value": "9"}]
    core.patch_namespaced_config_map("patched", NAMESPACE, steps)
    assert core.read_namespaced_config_map("patched", NAMESPACE).data["a"] == "9"
    labels = {"app": "web"}
    container = client.V1Container(name="main", image="a", ports=[client.V1ContainerPort(container_port=80)])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container]))
    spec = client.V1DeploymentSpec(
        replicas=1, selector=client.V1LabelSelector(match_labels=labels), template=template)
    apps.create_namespaced_deployment(
        NAMESPACE, client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec))
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "b"}]}}}}
    changed = apps.patch_namespaced_deployment("web", NAMESPACE, change)
    main = changed.spec.template.spec.containers[0]
    assert (main.image, main.ports[0].container_port) == ("b", 80), main
    scaled = apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 3}})
    assert scaled.spec.replicas == 3


def definition():
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {
                "oars": {"type": "integer", "minimum": 0}, "name": {"type": "string", "default": "Argo"}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "%s.%s" % (PLURAL, GROUP)},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": PLURAL, "singular": "boat", "kind": "Boat"},
            "versions": [{"name": VERSION, "served": True, "storage": True, "subresources": {"status": {}},
                          "schema": {"openAPIV3Schema": schema}}]}}


def check_custom_objects():
    definitions = client.ApiextensionsV1Api()
    definitions.create_custom_resource_definition(definition())

    def established():
        status = definitions.read_custom_resource_definition("%s.%s" % (PLURAL, GROUP)).status
        found = {one.type: one.status for one in status.conditions or []}
        return found.get("Established") == "True"

    until("the definition", established)
    boats = client.CustomObjectsApi()
    where = (GROUP, VERSION, NAMESPACE, PLURAL)
    boat = {"apiVersion": "%s/%s" % (GROUP, VERSION), "kind": "Boat",
            "metadata": {"name": "first"}, "spec": {"oars": 50, "unknown": "pruned"}}
    made = boats.create_namespaced_custom_object(*where, boat)
    assert made["spec"] == {"oars": 50, "name": "Argo"}, made["spec"]
    changed = boats.patch_namespaced_custom_object(*where, "first", {"spec": {"oars": 48}})
    assert changed["spec"]["oars"] == 48 and changed["metadata"]["generation"] == 2
    boats.patch_namespaced_custom_object_status(*where, "first", {"status": {"afloat": True}})
    assert boats.get_namespaced_custom_object(*where, "first")["status"] == {"afloat": True}
    refused(422, boats.patch_namespaced_custom_object, *where, "first", {"spec": {"oars": -1}})
    assert len(boats.list_namespaced_custom_object(*where)["items"]) == 1
    boats.delete_namespaced_custom_object(*where, "first")
    refused(404, boats.get_namespaced_custom_object, *where, "first")


def check_dynamic_client():
    dynamic_client = dynamic.DynamicClient(client.ApiClient())
    maps = dynamic_client.resources.get(api_version="v1", kind="ConfigMap")
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "dynamic"}, "data": {"a": "1"}}
    maps.create(body=body, namespace=NAMESPACE)
    maps.patch(body={"metadata": {"name": "dynamic"}, "data": {"b": "2"}}, namespace=NAMESPACE,
               content_type="application/merge-patch+json")
    assert maps.get(name="dynamic", namespace=NAMESPACE).data.to_dict() == {"a": "1", "b": "2"}
    applied = maps.server_side_apply(
        body={"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "dynamic"}, "data": {"c": "3"}},
        name="dynamic", namespace=NAMESPACE, field_manager="python")
    assert applied.data.c == "3"
    maps.delete(name="dynamic", namespace=NAMESPACE)


def check_watch():
    core = client.CoreV1Api()
    version = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version

    def work():
        core.create_namespaced_config_map(NAMESPACE, config_map("seen", a="1"))
        core.patch_namespaced_config_map("seen", NAMESPACE, {"data": {"a": "2"}})
        core.delete_namespaced_config_map("seen", NAMESPACE)

    threading.Thread(target=work).start()
    seen, watcher = [], watch.Watch()
    stream = watcher.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version,
                            timeout_seconds=PATIENCE_SECONDS)
    for event in stream:
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watcher.stop()
    assert seen == [("ADDED", "seen"), ("MODIFIED", "seen"), ("DELETED", "seen")], seen


def check_watch_from_forgotten_history():
    core = client.CoreV1Api()
    stream = watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, resource_version="1",
                                  timeout_seconds=5)
    try:
        events = list(stream)
    except ApiException as error:
        assert error.status == 410, error
        return
    raise AssertionError("no 410, but %r" % events)


def check_leader_election():
    try:
        from kubernetes.leaderelection import electionconfig, leaderelection
        from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock as Lock
    except ImportError:
        try:
            from kubernetes.leaderelection import electionconfig, leaderelection
            from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock as Lock
        except ImportError:
            return "no leader election in this client"
    led = threading.Event()

    def lead():
        led.set()

    settings = electionconfig.Config(
        Lock("chair", NAMESPACE, "first"), lease_duration=17, renew_deadline=15, retry_period=5,
        onstarted_leading=lead, onstopped_leading=lambda: None)
    threading.Thread(target=leaderelection.LeaderElection(settings).run, daemon=True).start()
    assert led.wait(PATIENCE_SECONDS), "nobody led"
    return None


def main():
    config.load_kube_config()
    failed = 0
    for name, check in list(globals().items()):
        if not name.startswith("check_"):
            continue
        try:
            why = check()
            print("python: %s: %s" % (name[6:].replace("_", " "), "ok" if why is None else "skipped: " + why))
        except Exception:
            failed += 1
            print("python: %s: FAILED" % name[6:].replace("_", " "))
            traceback.print_exc()
    # The election goes on in its thread: ending the interpreter under it is a race, so do not.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if failed else 0)


main()

//! What a cluster adds to pods and claims, and what it refuses.

use serde_json::json;

use super::*;

fn pod(resources: &Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
}

fn range(item: &Value) -> [Value; 1] {
    [json!({"spec": {"limits": [item]}})]
}

#[test]
fn containers_get_the_defaults_of_the_namespace_and_a_note() {
    let ranges = range(&json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"},
        "defaultRequest": {"cpu": "500m"}}));
    let mut object = pod(&json!({"limits": {"memory": "2Gi"}}));
    apply_limits(&mut object, &ranges);
    assert_eq!(
        object["spec"]["containers"][0]["resources"],
        json!({"limits": {"memory": "2Gi", "cpu": "1"}, "requests": {"cpu": "500m"}})
    );
    assert_eq!(
        object["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let mut full = object.clone();
    apply_limits(&mut full, &ranges);
    assert_eq!(full, object);
}

#[test]
fn limits_refuse_what_is_out_of_bounds() {
    let both = |amount: &str| pod(&json!({"limits": {"cpu": amount}, "requests": {"cpu": amount}}));
    let container = |bound: Value| {
        let mut item = json!({"type": "Container"});
        item.as_object_mut().unwrap().extend(bound.as_object().unwrap().clone());
        range(&item)
    };
    let (min, max) = (json!({"min": {"cpu": "1"}}), json!({"max": {"cpu": "1"}}));
    for (object, bound, wanted) in [
        (both("500m"), &min, "minimum cpu usage per Container is 1, but request is 500m"),
        (pod(&json!({})), &min, "minimum cpu usage per Container is 1.  No request is specified"),
        (both("2"), &max, "maximum cpu usage per Container is 1, but limit is 2"),
        (pod(&json!({})), &max, "maximum cpu usage per Container is 1.  No limit is specified"),
    ] {
        let found = limit_violations("Pod", &object, &container(bound.clone()));
        assert_eq!(found, [wanted], "{object}");
    }
    assert!(limit_violations("Pod", &both("1"), &container(min)).is_empty());
    assert!(limit_violations("Pod", &both("1"), &container(max)).is_empty());
    let ratio = container(json!({"maxLimitRequestRatio": {"cpu": "2"}}));
    let wide = pod(&json!({"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}));
    assert_eq!(limit_violations("Pod", &wide, &ratio).len(), 1);
    let narrow = pod(&json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}));
    assert!(limit_violations("Pod", &narrow, &ratio).is_empty());
    let whole = range(&json!({"type": "Pod", "max": {"cpu": "1"}}));
    let mut two = both("600m");
    let container = two["spec"]["containers"][0].clone();
    two["spec"]["containers"].as_array_mut().unwrap().push(container);
    let wanted = "maximum cpu usage per Pod is 1, but limit is 1200m";
    assert_eq!(limit_violations("Pod", &two, &whole), [wanted]);
    let claim = json!({"spec": {"resources": {"requests": {"storage": "500Mi"}}}});
    let least = range(&json!({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}}));
    let wanted = "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi";
    assert_eq!(limit_violations("PersistentVolumeClaim", &claim, &least), [wanted]);
}

#[test]
fn the_class_says_the_priority_of_a_pod() {
    let class = |name: &str, value: i64, default: bool| {
        json!({"metadata": {"name": name}, "value": value, "globalDefault": default,
            "preemptionPolicy": "Never"})
    };
    let resolved = |spec: Value, classes: &[Value]| {
        let mut pod = json!({ "spec": spec });
        resolve_priority(&mut pod, classes).map(|()| pod["spec"].clone())
    };
    let classes = [class("high", 9, false), class("usual", 5, true), class("other", 7, true)];
    assert_eq!(
        resolved(json!({}), &[]).unwrap(),
        json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})
    );
    assert_eq!(
        resolved(json!({}), &classes).unwrap(),
        json!({"priority": 5, "preemptionPolicy": "Never", "priorityClassName": "usual"})
    );
    assert_eq!(resolved(json!({"priorityClassName": "high"}), &classes).unwrap()["priority"], 9);
    for (name, value) in SYSTEM_CLASSES {
        let spec = resolved(json!({"priorityClassName": name}), &[]).unwrap();
        assert_eq!(spec["priority"], value);
    }
    for spec in [
        json!({"priorityClassName": "none"}),
        json!({"priorityClassName": "high", "priority": 8}),
        json!({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"}),
    ] {
        assert!(resolved(spec.clone(), &classes).is_err(), "{spec}");
    }
}

#[test]
fn pods_outlast_a_short_failure_of_their_node_unless_they_say_otherwise() {
    let keys = |spec: Value| {
        let mut pod = json!({ "spec": spec });
        tolerate_failing_nodes(&mut pod);
        let all = list(&pod, "spec.tolerations").iter();
        all.map(|one| format!("{}={}", text(one, "key"), one["tolerationSeconds"]))
            .collect::<Vec<_>>()
    };
    let (ready, reach) = ("node.kubernetes.io/not-ready=300", "node.kubernetes.io/unreachable=300");
    assert_eq!(keys(json!({})), [ready, reach]);
    let own = json!({"tolerations": [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 5}]});
    assert_eq!(keys(own), ["node.kubernetes.io/not-ready=5", reach]);
    assert_eq!(keys(json!({"tolerations": [{"operator": "Exists"}]})), ["=null"]);
    let other = json!({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]});
    assert_eq!(keys(other).len(), 3);
}

#[test]
fn a_claim_is_used_by_pods_on_nodes_only_and_gets_the_default_class() {
    let pod = |node: &str, volume: Value| json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "volumes": [volume]}});
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
    assert!(uses_claim(&pod("n", claim.clone()), "c"));
    assert!(!uses_claim(&pod("", claim.clone()), "c"));
    assert!(!uses_claim(&pod("n", claim), "d"));
    assert!(uses_claim(&pod("n", json!({"name": "v", "ephemeral": {}})), "p-v"));
    let class = |name: &str, made: &str, default: &str| {
        json!({"metadata": {"name": name, "creationTimestamp": made,
            "annotations": {"storageclass.kubernetes.io/is-default-class": default}}})
    };
    let classes = [class("old", "1", "true"), class("new", "2", "true"), class("no", "3", "false")];
    let mut open = json!({"spec": {}});
    default_class(&mut open, &classes);
    assert_eq!(open["spec"]["storageClassName"], "new");
    let mut none = json!({"spec": {"storageClassName": ""}});
    default_class(&mut none, &classes);
    assert_eq!(none["spec"]["storageClassName"], "");
}

#[test]
fn every_pod_runs_as_somebody() {
    for (spec, wanted) in [
        (json!({}), "default"),
        (json!({"serviceAccountName": "a"}), "a"),
        (json!({"serviceAccount": "a"}), "a"),
    ] {
        let mut pod = json!({ "spec": spec });
        assert_eq!(default_account(&mut pod), wanted);
        assert_eq!(pod["spec"], json!({"serviceAccountName": wanted, "serviceAccount": wanted}));
    }
}

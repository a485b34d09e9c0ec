//! The kinds, roles and paths that the programs of a cluster look for when they start.

use base64::Engine as _;
use http::Method;
use serde_json::{Value, json};

use crate::support::*;

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// (group and version, plural, whether namespaced, what an object needs beside its name)
fn samples() -> Vec<(&'static str, &'static str, bool, Value)> {
    let container = json!({"name": "c", "image": "i"});
    let template =
        json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}});
    let limited = json!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
    let level = json!({"name": "global-default"});
    let parent = json!({"resource": "services", "namespace": "default", "name": "s"});
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let source = json!({"persistentVolumeName": "pv"});
    let attach = json!({"attacher": "a", "nodeName": "n", "source": source});
    vec![
        ("v1", "endpoints", true, json!({"subsets": [{"ports": [{"port": 1}]}]})),
        ("v1", "podtemplates", true, json!({"template": template})),
        ("v1", "replicationcontrollers", true, json!({"spec": {"template": template}})),
        ("apps/v1", "controllerrevisions", true, json!({"revision": 1, "data": {"a": 1}})),
        (
            "discovery.k8s.io/v1",
            "endpointslices",
            true,
            json!({"addressType": "IPv4", "endpoints": []}),
        ),
        ("networking.k8s.io/v1", "ingresses", true, json!({"spec": {"rules": [{"host": "a.io"}]}})),
        (
            "networking.k8s.io/v1",
            "ingressclasses",
            false,
            json!({"spec": {"controller": "a.io/c"}}),
        ),
        ("networking.k8s.io/v1", "networkpolicies", true, json!({"spec": {}})),
        (
            "networking.k8s.io/v1",
            "servicecidrs",
            false,
            json!({"spec": {"cidrs": ["10.9.0.0/24"]}}),
        ),
        ("networking.k8s.io/v1", "ipaddresses", false, json!({"spec": {"parentRef": parent}})),
        ("node.k8s.io/v1", "runtimeclasses", false, json!({"handler": "runc"})),
        ("policy/v1", "poddisruptionbudgets", true, json!({"spec": {"minAvailable": 1}})),
        ("scheduling.k8s.io/v1", "priorityclasses", false, json!({"value": 10})),
        (
            "autoscaling/v2",
            "horizontalpodautoscalers",
            true,
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": target}}),
        ),
        ("storage.k8s.io/v1", "csidrivers", false, json!({"spec": {}})),
        ("storage.k8s.io/v1", "csinodes", false, json!({"spec": {"drivers": []}})),
        ("storage.k8s.io/v1", "csistoragecapacities", true, json!({"storageClassName": "s"})),
        ("storage.k8s.io/v1", "volumeattachments", false, json!({"spec": attach})),
        ("storage.k8s.io/v1", "volumeattributesclasses", false, json!({"driverName": "d"})),
        ("resource.k8s.io/v1", "deviceclasses", false, json!({"spec": {}})),
        ("resource.k8s.io/v1", "resourceclaims", true, json!({"spec": {}})),
        ("resource.k8s.io/v1", "resourceclaimtemplates", true, json!({"spec": {"spec": {}}})),
        (
            "resource.k8s.io/v1",
            "resourceslices",
            false,
            json!({"spec": {"driver": "d.io", "nodeName": "n", "pool":
                {"name": "p", "generation": 1, "resourceSliceCount": 1}}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "flowschemas",
            false,
            json!({"spec": {"priorityLevelConfiguration": level}}),
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "prioritylevelconfigurations",
            false,
            json!({"spec": limited}),
        ),
        ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", false, json!({})),
        ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", false, json!({})),
    ]
}

fn collection(world: &World, version: &str, plural: &str, namespaced: bool) -> String {
    let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
    let place = if namespaced { format!("/namespaces/{}", world.name) } else { String::new() };
    format!("{root}{place}/{plural}")
}

#[tokio::test]
async fn what_controllers_list_is_stored_shown_and_deleted() {
    let world = World::new().await;
    for (version, plural, namespaced, mut object) in samples() {
        let path = collection(&world, version, plural, namespaced);
        let name = if plural == "ipaddresses" { "10.9.0.7" } else { "sample" };
        object["metadata"] = json!({"name": name});
        let made = world.post(&path, &object).await.is(201);
        assert_eq!(made["apiVersion"], version, "{plural}");
        let list = world.get(&path).await.is(200);
        assert!(list["items"].as_array().is_some_and(|all| !all.is_empty()), "{plural}");
        let one = format!("{path}/{name}");
        let table = world.get_as(TABLE, &one).await.is(200);
        let columns = table["columnDefinitions"].as_array().map(Vec::len);
        assert_eq!(table["rows"][0]["cells"].as_array().map(Vec::len), columns, "{plural}");
        assert!(columns.is_some_and(|count| count > 1), "{plural}");
        world.put(&one, &made).await.is(200);
        world.delete(&one).await.is(200);
        world.get(&one).await.refused(404);
    }
}

#[tokio::test]
async fn what_would_act_on_requests_and_does_not_is_refused() {
    let world = World::new().await;
    let webhooks = json!({"metadata": {"name": "w"}, "webhooks": [{"name": "a.b.c"}]});
    for plural in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let (_, field, message) =
            world.post(&format!("{ADMISSION}/{plural}"), &webhooks).await.cause();
        assert_eq!(field, "webhooks");
        assert!(message.contains("calls no admission webhooks"), "{message}");
    }
    let policy = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validations":
        [{"expression": "true"}]}});
    for plural in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
        let path = format!("{ADMISSION}/{plural}");
        let (_, _, message) = world.post(&path, &policy).await.cause();
        assert!(message.contains("applies no admission policies"), "{message}");
        assert_eq!(world.get(&path).await.is(200)["items"], json!([]));
    }
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let spec = json!({"group": "metrics.k8s.io", "version": "v1", "groupPriorityMinimum": 1,
        "versionPriority": 1, "service": {"name": "m", "namespace": "kube-system"}});
    let remote = json!({"metadata": {"name": "v1.metrics.k8s.io"}, "spec": spec});
    assert_eq!(world.post(services, &remote).await.cause().1, "spec.service");
    let mut local = remote;
    local["spec"].as_object_mut().unwrap().remove("service");
    world.post(services, &local).await.is(201);
}

fn signing_request() -> Value {
    let request = base64::engine::general_purpose::STANDARD.encode("-----BEGIN");
    json!({"metadata": {"name": "r"}, "spec": {"signerName": "example.com/own",
        "request": request, "usages": ["client auth"], "username": "system:admin",
        "groups": ["system:masters"]}})
}

#[tokio::test]
async fn a_signing_request_says_who_asked_and_deciding_takes_a_right_at_the_signer() {
    let world = World::new().await;
    let rights = |name: &str, rules: Value| {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let binding = json!({"metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "name": name}]});
        (role, binding)
    };
    let all = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["*"], "resources":
        ["certificatesigningrequests", "certificatesigningrequests/approval",
         "certificatesigningrequests/status"]});
    let signer = json!({"apiGroups": ["certificates.k8s.io"], "verbs": ["approve"],
        "resources": ["signers"], "resourceNames": ["example.com/*"]});
    for (name, rules) in [("ada", json!([all])), ("ben", json!([all, signer]))] {
        let (role, binding) = rights(name, rules);
        world.post(&format!("{RBAC}/clusterroles"), &role).await.is(201);
        world.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.is(201);
    }
    let (ada, ben) = (world.as_user("ada", &["team"]), world.as_user("ben", &[]));
    let made = ada.post(REQUESTS, &signing_request()).await.is(201);
    assert_eq!(made["spec"]["username"], "ada");
    assert!(!made["spec"]["groups"].to_string().contains("masters"), "{made}");
    let mut approved = made.clone();
    approved["status"] = json!({"certificate": "Zm9yZ2Vk", "conditions":
        [{"type": "Approved", "status": "True", "reason": "r"}]});
    let approval = format!("{REQUESTS}/r/approval");
    let refused = ada.send(Method::PUT, &approval, Some(&approved)).await.refused(403);
    assert!(refused.contains("not permitted to approve"), "{refused}");
    let decided = ben.send(Method::PUT, &approval, Some(&approved)).await.is(200);
    assert_eq!(decided["status"]["conditions"][0]["type"], "Approved");
    assert_eq!(decided["status"].get("certificate"), None);
    // Approving is not signing, and whoever writes the spec later changes nothing.
    let status = format!("{REQUESTS}/r/status");
    let refused = ben.send(Method::PUT, &status, Some(&approved)).await.refused(403);
    assert!(refused.contains("not permitted to sign"), "{refused}");
    let mut other = decided;
    other["spec"]["username"] = "system:admin".into();
    let kept = ben.send(Method::PUT, &format!("{REQUESTS}/r"), Some(&other)).await.is(200);
    assert_eq!(kept["spec"]["username"], "ada");
}

/// Controllers of a cluster sign for all of its signers with the authority that the server believes.
#[tokio::test]
async fn no_signer_of_the_cluster_is_asked_for_an_administrator() {
    let world = World::new().await;
    let ask = |signer: Value, request: &str| {
        let request = base64::engine::general_purpose::STANDARD.encode(request);
        json!({"metadata": {"generateName": "r-"}, "spec": {"signerName": signer,
            "request": request, "usages": ["client auth"]}})
    };
    let request = |organisation: &str| {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::OrganizationName, organisation);
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.serialize_request(&key).unwrap().pem().unwrap()
    };
    let (masters, nodes) = (request("system:masters"), request("system:nodes"));
    for signer in ["kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving"] {
        let signer = Value::from(format!("kubernetes.io/{signer}"));
        let text = world.post(REQUESTS, &ask(signer.clone(), &masters)).await.refused(403);
        assert!(text.contains("system:masters group is not allowed"), "{text}");
        world.post(REQUESTS, &ask(signer.clone(), "noise")).await.is(422);
        world.post(REQUESTS, &ask(signer, &nodes)).await.is(201);
    }
    for none in [Value::Null, "kubernetes.io/legacy-unknown".into()] {
        let (_, field, _) = world.post(REQUESTS, &ask(none, &nodes)).await.cause();
        assert_eq!(field, "spec.signerName");
    }
    world.post(REQUESTS, &ask("example.com/own".into(), &masters)).await.is(201);
}

#[tokio::test]
async fn a_job_is_made_with_its_selector() {
    let world = World::new().await;
    let path = format!("/apis/batch/v1/namespaces/{}/jobs", world.name);
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let job = json!({"metadata": {"name": "pi"}, "spec": {"template": {"spec": pod}}});
    let made = world.post(&path, &job).await.is(201);
    let uid = &made["metadata"]["uid"];
    let key = "batch.kubernetes.io/controller-uid";
    assert_eq!(made["spec"]["selector"]["matchLabels"][key], *uid);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"][key], *uid);
    assert_eq!(made["metadata"]["labels"]["batch.kubernetes.io/job-name"], "pi");
    world.put(&format!("{path}/pi"), &made).await.is(200);
}

#[tokio::test]
async fn programs_of_a_cluster_find_their_roles_and_whom_to_trust() {
    let world = World::new().await;
    let manager = world.as_user("system:kube-controller-manager", &[]);
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let trust = manager.get(path).await.is(200);
    let authority = trust["data"]["client-ca-file"].as_str().unwrap();
    assert!(authority.contains("BEGIN CERTIFICATE"), "{authority}");
    manager.get("/api/v1/pods").await.is(200);
    let controller = "system:serviceaccount:kube-system:deployment-controller";
    let controller = world.as_user(controller, &[]);
    controller.get("/apis/apps/v1/deployments").await.is(200);
    controller.get("/api/v1/secrets").await.refused(403);
    for name in ["system-cluster-critical", "system-node-critical"] {
        world.get(&format!("/apis/scheduling.k8s.io/v1/priorityclasses/{name}")).await.is(200);
    }
}

#[tokio::test]
async fn others_can_check_our_tokens() {
    let world = World::new().await;
    let pod = world.as_user("system:serviceaccount:a:b", &["system:serviceaccounts"]);
    let found = pod.get("/.well-known/openid-configuration").await.is(200);
    assert!(found["jwks_uri"].as_str().unwrap().ends_with("/openid/v1/jwks"));
    let keys = pod.get("/openid/v1/jwks").await.is(200);
    let account = format!("{}/default/token", world.core("serviceaccounts"));
    world.until(&world.core("serviceaccounts/default"), |reply| reply.code == 200).await;
    let token = world.post(&account, &json!({"spec": {}})).await.is(201);
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let part = |index: usize| {
        let text = token.split('.').nth(index).unwrap();
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap()
    };
    let header: Value = serde_json::from_slice(&part(0)).unwrap();
    let claims: Value = serde_json::from_slice(&part(1)).unwrap();
    assert_eq!(claims["iss"], found["issuer"]);
    let key = &keys["keys"][0];
    assert_eq!((&key["kid"], &key["alg"]), (&header["kid"], &header["alg"]));
    let point: Vec<u8> = ["x", "y"]
        .iter()
        .flat_map(|member| {
            let text = key[*member].as_str().unwrap();
            base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap()
        })
        .collect();
    let public = [&[4][..], &point].concat();
    let key = aws_lc_rs::signature::UnparsedPublicKey::new(
        &aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED,
        public,
    );
    let signed = token.rsplit_once('.').unwrap().0;
    key.verify(signed.as_bytes(), &part(2)).unwrap();
    world.as_user("ada", &[]).get("/openid/v1/jwks").await.refused(403);
}

#[tokio::test]
async fn watches_of_the_older_path_are_watches() {
    let world = World::new().await;
    let one = |name: &str| json!({"metadata": {"name": name}});
    for name in ["a", "b"] {
        world.post(&world.core("configmaps"), &one(name)).await.is(201);
    }
    let root = format!("/api/v1/watch/namespaces/{}/configmaps", world.name);
    let mut all = world.watch(&root).await;
    assert_eq!(all.next().await.unwrap()["type"], "ADDED");
    let mut named = world.watch(&format!("{root}/b")).await;
    assert_eq!(named.next().await.unwrap()["object"]["metadata"]["name"], "b");
    let ada = world.as_user("ada", &[]);
    let refused = ada.get(&root).await.refused(403);
    assert!(refused.contains("cannot watch resource \"configmaps\""), "{refused}");
    world.post(&root, &one("c")).await.refused(405);
}

#[tokio::test]
async fn a_list_of_one_namespace_is_a_list_of_namespaces() {
    let world = World::new().await;
    let role = json!({"metadata": {"name": "look"}, "rules":
        [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]}]});
    world.post(&format!("{RBAC}/namespaces/{}/roles", world.name), &role).await.is(201);
    let binding = json!({"metadata": {"name": "look"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "look"},
        "subjects": [{"kind": "User", "name": "ada"}]});
    world.post(&format!("{RBAC}/namespaces/{}/rolebindings", world.name), &binding).await.is(201);
    let ada = world.as_user("ada", &[]);
    ada.get(&format!("/api/v1/namespaces/{}", world.name)).await.is(200);
    let one = format!("/api/v1/namespaces?fieldSelector=metadata.name%3D{}", world.name);
    let refused = ada.get(&one).await.refused(403);
    assert!(refused.contains("at the cluster scope"), "{refused}");
}

#[tokio::test]
async fn a_namespace_does_not_wait_for_objects_whose_definition_was_torn_away() {
    let world = World::new().await;
    world.define("widgets", "Widget", &json!({"type": "object"})).await;
    let widget = world.body("v1", "Widget", "w", &json!({}));
    let mut widget = widget;
    widget["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.post(&world.objects("v1", "widgets"), &widget).await.is(201);
    let definition = format!("{DEFINITIONS}/widgets.{}", world.group());
    world.delete(&definition).await.is(200);
    world.merge(&definition, &json!({"metadata": {"finalizers": null}})).await.is(200);
    world.until(&definition, |reply| reply.code == 404).await;
    let namespace = format!("/api/v1/namespaces/{}", world.name);
    world.delete(&namespace).await.is(200);
    world.until(&namespace, |reply| reply.code == 404).await;
}

#[tokio::test]
async fn explain_finds_words_and_what_is_required() {
    let world = World::new().await;
    let core = world.get("/openapi/v3/api/v1").await.is(200);
    let schemas = &core["components"]["schemas"];
    let spec = &schemas["io.k8s.api.core.v1.PodSpec"];
    assert_eq!(spec["required"], json!(["containers"]));
    let about = spec["properties"]["nodeName"]["description"].as_str().unwrap();
    assert!(about.contains("node"), "{about}");
    let items = &spec["properties"]["containers"]["items"]["$ref"];
    assert_eq!(*items, "#/components/schemas/io.k8s.api.core.v1.Container");
    let apps = world.get("/openapi/v3/apis/apps/v1").await.is(200);
    let deployment = &apps["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"];
    assert!(deployment["properties"]["spec"]["allOf"][0]["$ref"].is_string(), "{deployment}");
}

/// The right is one at a signer; while it is asked for, another request may get the name.
#[tokio::test]
async fn a_decision_is_about_the_request_that_it_was_judged_by() {
    let world = World::new().await;
    let rules = json!([
        {"apiGroups": ["certificates.k8s.io"], "verbs": ["get", "update", "patch"],
            "resources": ["certificatesigningrequests/approval"]},
        {"apiGroups": ["certificates.k8s.io"], "verbs": ["approve"], "resources": ["signers"],
            "resourceNames": ["example.com/mine"]}]);
    let role = json!({"metadata": {"name": "approver"}, "rules": rules});
    world.post(&format!("{RBAC}/clusterroles"), &role).await.is(201);
    let binding = json!({"metadata": {"name": "approver"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "approver"},
        "subjects": [{"kind": "User", "name": "ada"}]});
    world.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.is(201);
    let ada = world.as_user("ada", &[]);
    let request = |signer: &str| {
        let mut request = signing_request();
        request["metadata"] = json!({"name": "r"});
        request["spec"]["signerName"] = signer.into();
        request
    };
    let approve = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "x",
            "message": "y"}]}});
    let path = format!("{REQUESTS}/r");
    let approval = format!("{path}/approval?fieldManager=m&force=true");
    world.post(REQUESTS, &request("example.com/mine")).await.is(201);
    let nothing = async {};
    assert_eq!(ada.apply_slowly(&approval, &approve, nothing).await, 200, "her own");
    world.delete(&path).await.is(200);
    world.post(REQUESTS, &request("example.com/mine")).await.is(201);
    let replaced = async {
        world.delete(&path).await.is(200);
        world.post(REQUESTS, &request("example.com/other")).await.is(201);
    };
    assert_eq!(ada.apply_slowly(&approval, &approve, replaced).await, 403);
    let now = world.get(&path).await.is(200);
    assert!(now["status"]["conditions"].is_null(), "{now}");
}

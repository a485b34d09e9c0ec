//! Who may do what, seen through kubectl.

use e2e::{Server, write};

use super::{BACKUP, CONFIG_MAP, Kubectl};

/// A tenant's kubeconfig, made as the manual says.
fn tenant(server: &Server, user: &str, role: &str) -> std::path::PathBuf {
    let made =
        server.holdfast(&["kubeconfig", "--user", user, "--namespace", "team-a", "--role", role]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = server.scratch().join(format!("{user}.kubeconfig"));
    write(&path, &String::from_utf8(made.stdout).unwrap());
    path
}

#[test]
fn a_tenant_works_in_its_namespace_and_nowhere_else() {
    let server = Server::start();
    let file = tenant(&server, "alice", "edit");
    let alice = Kubectl::with(&server, &file);
    // The file names the namespace: no -n is needed.
    alice.run(&format!("apply -f {}", alice.file("map.yaml", CONFIG_MAP)));
    alice.run(&format!("apply -f {}", alice.file("nab.yaml", BACKUP)));
    assert!(alice.run("get nab").contains("nightly"));
    alice.run("label configmap settings a=b");
    alice.run("delete configmap settings");
    for line in [
        "get configmap -n default",
        "get configmap -A",
        "create configmap x -n default --from-literal=a=b",
        "delete namespace team-a",
        "get secrets -n kube-system",
        "create clusterrolebinding up --clusterrole=cluster-admin --user=alice",
        "create rolebinding up -n team-a --clusterrole=cluster-admin --user=alice",
        "get nodes",
    ] {
        let rejection = alice.fail(line);
        assert!(rejection.to_lowercase().contains("forbidden"), "{line}: {rejection}");
        assert!(rejection.contains("\"alice\""), "{line}: {rejection}");
    }
}

#[test]
fn a_tenant_who_may_look_may_not_touch() {
    let server = Server::start();
    let file = tenant(&server, "victor", "view");
    let admin = Kubectl::admin(&server);
    admin.run(&format!("apply -n team-a -f {}", admin.file("map.yaml", CONFIG_MAP)));
    let victor = Kubectl::with(&server, &file);
    assert!(victor.run("get configmap").contains("settings"));
    assert!(victor.fail("delete configmap settings").contains("(Forbidden)"));
    assert!(victor.fail("get secrets").contains("(Forbidden)"));
}

#[test]
fn can_i_tells_the_truth() {
    let server = Server::start();
    let file = tenant(&server, "alice", "edit");
    let (admin, alice) = (Kubectl::admin(&server), Kubectl::with(&server, &file));
    assert_eq!(admin.run("auth can-i '*' '*' --all-namespaces"), "yes\n");
    assert_eq!(alice.run("auth can-i create configmaps"), "yes\n");
    assert_eq!(alice.run("auth can-i create nonadminbackups"), "yes\n");
    let no = alice.output("auth can-i create configmaps -n default");
    assert_eq!(String::from_utf8_lossy(&no.stdout), "no\n");
    assert!(!no.status.success());
    assert_eq!(admin.run("auth can-i get pods -n team-a --as alice"), "yes\n");
    let listed = alice.run("auth can-i --list");
    assert!(listed.contains("configmaps"), "{listed}");
    assert!(alice.run("auth whoami").contains("alice"));
    assert!(admin.run("auth whoami --as bob --as-group team-b").contains("team-b"));
    assert!(alice.fail("get configmap --as bob").contains("(Forbidden)"));
}

#[test]
fn a_service_account_uses_its_token() {
    let server = Server::start();
    let admin = Kubectl::admin(&server);
    admin.run("create serviceaccount robot");
    admin.run("create role reader --verb=get,list --resource=configmaps");
    admin.run("create rolebinding readers --role=reader --serviceaccount=default:robot");
    let token = admin.run("create token robot");
    let empty = server.scratch().join("empty.kubeconfig");
    write(&empty, "apiVersion: v1\nkind: Config\n");
    let robot = Kubectl::with(&server, &empty);
    let who = format!(
        "--server {} --certificate-authority {} --token {}",
        server.url(),
        server.ca().display(),
        token.trim()
    );
    assert!(
        robot.run(&format!("{who} auth whoami")).contains("system:serviceaccount:default:robot")
    );
    robot.run(&format!("{who} get configmaps"));
    assert!(robot.fail(&format!("{who} get secrets")).contains("(Forbidden)"));
    admin.run("delete serviceaccount robot");
    let gone = robot.fail(&format!("{who} get configmaps"));
    assert!(gone.contains("Unauthorized") || gone.contains("logged in"), "{gone}");
}

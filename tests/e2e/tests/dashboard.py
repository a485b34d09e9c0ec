"""The dashboard, driven in a headless Chromium over its DevTools protocol.

Needs a running server (KUBECONFIG, DASHBOARD_URL, DASHBOARD_TOKEN, BLOCK_URL) and its program
(HOLDFAST_BIN), a browser
(HOLDFAST_CHROMIUM) and, for the checks of accessibility, axe-core (HOLDFAST_AXE). With
HOLDFAST_SCREENSHOTS it leaves pictures there.
"""

import base64
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import websocket
from kubernetes import client, config

PATIENCE = 120
URL = os.environ["DASHBOARD_URL"]
HOSTILE = "\"><img src=x onerror=\"window.pwned=1\"><script>window.pwned=1</script>'{{7*7}}"
PAGES = ["/", "/volumes", "/volumes/web-data", "/backups", "/standby", "/tenants",
         "/block-storage", "/etcd", "/targets", "/nodes", "/events"]


def write(uri, at, mebibytes):
    """Writes noise to a volume, over NBD as any client does."""
    address, export = uri.removeprefix("nbd://").split("/", 1)
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        def receive(length):
            told = b""
            while len(told) < length:
                more = connection.recv(length - len(told))
                assert more, "the volume closed the connection"
                told += more
            return told
        assert receive(16) == b"NBDMAGICIHAVEOPT"
        receive(2)
        name = export.encode()
        # Fixed newstyle without zeroes, and the option that names an export.
        connection.sendall(struct.pack(">I", 3))
        connection.sendall(b"IHAVEOPT" + struct.pack(">II", 1, len(name)) + name)
        receive(10)
        for place in range(mebibytes):
            request = struct.pack(">IHHQQI", 0x25609513, 0, 1, place, (at + place) << 20, 1 << 20)
            connection.sendall(request + os.urandom(1 << 20))
            magic, error, _ = struct.unpack(">IIQ", receive(16))
            assert (magic, error) == (0x67446698, 0), (hex(magic), error)
        connection.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 3, 99, 0, 0))
        assert struct.unpack(">II", receive(16)[:8]) == (0x67446698, 0)
        connection.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 100, 0, 0))


class Browser:
    def __init__(self, folder):
        program = [os.environ["HOLDFAST_CHROMIUM"], "--no-sandbox", "--disable-gpu",
                   "--remote-debugging-port=0", f"--user-data-dir={folder}",
                   "--no-first-run", "--disable-dev-shm-usage", "about:blank"]
        # Debian's program is a script that starts the browser: both are of one group, and end as one.
        self.process = subprocess.Popen(program, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        port_file = os.path.join(folder, "DevToolsActivePort")
        wait(lambda: os.path.exists(port_file) and open(port_file).read().strip(), "the browser")
        port = open(port_file).read().split()[0]
        listed = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list"))
        page = next(it for it in listed if it["type"] == "page")
        self.socket = websocket.create_connection(
            page["webSocketDebuggerUrl"], suppress_origin=True, timeout=PATIENCE)
        self.number = 0
        self.complaints = []
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self.socket.recv())
            if told.get("id") == self.number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]
            self.note(told)

    def note(self, told):
        """What the browser complains of: violated policies, errors of the script, dialogs."""
        if told.get("method") == "Log.entryAdded":
            entry = told["params"]["entry"]
            # A refused token is answered with 401, and a browser says so.
            if entry["level"] == "error" and entry["source"] != "network":
                self.complaints.append(entry["text"])
        elif told.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(told["params"]["exceptionDetails"])[:500])
        elif told.get("method") == "Page.javascriptDialogOpening":
            self.complaints.append("a dialog opened: " + told["params"]["message"])

    def run(self, code):
        told = self.call("Runtime.evaluate", expression=code, returnByValue=True,
                         awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(f"{code[:200]}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def open(self, path, lands=None):
        self.call("Page.navigate", url=URL + path)
        self.loaded(lands or path)

    def loaded(self, path=None):
        # A page that is being left answers errors for a moment.
        def there():
            try:
                ready = self.run("document.readyState") == "complete"
                return ready and (path is None or self.path() == path)
            except RuntimeError:
                return False
        wait(there, f"{path} to load; it is {self.safe_path()}")

    def safe_path(self):
        try:
            return self.path()
        except RuntimeError:
            return "?"

    def path(self):
        return self.run("location.pathname")

    def text(self):
        return self.run("document.body.innerText")

    def fill(self, selector, value):
        found = self.run(f"""(() => {{
            const field = document.querySelector({json.dumps(selector)});
            if (!field) return false;
            field.value = {json.dumps(value)};
            return true; }})()""")
        assert found, f"there is no {selector} on {self.path()}"

    def press(self, selector):
        """Sends a form, and is there when the next page is."""
        self.run("window.stillTheSame = true")
        found = self.run(f"""(() => {{
            const button = document.querySelector({json.dumps(selector)});
            if (!button) return false;
            button.click();
            return true; }})()""")
        assert found, f"there is no {selector} on {self.path()}:\n{self.text()}"

        def next_page():
            try:
                return self.run("document.readyState === 'complete' && !window.stillTheSame")
            except RuntimeError:
                return False
        wait(next_page, f"the page after {selector}")

    def form(self, form, **fields):
        self.run(f"document.getElementById({json.dumps(form)}).open = true")
        for name, value in fields.items():
            self.fill(f"[id='{form}'] [name={name}]", value)
        self.press(f"[id='{form}'] form > button")

    def shows(self, words, what):
        """Waits for words to appear, without loading the page again: it is live."""
        def there():
            text = self.text()
            return all(word in text for word in words)
        wait(there, f"{what}: {words} on {self.path()}", lambda: self.text())

    def lacks(self, word, what):
        wait(lambda: word not in self.run("document.getElementById('live').innerText"), what,
             lambda: self.text())

    def row(self, name):
        """The text of the row of a table whose first cell is a name."""
        return self.run(f"""([...document.querySelectorAll('tbody tr')]
            .find((row) => row.cells[0].innerText.trim() === {json.dumps(name)})
            || {{innerText: ''}}).innerText""")

    def row_says(self, name, word):
        wait(lambda: word in self.row(name), f"{name} to be {word}", lambda: self.text())

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, name):
        folder = os.environ.get("HOLDFAST_SCREENSHOTS")
        if folder:
            told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=False)
            with open(os.path.join(folder, name + ".png"), "wb") as file:
                file.write(base64.b64decode(told["data"]))

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def wait(ready, what, more=lambda: ""):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if ready():
            return
        time.sleep(0.1)
    raise AssertionError(f"waited in vain for {what}\n{more()}")


def sign_in(browser, token, namespace=""):
    browser.open("/sign-in")
    browser.fill("#token", token)
    browser.fill("#namespace", namespace)
    browser.press(".sign-in > button")


def a_wrong_token_is_refused(browser):
    browser.open("/", lands="/sign-in")
    sign_in(browser, "nonsense")
    assert "does not accept this token" in browser.text(), browser.text()
    assert "nonsense" not in browser.run("document.documentElement.outerHTML")
    sign_in(browser, os.environ["DASHBOARD_TOKEN"])
    assert browser.path() == "/", browser.text()
    browser.shows(["Overview", "holdfast-admin"], "the first page")
    assert browser.run("document.cookie") == "", "a script can read the session"


def a_volume_is_made(browser):
    browser.open("/volumes")
    browser.form("create-volume", name="web-data", size="3MiB", replicas="1")
    assert "not a multiple of 2 MiB" in browser.text(), browser.text()
    browser.form("create-volume", name="web-data", size="16MiB", replicas="2")
    assert browser.path() == "/volumes/web-data", browser.text()
    browser.shows(["Volume web-data is being created.", "detached"], "the volume")
    # Somebody uses it; the page says so by itself.
    write(attached("web-data"), 0, 12)
    browser.shows(["attached", "healthy", "reads and writes"], "the attached volume")


def attached(name):
    """Where a volume is served."""
    told = subprocess.run([os.environ["HOLDFAST_BIN"], "volume", "attach", name], check=True,
                          stdout=subprocess.PIPE, text=True)
    return told.stdout.strip()


def a_volume_is_backed_up(browser):
    browser.form("snapshot", name="by-hand")
    browser.shows(["by-hand"], "the snapshot in the tree")
    browser.form("back-up", name="first")
    browser.open("/backups")
    browser.row_says("first", "completed")


def a_backup_is_restored(browser):
    browser.form("restore-first", name="web-twin", replicas="1")
    assert browser.path() == "/volumes/web-twin", browser.text()
    browser.shows(["Made from", "detached"], "the restored volume")


def a_standby_volume_takes_over(browser):
    browser.open("/backups")
    browser.form("standby-first", name="web-standby", replicas="1")
    assert browser.path() == "/standby", browser.text()
    browser.row_says("web-standby", "up to date")
    browser.shows(["Lag"], "the chart of lags")
    audit(browser, "/standby")
    pictures(browser, "standby")
    browser.form("activate-web-standby")
    assert browser.path() == "/volumes/web-standby", browser.text()
    browser.shows(["detached"], "the activated volume")
    browser.open("/standby")
    browser.lacks("web-standby", "the standby volume to be an ordinary one")


def a_backup_is_deleted(browser):
    write(attached("web-data"), 4, 2)
    browser.open("/volumes/web-data")
    browser.form("back-up", name="second")
    browser.open("/backups")
    browser.row_says("second", "completed")
    browser.open("/")
    browser.shows(["Backup calendar", "Data in the stores", "Throughput of backups"], "the charts")
    browser.shows(["sharing saves"], "what is shared")
    browser.open("/backups")
    browser.form("delete-first")
    wait(lambda: not browser.row("first"), "the deleted backup to go", lambda: browser.text())


def a_page_that_is_used_is_not_pulled_away(browser):
    browser.open("/backups")
    browser.shows(["live"], "the state of the page")
    browser.run("document.getElementById('restore-second').open = true")
    browser.fill("[id='restore-second'] [name=name]", "half-written")
    custom = client.CustomObjectsApi()
    custom.patch_namespaced_custom_object(
        "longhorn.io", "v1beta2", "longhorn-system", "backups", "second",
        {"metadata": {"annotations": {"a": "b"}}})
    time.sleep(2)
    value = browser.run("document.querySelector(\"[id='restore-second'] [name=name]\").value")
    assert value == "half-written", value


def an_etcd_is_seen(browser):
    leases = client.CoordinationV1Api()
    now = time.time()

    def at(ago, form="%Y-%m-%dT%H:%M:%SZ"):
        return time.strftime(form, time.gmtime(now - ago))
    full = " ".join(f"{at(7200 - it * 3600)}={100 + it * 60}" for it in range(3))
    deltas = " ".join(f"{at(7000 - it * 300)}={105 + it * 5}" for it in range(23))
    # Not a whole second: clients leave out the fraction of one, and servers insist on it.
    micro = "%Y-%m-%dT%H:%M:%S.000001Z"
    for name, holder, taken in [("etcd-main-0", "1af:Leader", None),
                                ("etcd-main-full-snap", "220", full),
                                ("etcd-main-delta-snap", "215", deltas)]:
        notes = {"holdfast.io/taken": taken} if taken else {}
        leases.create_namespaced_lease("default", {
            "metadata": {"name": name, "annotations": notes},
            "spec": {"holderIdentity": holder, "renewTime": at(5, micro)}})
    browser.open("/etcd")
    browser.shows(["etcd-main-0", "Leader", "Snapshots over time"], "the etcd")
    browser.shows(["Namespace default: 3 full snapshots and 23 deltas"], "the line of snapshots")


def tables_fit(browser):
    """At a usual width nothing of a table is out of sight, on a narrow screen nothing of a page."""
    for width in [1200, 360]:
        browser.size(width, 800)
        for path in PAGES:
            browser.open(path)
            hidden = browser.run(
                "Math.max(document.documentElement.scrollWidth - innerWidth, "
                "...[...document.querySelectorAll('.scroll')]"
                ".map(it => it.scrollWidth - it.clientWidth))")
            assert hidden <= 0, f"{path} at {width} px: {hidden} px are out of sight"
    browser.size(1280, 800)


def hostile_words_stay_words(browser):
    core = client.CoreV1Api()
    reference = {"apiVersion": "v1", "kind": HOSTILE, "name": HOSTILE,
                 "namespace": "longhorn-system"}
    core.create_namespaced_event("longhorn-system", {
        "metadata": {"name": "hostile"}, "involvedObject": reference, "message": HOSTILE,
        "reason": HOSTILE, "type": "Warning", "source": {"component": HOSTILE},
        "lastTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())})
    custom = client.CustomObjectsApi()
    custom.patch_namespaced_custom_object(
        "longhorn.io", "v1beta2", "longhorn-system", "volumes", "web-data",
        {"metadata": {"annotations": {"note": HOSTILE}, "labels": {"team": "a"}}})
    body = {"volume": {"name": HOSTILE, "size": 1}}
    request = urllib.request.Request(
        os.environ["BLOCK_URL"] + "/v3/volumes", data=json.dumps(body).encode(),
        headers={"content-type": "application/json", "x-auth-token": "demo:demo"})
    urllib.request.urlopen(request)
    client.CoordinationV1Api().create_namespaced_lease("default", {
        "metadata": {"name": "hostile-full-snap", "annotations": {"holdfast.io/taken": HOSTILE}},
        "spec": {"holderIdentity": "7"}})
    for path in ["/events", "/block-storage", "/volumes/web-data", "/etcd", "/"]:
        browser.open(path)
        if path in ["/events", "/block-storage"]:
            browser.shows(["window.pwned=1"], "the hostile words, as words")
        assert browser.run("window.pwned") is None, path
        assert browser.run("document.querySelectorAll('img').length") == 0, path
    browser.open("/block-storage")
    browser.shows(["backup_status", "available"], "both status fields")


def forms_of_others_do_nothing(browser):
    cookie = next(it for it in browser.call("Network.getCookies", urls=[URL])["cookies"]
                  if it["name"] == "holdfast_session")
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie
    headers = {"cookie": f"holdfast_session={cookie['value']}"}

    def post(more, form):
        request = urllib.request.Request(
            URL + "/volumes/web-data/delete", data=form, headers={**headers, **more})
        try:
            urllib.request.urlopen(request)
            return 200
        except urllib.error.HTTPError as error:
            return error.code
    assert post({}, b"") == 403
    assert post({}, b"csrf=guess") == 403
    assert post({"origin": "http://evil.example"}, b"") == 403
    assert post({"sec-fetch-site": "cross-site"}, b"") == 403
    assert post({"host": "evil.example"}, b"") == 421
    browser.open("/volumes/web-data")
    browser.shows(["Volume web-data"], "the volume is still there")


def headers_are_strict():
    answer = urllib.request.urlopen(URL + "/sign-in")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy, policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def a_tenant_sees_its_own(browser):
    core, rbac = client.CoreV1Api(), client.RbacAuthorizationV1Api()
    custom = client.CustomObjectsApi()
    for name in ["team-a", "team-b"]:
        core.create_namespace({"metadata": {"name": name}})
        custom.create_namespaced_custom_object(
            "oadp.openshift.io", "v1alpha1", name, "nonadminbackups",
            {"apiVersion": "oadp.openshift.io/v1alpha1", "kind": "NonAdminBackup",
             "metadata": {"name": f"of-{name}"}, "spec": {"backupSpec": {}}})
    core.create_namespaced_service_account("team-a", {"metadata": {"name": "ann"}})
    rbac.create_namespaced_role_binding("team-a", {
        "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "ann", "namespace": "team-a"}]})
    token = core.create_namespaced_service_account_token(
        "ann", "team-a", {"spec": {"audiences": []}}).status.token
    browser.press(".who button")
    assert browser.path() == "/sign-in"
    sign_in(browser, token)
    assert browser.path() == "/tenants", browser.text()
    browser.shows(["system:serviceaccount:team-a:ann", "of-team-a"], "the tenant's page")
    assert "of-team-b" not in browser.text(), browser.text()
    audit(browser, "/tenants of a tenant")
    for path in ["/volumes", "/backups", "/standby", "/targets", "/nodes", "/"]:
        browser.open(path)
        text = browser.text()
        assert "web-data" not in text and "second" not in text, f"{path}\n{text}"
    for path in ["/volumes/web-data", "/block-storage"]:
        browser.open(path)
        assert "Not allowed" in browser.text(), f"{path}\n{browser.text()}"
    browser.open("/events")
    assert "window.pwned" not in browser.text(), "events of others are shown"
    browser.open("/tenants")
    browser.form("back-up-namespace", name="mine")
    browser.shows(["Backup mine of team-a has been requested."], "the tenant's request")
    browser.row_says("team-a", "Completed")
    # A right that is taken away is gone here, too.
    rbac.delete_namespaced_role_binding("ann", "team-a")
    browser.open("/tenants")
    wait(lambda: "of-team-a" not in browser.text(), "the rights to be gone")
    browser.press(".who button")
    sign_in(browser, os.environ["BOB_TOKEN"], "team-b")
    browser.shows(["bob", "You may not list"], "a user without rights")
    browser.press(".who button")


def everybody_can_use_it(browser):
    sign_in(browser, os.environ["DASHBOARD_TOKEN"])
    for path in PAGES:
        for theme in ["light", "dark"]:
            browser.prefer(theme)
            browser.open(path)
            audit(browser, f"{path} {theme}")
        for width in [360, 1280]:
            browser.size(width, 800)
            over = browser.run("document.documentElement.scrollWidth - window.innerWidth")
            assert over <= 0, f"{path} is {over} px too wide for {width} px"
    browser.prefer("light")


def audit(browser, what):
    axe = os.environ.get("HOLDFAST_AXE")
    if not axe:
        return
    browser.run(open(axe).read() + "; true")
    found = browser.run("""axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a',
        'wcag21aa', 'best-practice']}).then((told) => told.violations.map((it) =>
        it.id + ': ' + it.nodes.map((node) => node.html + ' ' + node.failureSummary).join('; ')))""")
    assert found == [], f"{what}\n" + "\n".join(found)


def the_colours_can_be_chosen(browser):
    browser.open("/volumes")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    browser.prefer("light")
    light = browser.run(ground)
    browser.press(".theme button[value=dark]")
    assert browser.path() == "/volumes"
    assert browser.run(ground) != light, "dark was chosen"
    browser.press(".theme button[value=system]")
    assert browser.run(ground) == light, "the system prefers light"


def keys_are_enough(browser):
    browser.open("/volumes")

    def press(key, code):
        for kind in ["keyDown", "keyUp"]:
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                         windowsVirtualKeyCode=code, **text)
    press("Tab", 9)
    assert browser.run("document.activeElement.className") == "skip"
    for _ in range(40):
        press("Tab", 9)
        if browser.run("document.activeElement.tagName") == "SUMMARY":
            break
    press("Enter", 13)
    # A browser tells of a form that opened a moment later.
    wait(lambda: browser.run("document.activeElement.name") == "name",
         "the open form to have the focus")
    press("Escape", 27)
    wait(lambda: browser.run("document.activeElement.tagName") == "SUMMARY",
         "the closed form to give the focus back")
    assert not browser.run("document.getElementById('create-volume').open")


def pictures(browser, name):
    if not os.environ.get("HOLDFAST_SCREENSHOTS"):
        return
    for theme in ["light", "dark"]:
        browser.prefer(theme)
        for width, kind in [(1200, "wide"), (360, "narrow")]:
            browser.size(width, 800)
            browser.run("window.scrollTo(0, 0)")
            time.sleep(0.3)
            browser.picture(f"dashboard-{name}-{theme}-{kind}")
    browser.prefer("light")
    browser.size(1280, 800)


def all_pictures(browser):
    if not os.environ.get("HOLDFAST_SCREENSHOTS"):
        return
    # Something to look at: the same volume, backed up as it changes.
    for turn in range(5):
        write(attached("web-data"), turn * 2, turn + 1)
        browser.open("/volumes/web-data")
        browser.form("back-up", name=f"hourly-{turn}")
        browser.open("/backups")
        browser.row_says(f"hourly-{turn}", "completed")
    # Standby volumes have had theirs while there was one.
    for path in [it for it in PAGES if it != "/standby"]:
        name = {"/": "overview", "/volumes/web-data": "volume"}.get(path, path.strip("/"))
        browser.open(path)
        pictures(browser, name)


def main():
    config.load_kube_config()
    # What the browser still writes while it ends is of no interest.
    with tempfile.TemporaryDirectory(dir=os.environ.get("SCRATCH"),
                                     ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        try:
            browser.size(1280, 800)
            headers_are_strict()
            for check in [a_wrong_token_is_refused, a_volume_is_made, a_volume_is_backed_up,
                          a_backup_is_restored, a_standby_volume_takes_over, a_backup_is_deleted,
                          a_page_that_is_used_is_not_pulled_away, an_etcd_is_seen,
                          tables_fit, all_pictures, hostile_words_stay_words, forms_of_others_do_nothing,
                          the_colours_can_be_chosen, keys_are_enough, a_tenant_sees_its_own,
                          everybody_can_use_it]:
                began = time.monotonic()
                check(browser)
                print(f"{check.__name__}: {time.monotonic() - began:.1f} s", flush=True)
            assert browser.complaints == [], "\n".join(browser.complaints)
        finally:
            browser.close()
    if not os.environ.get("HOLDFAST_AXE"):
        print("skipped: HOLDFAST_AXE names no axe-core: accessibility was not checked")


if __name__ == "__main__":
    sys.exit(main())

"""A real Glance on loopback, its rows in a SQLite file and its images in a folder.

Usage: image.py FOLDER PORT IDENTITY_URL
Makes one public image of 1 MiB, prints "ready ID" when it answers, and ends with its standard input.
"""
import os
import pathlib
import subprocess
import sys
import threading

from keystoneauth1 import session
from keystoneauth1.identity import v3
from werkzeug.serving import make_server

folder, port, identity = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
PASSWORD = 'secret-of-the-tests'
IMAGE_BYTES = 1 << 20
url = f'http://127.0.0.1:{port}'
programs = pathlib.Path(sys.executable).parent

etc = folder / 'etc'
etc.mkdir(parents=True)
for place in ('images', 'staging', 'tasks', 'locks'):
    (folder / place).mkdir()
paste = programs.parent / 'etc/glance/glance-api-paste.ini'
(etc / 'glance-api.conf').write_text(f"""
[DEFAULT]
log_file = {folder}/glance.log
enabled_backends = files:file
worker_self_reference_url = {url}
node_staging_uri = file://{folder}/staging
[database]
connection = sqlite:///{folder}/glance.db
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = {folder}/images
[os_glance_staging_store]
filesystem_store_datadir = {folder}/staging
[os_glance_tasks_store]
filesystem_store_datadir = {folder}/tasks
[oslo_concurrency]
lock_path = {folder}/locks
[paste_deploy]
flavor = keystone
config_file = {paste}
[keystone_authtoken]
www_authenticate_uri = {identity}
auth_url = {identity}
auth_type = password
username = glance
password = {PASSWORD}
project_name = service
user_domain_name = Default
project_domain_name = Default
""")
with (folder / 'db_sync.log').open('w') as log:
    subprocess.run([programs / 'glance-manage', '--config-file', etc / 'glance-api.conf', 'db_sync'],
                   check=True, stdout=log, stderr=log)

os.environ['OS_GLANCE_CONFIG_DIR'] = str(etc)
sys.argv = sys.argv[:1]
from glance.common import wsgi_app  # noqa: E402  reads the variable above

server = make_server('127.0.0.1', port, wsgi_app.init_app(), threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()

admin = session.Session(auth=v3.Password(
    auth_url=identity, username='admin', password=PASSWORD, project_name='admin',
    user_domain_name='Default', project_domain_name='Default'))
made = admin.post(f'{url}/v2/images', json={
    'name': 'noise', 'disk_format': 'raw', 'container_format': 'bare', 'visibility': 'public',
    'min_disk': 0}).json()['id']
admin.put(f'{url}/v2/images/{made}/file', data=os.urandom(IMAGE_BYTES),
          headers={'Content-Type': 'application/octet-stream'})

print('ready', made, flush=True)
sys.stdin.read()

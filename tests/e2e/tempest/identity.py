"""A real Keystone on loopback, with its rows in a SQLite file: made, filled and served.

Usage: identity.py FOLDER PORT BLOCK_URL IMAGE_URL
Prints "ready" when it answers. Ends with its standard input.
"""
import json
import os
import pathlib
import sys
import threading
import traceback

from keystone.cmd import cli
from keystone.server import wsgi
from keystoneauth1 import session
from keystoneauth1.identity import v3
from werkzeug.serving import make_server

folder, port = pathlib.Path(sys.argv[1]), int(sys.argv[2])
block_url, image_url = sys.argv[3:5]
PASSWORD = 'secret-of-the-tests'
url = f'http://127.0.0.1:{port}/v3'

etc = folder / 'etc'
etc.mkdir(parents=True)
(etc / 'keystone.conf').write_text(f"""
[DEFAULT]
log_file = {folder}/keystone.log
[database]
connection = sqlite:///{folder}/keystone.db
[identity]
# The least that is allowed: these passwords protect nothing.
password_hash_rounds = 4
[cache]
enabled = false
[fernet_tokens]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credential
""")
for keys in ('fernet', 'credential'):
    (folder / keys).mkdir(mode=0o700)


def manage(*arguments):
    """A command of keystone-manage, in a child: its modules are read once, which takes seconds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            cli.main(['keystone-manage', '--config-file', str(etc / 'keystone.conf'), *arguments])
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f'keystone-manage {arguments[0]} failed')


manage('db_sync')
me = ('--keystone-user', str(os.getuid()), '--keystone-group', str(os.getgid()))
manage('fernet_setup', *me)
manage('credential_setup', *me)
manage('bootstrap', '--bootstrap-password', PASSWORD, '--bootstrap-region-id', 'RegionOne',
       '--bootstrap-public-url', url, '--bootstrap-internal-url', url, '--bootstrap-admin-url', url)

os.environ['OS_KEYSTONE_CONFIG_DIR'] = str(etc)
sys.argv = sys.argv[:1]
server = make_server('127.0.0.1', port, wsgi.initialize_public_application(), threaded=True)
threading.Thread(target=server.serve_forever, daemon=True).start()

admin = session.Session(auth=v3.Password(
    auth_url=url, username='admin', password=PASSWORD, project_name='admin',
    user_domain_name='Default', project_domain_name='Default'))


def make(kind, **fields):
    answer = admin.post(f'{url}/{kind}s', json={kind: fields})
    return answer.json()[kind]['id']


roles = {it['name']: it['id'] for it in admin.get(f'{url}/roles').json()['roles']}
service = make('project', name='service', domain_id='default')
for name in ('cinder', 'glance'):
    user = make('user', name=name, password=PASSWORD, domain_id='default', default_project_id=service)
    for role in ('admin', 'service'):
        admin.put(f'{url}/projects/{service}/users/{user}/roles/{roles[role]}')
for kind, name, place in [('volumev3', 'cinderv3', f'{block_url}/v3/$(project_id)s'),
                          ('image', 'glance', image_url)]:
    made = make('service', type=kind, name=name)
    for interface in ('public', 'internal', 'admin'):
        make('endpoint', service_id=made, interface=interface, region_id='RegionOne', url=place)

# Who the tests act as: made once, since a user for each class of tests takes longer than the tests.
# The order matters: what is asked for without a role is the first that is free.
accounts, projects = [], {}
for name, where, kind in [('m1', 'p1', 'member'), ('m2', 'p2', 'member'), ('r1', 'p1', 'reader'),
                          ('r2', 'p2', 'reader'), ('a1', 'p3', 'admin')]:
    if name[0] in 'ma':
        projects[where] = make('project', name=where, domain_id='default')
    user = make('user', name=name, password=PASSWORD, domain_id='default')
    admin.put(f'{url}/projects/{projects[where]}/users/{user}/roles/{roles[kind]}')
    accounts.append({'username': name, 'project_name': where, 'password': PASSWORD,
                     'domain_name': 'Default', 'roles': [kind]})
(folder / 'accounts.yaml').write_text(json.dumps(accounts))

print('ready', flush=True)
sys.stdin.read()

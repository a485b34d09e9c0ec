"""The two use cases of a backup that blocks nobody, through openstacksdk: a live migration of an
attachment and a resize, both while a backup runs; at the newest microversion and the one before.

Usage: block_api.py URL PROJECT
"""
import os
import sys
import tempfile
import time
import uuid

import openstack

url, project = sys.argv[1:3]
PATIENCE = 120
# Disks with less room than this percentage take no replicas.
ROOM = 26

disk = os.statvfs(tempfile.gettempdir())
room = 100 * disk.f_bavail / (disk.f_blocks - disk.f_bfree + disk.f_bavail)
if room < ROOM:
    print(f'skipped: {room:.0f} % of the disk are free, and volumes want {ROOM}')
    sys.exit()


def connect(version):
    return openstack.connect(
        auth_type='admin_token', auth={'endpoint': f'{url}/v3/{project}', 'token': f'admin:{project}'},
        block_storage_api_version='3', block_storage_default_microversion=version).block_storage


new, old = connect('3.72'), connect('3.71')


def call(method, path, body=None, version='3.72', ok=True):
    answer = new.request(path, method, json=body, headers={'OpenStack-API-Version': 'volume ' + version})
    assert not ok or answer.status_code < 300, (method, path, answer.status_code, answer.text)
    return answer


def volume(ident, version='3.72'):
    return call('GET', f'/volumes/{ident}', version=version).json()['volume']


def wait(what, look):
    end = time.time() + PATIENCE
    while time.time() < end:
        if look():
            return
        time.sleep(.2)
    raise SystemExit(f'waited {PATIENCE} s for {what}')


def both(ident):
    seen = volume(ident)
    return seen['status'], seen['backup_status']


def create(**fields):
    return call('POST', '/volumes', {'volume': {'size': 1, **fields}}).json()['volume']['id']


first = create(name='first')
end = time.time() + 30
while volume(first)['status'] == 'creating' and time.time() < end:
    time.sleep(.2)
if volume(first)['status'] == 'creating':
    print('skipped: nothing acts on volumes in this build')
    sys.exit()
assert both(first) == ('available', None), both(first)

server = str(uuid.uuid4())
one = call('POST', '/attachments', {'attachment': {
    'volume_uuid': first, 'instance_uuid': server, 'connector': {'host': 'here'}}}).json()['attachment']
assert one['connection_info']['uri'].startswith('nbd'), one
call('POST', f'/attachments/{one["id"]}/action', {'os-complete': {}})
assert both(first) == ('in-use', None), both(first)

assert call('POST', '/backups', {'backup': {'volume_id': first}}, ok=False).status_code == 400
backup = call('POST', '/backups', {'backup': {'volume_id': first, 'force': True}}).json()['backup']['id']
state = both(first)
if state == ('in-use', 'backing-up'):
    assert volume(first, '3.71')['status'] in ('backing-up', 'in-use')
    assert call('POST', '/backups', {'backup': {'volume_id': first, 'force': True}}, ok=False).status_code == 400
    assert call('DELETE', f'/volumes/{first}', ok=False).status_code == 400
two = call('POST', '/attachments', {'attachment': {
    'volume_uuid': first, 'instance_uuid': server}}, version='3.54').json()['attachment']
call('POST', f'/attachments/{two["id"]}/action', {'os-complete': {}}, version='3.54')
call('DELETE', f'/attachments/{one["id"]}', version='3.54')
call('POST', f'/volumes/{first}/action', {'os-extend': {'new_size': 2}}, version='3.71')
wait('the backup', lambda: call('GET', f'/backups/{backup}').json()['backup']['status'] in ('available', 'error'))
saved = call('GET', f'/backups/{backup}').json()['backup']
assert saved['status'] == 'available', saved
wait('the end of both', lambda: both(first) == ('in-use', None))
assert volume(first)['size'] == 2
print('ok a live migration and a resize beside a backup')

restored = call('POST', f'/backups/{backup}/restore', {'restore': {}}).json()['restore']['volume_id']
wait('the restore', lambda: both(restored) == ('available', None))
call('DELETE', f'/attachments/{two["id"]}')
assert both(first) == ('available', None), both(first)
call('DELETE', f'/backups/{backup}')
wait('the backup to go', lambda: call('GET', f'/backups/{backup}', ok=False).status_code == 404)
for ident in (first, restored):
    call('DELETE', f'/volumes/{ident}')
    wait('a volume to go', lambda: call('GET', f'/volumes/{ident}', ok=False).status_code == 404)
print('ok restored and removed')

"""The two use cases of a backup that blocks nobody, through openstacksdk: a live migration of an
attachment and a resize, both while a backup runs, which the limit of the backup rate makes last; at the
newest microversion and the one before. Then copies of volumes and a revert.

Usage: block_api.py URL PROJECT
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid

import openstack

url, project = sys.argv[1:3]
PATIENCE = 600
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
end = time.time() + PATIENCE
while volume(first)['status'] == 'creating' and time.time() < end:
    time.sleep(.2)
if volume(first)['status'] == 'creating':
    print('skipped: nothing acts on volumes in this build')
    sys.exit()
assert both(first) == ('available', None), both(first)

call('DELETE', f'/volumes/{first}')

SIZE = 12 << 20
# Bytes a second: the backup takes at least this much longer than all that is done beside it.
RATE = 256 << 10


def limit(rate):
    """What backups may send to their target a second; 0: anything."""
    patch = '{"spec": {"bytesPerSecond": "%d"}}' % rate
    subprocess.run(['kubectl', '-n', 'longhorn-system', 'patch', 'backuptargets.longhorn.io',
                    'block-storage', '--type', 'merge', '-p', patch], check=True,
                   stdout=subprocess.DEVNULL)


def io(uri, command):
    subprocess.run(['qemu-io', '-f', 'raw', '-c', command, uri], check=True, stdout=subprocess.DEVNULL)


def write(uri, data):
    with tempfile.NamedTemporaryFile() as source:
        source.write(data)
        source.flush()
        io(uri, f'write -s {source.name} 0 {len(data)}')


def read(uri, size):
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, 'data')
        subprocess.run(['qemu-img', 'dd', '-f', 'raw', '-O', 'raw', 'bs=1M', f'count={size >> 20}',
                        f'if={uri}', f'of={target}'], check=True, stdout=subprocess.DEVNULL)
        with open(target, 'rb') as data:
            return data.read()


def attach(ident, server, version, host):
    sdk = new if version == '3.72' else old
    made = sdk.create_attachment(ident, connector={'host': host}, instance=server)
    uri = call('GET', f'/attachments/{made.id}', version=version).json()['attachment']['connection_info']['uri']
    call('POST', f'/attachments/{made.id}/action', {'os-complete': {}}, version=version)
    return made.id, uri


def content(ident):
    """What a volume holds at its beginning, read as a server would."""
    attachment, uri = attach(ident, str(uuid.uuid4()), '3.72', 'reader')
    data = read(uri, SIZE)
    new.delete_attachment(attachment)
    return data


def beside_a_backup(version):
    sdk = new if version == '3.72' else old
    ident = sdk.create_volume(size=1, name='use-cases').id
    wait('the volume', lambda: both(ident) == ('available', None))
    server = str(uuid.uuid4())
    source, uri = attach(ident, server, version, 'compute1')
    before, after = os.urandom(SIZE), os.urandom(SIZE)
    write(uri, before)
    limit(RATE)
    backup = sdk.create_backup(volume_id=ident, force=True).id
    # From here on the backup is of what was written before.
    wait('the moment of the backup', lambda: call(
        'GET', f'/backups/{backup}').json()['backup']['data_timestamp'] is not None)
    wait('the upload', lambda: subprocess.run(
        ['kubectl', '-n', 'longhorn-system', 'get', f'backups.longhorn.io/backup-{backup}', '-o',
         'jsonpath={.status.state}'], capture_output=True, text=True).stdout == 'InProgress')
    assert both(ident) == ('in-use', 'backing-up'), both(ident)
    assert volume(ident, '3.71')['status'] == 'backing-up'
    assert call('POST', '/backups', {'backup': {'volume_id': ident, 'force': True}}, version, ok=False).status_code == 400
    assert call('DELETE', f'/volumes/{ident}', version=version, ok=False).status_code == 400
    # Use case 1: the server moves to another host.
    target, uri = attach(ident, server, version, 'compute2')
    sdk.delete_attachment(source)
    assert both(ident) == ('in-use', 'backing-up'), both(ident)
    # Use case 2: it needs more room, and goes on writing.
    call('POST', f'/volumes/{ident}/action', {'os-extend': {'new_size': 2}}, version=version)
    wait('the extension', lambda: volume(ident)['size'] == 2 and volume(ident)['status'] == 'in-use')
    write(uri, after)
    running = call('GET', f'/backups/{backup}').json()['backup']['status']
    assert running == 'creating', f'the backup ended too early for this test: {running}'
    assert both(ident) == ('in-use', 'backing-up'), both(ident)
    limit(0)
    wait('the backup', lambda: call('GET', f'/backups/{backup}').json()['backup']['status'] != 'creating')
    saved = call('GET', f'/backups/{backup}').json()['backup']
    assert (saved['status'], saved['size']) == ('available', 1), saved
    wait('the end of both', lambda: both(ident) == ('in-use', None))
    sdk.delete_attachment(target)
    wait('the detachment', lambda: both(ident) == ('available', None))
    restored = sdk.restore_backup(backup, volume_id=None, name='restored').volume_id
    wait('the restore', lambda: both(restored) == ('available', None))
    assert content(restored) == before, 'the backup is not of the moment it was taken at'
    assert content(ident) == after
    print(f'ok a live migration and a resize beside a backup, at {version}')
    return ident, restored, backup


def gone(path):
    call('DELETE', path)
    wait(f'{path} to go', lambda: call('GET', path, ok=False).status_code == 404)


if not shutil.which('kubectl') or not shutil.which('qemu-io'):
    print('skipped: no kubectl or no qemu-io, so nothing was done beside a backup')
    sys.exit()
for version in ('3.72', '3.71'):
    ident, restored, backup = beside_a_backup(version)
    gone(f'/backups/{backup}')
    gone(f'/volumes/{restored}')
    if version == '3.72':
        gone(f'/volumes/{ident}')

# A copy of the volume, a snapshot, a copy of that, and the way back to it.
kept = content(ident)
clone = create(size=2, source_volid=ident)
wait('the copy', lambda: both(clone)[0] in ('available', 'error'))
assert both(clone)[0] == 'available', call('GET', '/messages').json()
assert content(clone) == kept
snapshot = call('POST', '/snapshots', {'snapshot': {'volume_id': ident}}).json()['snapshot']['id']
wait('the snapshot', lambda: call('GET', f'/snapshots/{snapshot}').json()['snapshot']['status'] == 'available')
attachment, uri = attach(ident, str(uuid.uuid4()), '3.72', 'writer')
write(uri, os.urandom(SIZE))
new.delete_attachment(attachment)
wait('the detachment', lambda: both(ident) == ('available', None))
other = create(size=2, snapshot_id=snapshot)
wait('the volume of the snapshot', lambda: both(other)[0] in ('available', 'error'))
assert both(other)[0] == 'available', call('GET', '/messages').json()
assert content(other) == kept
call('POST', f'/volumes/{ident}/action', {'revert': {'snapshot_id': snapshot}})
wait('the revert', lambda: both(ident)[0] in ('available', 'error'))
assert content(ident) == kept
print('ok a copy, a volume of a snapshot, and a revert')
gone(f'/snapshots/{snapshot}')
for one in (ident, clone, other):
    gone(f'/volumes/{one}')
print('ok removed')

"""Every operation on real volumes, cut short by a kill of the server: begun in one run, looked at in
another. Rows must have come to an end, and to a good one where nothing was lost.

Usage: block_crash.py URL PROJECT FILE prepare | begin SECONDS | check
"""
import json
import sys
import time

import requests

url, project, path, step = sys.argv[1:5]
PATIENCE = 600
session = requests.Session()
session.headers = {'X-Auth-Token': f'admin:{project}', 'OpenStack-API-Version': 'volume 3.72'}


def call(method, place, body=None, ok=True):
    answer = session.request(method, f'{url}/v3{place}', json=body, timeout=60)
    assert not ok or answer.status_code < 300, (method, place, answer.status_code, answer.text)
    return answer


def wait(what, look):
    end = time.time() + PATIENCE
    while time.time() < end:
        if look():
            return
        time.sleep(.3)
    raise SystemExit(f'waited {PATIENCE} s for {what}')


def both(ident):
    answer = call('GET', f'/volumes/{ident}', ok=False)
    if answer.status_code == 404:
        return 'gone', None
    seen = answer.json()['volume']
    return seen['status'], seen['backup_status']


def volume(**fields):
    return call('POST', '/volumes', {'volume': {'size': 1, **fields}}).json()['volume']['id']


def status(kind, ident):
    answer = call('GET', f'/{kind}s/{ident}', ok=False)
    return 'gone' if answer.status_code == 404 else answer.json()[kind]['status']


def prepare():
    quota = {'volumes': -1, 'gigabytes': -1, 'snapshots': -1, 'backups': -1, 'backup_gigabytes': -1}
    call('PUT', f'/os-quota-sets/{project}', {'quota_set': quota})
    names = ['extended', 'snapped', 'saved', 'restored', 'deleted']
    known = {name: volume(name=name) for name in names}
    for name in names:
        wait(name, lambda: both(known[name]) == ('available', None))
    known['backup'] = call('POST', '/backups', {'backup': {'volume_id': known['saved']}}).json()['backup']['id']
    wait('a backup', lambda: status('backup', known['backup']) == 'available')
    return known


def begin(known):
    known['made'] = volume(name='made')
    call('POST', f'/volumes/{known["extended"]}/action', {'os-extend': {'new_size': 2}})
    body = {'snapshot': {'volume_id': known['snapped']}}
    known['snapshot'] = call('POST', '/snapshots', body).json()['snapshot']['id']
    known['copy'] = volume(name='copy', source_volid=known['snapped'])
    body = {'restore': {'volume_id': known['restored']}}
    call('POST', f'/backups/{known["backup"]}/restore', body)
    body = {'backup': {'volume_id': known['saved']}}
    known['cut'] = call('POST', '/backups', body).json()['backup']['id']
    call('DELETE', f'/volumes/{known["deleted"]}')
    # Until the kill.
    time.sleep(float(sys.argv[5]))
    return known


def check(known):
    wait('a volume to be made', lambda: both(known['made']) == ('available', None))
    wait('an extension', lambda: both(known['extended']) == ('available', None))
    assert call('GET', f'/volumes/{known["extended"]}').json()['volume']['size'] == 2
    wait('a snapshot', lambda: status('snapshot', known['snapshot']) == 'available')
    wait('a copy', lambda: both(known['copy']) == ('available', None))
    wait('a deletion', lambda: both(known['deleted'])[0] == 'gone')
    wait('a backup', lambda: status('backup', known['cut']) in ('available', 'error'))
    cut = call('GET', f'/backups/{known["cut"]}').json()['backup']
    mark = both(known['saved'])
    assert mark in (('available', None), ('available', 'error_backing-up')), mark
    wait('a restore', lambda: status('backup', known['backup']) == 'available')
    restored = both(known['restored'])
    assert restored in (('available', None), ('available', 'error_restoring')), restored
    print(f'ok after the kill: backup {cut["status"]} ({cut["fail_reason"]}), restore {restored[1]}')
    # Nothing keeps anybody from going on.
    for ident in (known['cut'], known['backup']):
        call('DELETE', f'/backups/{ident}')
    call('DELETE', f'/snapshots/{known["snapshot"]}')
    wait('the snapshot to go', lambda: status('snapshot', known['snapshot']) == 'gone')
    for name in ('made', 'extended', 'copy', 'snapped', 'saved', 'restored'):
        call('DELETE', f'/volumes/{known[name]}')
    for name in ('made', 'extended', 'copy', 'snapped', 'saved', 'restored'):
        wait(f'{name} to go', lambda: both(known[name])[0] == 'gone')
    for ident in (known['cut'], known['backup']):
        wait('a backup to go', lambda: status('backup', ident) == 'gone')
    return known


if step == 'prepare':
    known = prepare()
else:
    with open(path) as file:
        known = {'begin': begin, 'check': check}[step](json.load(file))
with open(path, 'w') as file:
    json.dump(known, file)

"""A volume that is reached inside TLS, as the Block Storage API tells it: its connection info holds whom to
believe, a stock NBD client reads it by that, and nobody gets it without TLS.

Usage: block_tls.py URL PROJECT
"""
import os
import subprocess
import sys
import tempfile
import time
import uuid

import openstack

url, project = sys.argv[1:3]
TIMEOUT = 300
api = openstack.connect(
    auth_type='admin_token', auth={'endpoint': f'{url}/v3/{project}', 'token': f'admin:{project}'},
    block_storage_api_version='3', block_storage_default_microversion='3.72').block_storage

volume = api.create_volume(size=1, name='inside')
end = time.time() + TIMEOUT
while (status := api.get_volume(volume.id).status) != 'available':
    assert status == 'creating' and time.time() < end, f'the volume is {status}'
    time.sleep(.2)
made = api.create_attachment(volume.id, connector={'host': 'h'}, instance=str(uuid.uuid4()))
info = api.get(f'/attachments/{made.id}').json()['attachment']['connection_info']
assert info['uri'].startswith('nbds://') and info['tls']['required'] is True, info


def size(uri):
    return subprocess.run(['nbdinfo', '--size', uri], capture_output=True, text=True, check=False)


with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, 'ca-cert.pem'), 'w', encoding='ascii') as file:
        file.write(info['tls']['ca_certificate'])
    inside = size(f"{info['uri']}?tls-certificates={folder}")
assert inside.stdout.strip() == str(1 << 30), inside
plain = size(info['uri'].replace('nbds://', 'nbd://'))
assert plain.returncode != 0, plain
print('ok a volume inside TLS')

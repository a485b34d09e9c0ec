CREATE INDEX volume_metadata_by_pair ON volume_metadata (key, value, volume_id);
CREATE INDEX snapshot_metadata_by_pair ON snapshot_metadata (key, value, snapshot_id);
CREATE INDEX backup_metadata_by_pair ON backup_metadata (key, value, backup_id);

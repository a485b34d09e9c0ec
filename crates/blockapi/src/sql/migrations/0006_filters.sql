CREATE INDEX volumes_by_size ON volumes (deleted, project_id, size, created_at, id, use_quota);
CREATE INDEX volumes_by_bootable ON volumes (deleted, project_id, bootable, created_at, id);
CREATE INDEX volumes_by_zone ON volumes (deleted, project_id, availability_zone, created_at, id);
CREATE INDEX volumes_by_migration ON volumes (deleted, project_id, migration_status, created_at, id)
  WHERE migration_status IS NOT NULL;
CREATE INDEX volumes_by_group ON volumes (deleted, project_id, group_id, created_at, id)
  WHERE group_id IS NOT NULL;
CREATE INDEX volumes_without_quota ON volumes (deleted, project_id, created_at, id) WHERE use_quota = 0;
CREATE INDEX volumes_by_shown_name ON volumes (deleted, project_id, COALESCE(display_name, ''), created_at, id);
CREATE INDEX volumes_of_all_by_status ON volumes (deleted, status, created_at, id);
CREATE INDEX volumes_by_source ON volumes (source_volid, deleted, status) WHERE source_volid IS NOT NULL;
CREATE INDEX volumes_by_snapshot ON volumes (snapshot_id, deleted, status) WHERE snapshot_id IS NOT NULL;
CREATE INDEX snapshots_of_volume ON snapshots (volume_id, deleted, created_at, id);
CREATE INDEX snapshots_by_status ON snapshots (deleted, project_id, status, created_at, id);
CREATE INDEX snapshots_by_name ON snapshots (deleted, project_id, display_name, created_at, id);
CREATE INDEX snapshots_without_quota ON snapshots (deleted, project_id, created_at, id) WHERE use_quota = 0;
CREATE INDEX snapshots_by_time ON snapshots (deleted, created_at, id);
CREATE INDEX snapshots_by_provider ON snapshots (provider_id, deleted) WHERE provider_id IS NOT NULL;
CREATE INDEX backups_of_volume ON backups (volume_id, deleted, created_at, id);
CREATE INDEX backups_by_status ON backups (deleted, project_id, status, created_at, id);
CREATE INDEX backups_by_name ON backups (deleted, project_id, display_name, created_at, id);
CREATE INDEX backups_by_time ON backups (deleted, created_at, id);
CREATE INDEX backups_by_record ON backups (service_metadata, deleted) WHERE service_metadata IS NOT NULL;
CREATE INDEX volume_attachment_by_time ON volume_attachment (deleted, created_at, id);
CREATE INDEX volume_attachment_by_server ON volume_attachment (instance_uuid, deleted, created_at, id)
  WHERE instance_uuid IS NOT NULL;
CREATE INDEX volume_attachment_of_volume ON volume_attachment (volume_id, deleted, created_at, id);
CREATE INDEX messages_by_resource ON messages (deleted, project_id, resource_uuid, created_at, id);
CREATE INDEX messages_by_time ON messages (deleted, created_at, id);
CREATE INDEX messages_by_end ON messages (deleted, expires_at);

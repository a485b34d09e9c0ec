CREATE TABLE volume_types (
  id TEXT NOT NULL PRIMARY KEY, name TEXT, description TEXT, is_public BIGINT NOT NULL DEFAULT 1,
  created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT, deleted BIGINT NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX volume_types_name ON volume_types (name) WHERE deleted = 0;
CREATE TABLE volume_type_extra_specs (
  volume_type_id TEXT NOT NULL REFERENCES volume_types (id), key TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (volume_type_id, key));
CREATE TABLE volume_type_projects (
  volume_type_id TEXT NOT NULL REFERENCES volume_types (id), project_id TEXT NOT NULL,
  PRIMARY KEY (volume_type_id, project_id));
CREATE TABLE default_volume_types (
  project_id TEXT NOT NULL PRIMARY KEY, volume_type_id TEXT NOT NULL REFERENCES volume_types (id));
CREATE TABLE volumes (
  id TEXT NOT NULL PRIMARY KEY, name_id TEXT, use_quota BIGINT NOT NULL DEFAULT 1,
  user_id TEXT, project_id TEXT NOT NULL, snapshot_id TEXT, host TEXT, cluster_name TEXT,
  size BIGINT NOT NULL, availability_zone TEXT, status TEXT NOT NULL, attach_status TEXT,
  migration_status TEXT, previous_status TEXT, scheduled_at TEXT, launched_at TEXT, terminated_at TEXT,
  display_name TEXT, display_description TEXT, provider_location TEXT, provider_id TEXT,
  volume_type_id TEXT NOT NULL, source_volid TEXT, encryption_key_id TEXT, consistencygroup_id TEXT,
  group_id TEXT, bootable BIGINT NOT NULL DEFAULT 0, multiattach BIGINT NOT NULL DEFAULT 0,
  replication_status TEXT, service_uuid TEXT, shared_targets BIGINT,
  created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT, deleted BIGINT NOT NULL DEFAULT 0);
CREATE INDEX volumes_by_project ON volumes (deleted, project_id, created_at, id);
CREATE INDEX volumes_by_time ON volumes (deleted, created_at, id);
CREATE INDEX volumes_by_status ON volumes (deleted, project_id, status, created_at, id);
CREATE INDEX volumes_by_type ON volumes (volume_type_id, deleted);
CREATE TABLE volume_metadata (
  volume_id TEXT NOT NULL REFERENCES volumes (id), key TEXT NOT NULL, value TEXT,
  PRIMARY KEY (volume_id, key));
CREATE TABLE volume_admin_metadata (
  volume_id TEXT NOT NULL REFERENCES volumes (id), key TEXT NOT NULL, value TEXT,
  PRIMARY KEY (volume_id, key));
CREATE TABLE volume_glance_metadata (
  volume_id TEXT NOT NULL REFERENCES volumes (id), key TEXT NOT NULL, value TEXT,
  PRIMARY KEY (volume_id, key));
CREATE TABLE volume_attachment (
  id TEXT NOT NULL PRIMARY KEY, volume_id TEXT NOT NULL REFERENCES volumes (id), instance_uuid TEXT,
  attached_host TEXT, mountpoint TEXT, attach_time TEXT, detach_time TEXT, attach_status TEXT NOT NULL,
  attach_mode TEXT, connection_info TEXT, connector TEXT,
  created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT, deleted BIGINT NOT NULL DEFAULT 0);
CREATE INDEX volume_attachment_by_volume ON volume_attachment (volume_id, deleted);
CREATE TABLE snapshots (
  id TEXT NOT NULL PRIMARY KEY, use_quota BIGINT NOT NULL DEFAULT 1, user_id TEXT,
  project_id TEXT NOT NULL, volume_id TEXT NOT NULL REFERENCES volumes (id), group_snapshot_id TEXT,
  status TEXT NOT NULL, progress TEXT, volume_size BIGINT NOT NULL, display_name TEXT,
  display_description TEXT, encryption_key_id TEXT, volume_type_id TEXT, provider_id TEXT,
  created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT, deleted BIGINT NOT NULL DEFAULT 0);
CREATE INDEX snapshots_by_volume ON snapshots (volume_id, deleted);
CREATE INDEX snapshots_by_project ON snapshots (deleted, project_id, created_at, id);
CREATE TABLE snapshot_metadata (
  snapshot_id TEXT NOT NULL REFERENCES snapshots (id), key TEXT NOT NULL, value TEXT,
  PRIMARY KEY (snapshot_id, key));
CREATE TABLE backups (
  id TEXT NOT NULL PRIMARY KEY, user_id TEXT, project_id TEXT NOT NULL, volume_id TEXT NOT NULL,
  host TEXT, availability_zone TEXT, display_name TEXT, display_description TEXT, container TEXT,
  parent_id TEXT, status TEXT NOT NULL, fail_reason TEXT, service_metadata TEXT, service TEXT,
  size BIGINT NOT NULL, object_count BIGINT NOT NULL DEFAULT 0, temp_volume_id TEXT,
  temp_snapshot_id TEXT, num_dependent_backups BIGINT NOT NULL DEFAULT 0, snapshot_id TEXT,
  data_timestamp TEXT, restore_volume_id TEXT, encryption_key_id TEXT,
  created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT, deleted BIGINT NOT NULL DEFAULT 0);
CREATE INDEX backups_by_volume ON backups (volume_id, deleted);
CREATE INDEX backups_by_project ON backups (deleted, project_id, created_at, id);
CREATE INDEX backups_by_parent ON backups (parent_id, deleted);
CREATE TABLE backup_metadata (
  backup_id TEXT NOT NULL REFERENCES backups (id), key TEXT NOT NULL, value TEXT,
  PRIMARY KEY (backup_id, key));
CREATE TABLE quotas (
  project_id TEXT NOT NULL, resource TEXT NOT NULL, hard_limit BIGINT,
  PRIMARY KEY (project_id, resource));
CREATE TABLE quota_classes (
  class_name TEXT NOT NULL, resource TEXT NOT NULL, hard_limit BIGINT,
  PRIMARY KEY (class_name, resource));
CREATE TABLE services (
  uuid TEXT NOT NULL PRIMARY KEY, host TEXT NOT NULL, "binary" TEXT NOT NULL, topic TEXT,
  report_count BIGINT NOT NULL DEFAULT 0, disabled BIGINT NOT NULL DEFAULT 0, availability_zone TEXT,
  disabled_reason TEXT, modified_at TEXT, rpc_current_version TEXT, object_current_version TEXT,
  replication_status TEXT, active_backend_id TEXT, frozen BIGINT NOT NULL DEFAULT 0,
  created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT, deleted BIGINT NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX services_by_host ON services (host, "binary") WHERE deleted = 0;
CREATE TABLE messages (
  id TEXT NOT NULL PRIMARY KEY, project_id TEXT NOT NULL, message_level TEXT, request_id TEXT,
  resource_type TEXT, resource_uuid TEXT, event_id TEXT, action_id TEXT, detail_id TEXT,
  expires_at TEXT, created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT,
  deleted BIGINT NOT NULL DEFAULT 0);
CREATE INDEX messages_by_project ON messages (deleted, project_id, created_at, id);
CREATE TABLE transfers (
  id TEXT NOT NULL PRIMARY KEY, volume_id TEXT NOT NULL REFERENCES volumes (id), display_name TEXT,
  salt TEXT, crypt_hash TEXT, expires_at TEXT, no_snapshots BIGINT NOT NULL DEFAULT 0,
  source_project_id TEXT, destination_project_id TEXT, accepted BIGINT NOT NULL DEFAULT 0,
  created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT, deleted BIGINT NOT NULL DEFAULT 0);
CREATE INDEX transfers_by_volume ON transfers (volume_id, deleted);
CREATE TABLE workers (
  id TEXT NOT NULL PRIMARY KEY, resource_type TEXT NOT NULL, resource_id TEXT NOT NULL,
  status TEXT NOT NULL, detail TEXT, request_id TEXT, owner TEXT, lease_until TEXT,
  attempts BIGINT NOT NULL DEFAULT 0, not_before TEXT,
  created_at TEXT NOT NULL, updated_at TEXT);
CREATE UNIQUE INDEX workers_by_resource ON workers (resource_type, resource_id);

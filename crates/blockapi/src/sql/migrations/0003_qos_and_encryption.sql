CREATE TABLE qos_specs (
  id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, consumer TEXT NOT NULL,
  created_at TEXT NOT NULL, updated_at TEXT, deleted_at TEXT, deleted BIGINT NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX qos_specs_name ON qos_specs (name) WHERE deleted = 0;
CREATE TABLE qos_spec_values (
  qos_specs_id TEXT NOT NULL REFERENCES qos_specs (id), key TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY (qos_specs_id, key));
ALTER TABLE volume_types ADD COLUMN qos_specs_id TEXT;
CREATE INDEX volume_types_by_qos ON volume_types (qos_specs_id, deleted);
CREATE TABLE volume_type_encryption (
  volume_type_id TEXT NOT NULL PRIMARY KEY REFERENCES volume_types (id), encryption_id TEXT NOT NULL,
  provider TEXT NOT NULL, cipher TEXT, key_size BIGINT, control_location TEXT NOT NULL,
  created_at TEXT NOT NULL, updated_at TEXT);
CREATE INDEX volumes_by_backup ON volumes (project_id, backup_status) WHERE backup_status IS NOT NULL;

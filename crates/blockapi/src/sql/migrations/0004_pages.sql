CREATE INDEX volumes_by_name ON volumes (deleted, project_id, display_name, created_at, id);
CREATE INDEX volumes_by_shown_backup ON volumes (deleted, project_id,
  (CASE WHEN status IN ('backing-up', 'error_backing-up', 'restoring-backup', 'error_restoring')
    THEN status ELSE backup_status END), created_at, id);

ALTER TABLE volumes ADD COLUMN backup_status TEXT;

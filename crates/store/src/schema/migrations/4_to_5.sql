-- What functions mean. What those of earlier sessions mean follows from their names: see `older_ops.rs`.
ALTER TABLE ops ADD COLUMN is_launch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ops ADD COLUMN is_async INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ops ADD COLUMN is_wait INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ops ADD COLUMN is_followed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ops ADD COLUMN memory TEXT;
ALTER TABLE ops ADD COLUMN graph_step TEXT;

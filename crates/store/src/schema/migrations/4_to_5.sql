-- What a note is about. Until now only its first word told.
ALTER TABLE warnings ADD COLUMN kind TEXT NOT NULL DEFAULT 'other';
UPDATE warnings SET kind = 'attached' WHERE text GLOB 'attached *' OR text GLOB 'tracing *';

-- What was found when a session ended. Nothing was kept in earlier sessions.
CREATE TABLE explanations (
  session_id INTEGER PRIMARY KEY,
  at_ns INTEGER NOT NULL,
  version TEXT NOT NULL,
  explanation TEXT NOT NULL
) STRICT;

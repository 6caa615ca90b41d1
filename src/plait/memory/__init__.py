"""Memory that outlives a session, with provenance, scopes and rollback."""

"""Learning: playbooks and edits that are kept only while they are measured to help (`docs/learning.md`)."""

"""The observer: operations as facts, failures grouped and diagnosed, drafts of playbooks from successes."""

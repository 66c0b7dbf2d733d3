"""Playbooks: lessons with a trigger, a control arm and a measured effect."""

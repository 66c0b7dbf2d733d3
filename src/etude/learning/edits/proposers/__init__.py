"""Proposers: each looks at the failures of a suite and proposes edits. All but `model` work without a model."""

"""Edits of code: proposed, tested in pairs, merged or dropped, watched and reverted."""

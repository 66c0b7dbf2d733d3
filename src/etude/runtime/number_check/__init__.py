"""Find, parse and look up the numbers of an answer; `etude.runtime.number_check.check` is the entry point."""

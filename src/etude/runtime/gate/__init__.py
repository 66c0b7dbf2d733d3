"""Find, parse and look up the numbers of an answer; `etude.runtime.numbers` is the entry point."""

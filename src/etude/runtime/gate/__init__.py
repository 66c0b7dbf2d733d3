"""How the numbers of an answer are found, read and looked up; `etude.runtime.numbers` is the way in."""

"""Search by meaning and by word: what is indexed, how it is ranked, and why something was found."""

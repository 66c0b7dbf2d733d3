"""The kinds of agents that come with etude, one file each."""

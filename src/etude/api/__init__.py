"""The HTTP surface: one API for people, programs and agents. `server.create_app` makes it from an `App`."""

"""`etude serve`: the API, the worker and the observer in one process."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from etude.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from etude.app import App

EXAMPLES = (
    "etude serve shop.duckdb",
    "etude serve shop crm --host 0.0.0.0 --port 8520 --keys",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", nargs="*", metavar="SOURCE", help="data to serve in addition to the named sources")
    parser.add_argument("--host", help="the address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=parse_serve_port, help="the port (8520); 0 picks a free one")
    parser.add_argument("--keys", action="store_true", help="require keys on the loopback interface as well")
    parser.add_argument(
        "--no-keys", action="store_true", help="require no keys, even beyond the loopback interface ..."
    )
    parser.add_argument("--open-to-everyone", action="store_true", help="... which must be confirmed with this option")
    parser.add_argument("--no-open", action="store_true", help="do not open the page in a browser")
    parser.add_argument("--reload", action="store_true", help="restart when code or settings change; for developers")


def parse_serve_port(text: str) -> int:
    """Return a port; argparse reports what is not one."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"`{text}` is not a port from 0 to 65535")
    return int(text)


def run(options: argparse.Namespace) -> None:
    """Serve until stopped."""
    import gc
    import os

    from etude.host_addresses import is_loopback_host

    try:
        from etude.api.uvicorn_server import serve_with_uvicorn
        from etude.telemetry import configure_telemetry_logs
    except ImportError as error:
        raise Unavailable(f"`{error.name}` is not installed.", hint="pip install 'etude[server]'") from None
    from etude.app import App
    from etude.entities import SourceSpec
    from etude.process_confinement import share_process_arenas
    from etude.settings import load_settings
    from etude.sources.source_url import source_name_from_url

    if options.reload:
        from etude.api.reload import serve_with_reload

        serve_with_reload(_arguments(options))
        return
    share_process_arenas()
    configure_telemetry_logs()
    settings = load_settings()
    paths = [s for s in options.source if "://" in s or set("*?[") & {*s} or os.path.exists(os.path.expanduser(s))]
    named = {source_name_from_url(url): SourceSpec(url=os.path.expanduser(url)) for url in paths}
    settings = settings.model_copy(update={"sources": settings.sources | named})
    host = options.host or settings.server.host
    port = settings.server.port if options.port is None else options.port
    with App(settings) as app:
        for name in options.source:
            if name not in paths:
                app.source(name)  # a name, or an error now and not with the first question
        keys = check_serve_access(app, host, options)
        app.pool.warm()
        trouble = app.indexes.check_store()
        if trouble:
            sys.stderr.write(f"warning: {trouble} Search indexes there are exact ones, which are read into memory.\n")
        # Only a person at a terminal, on this machine, wants a browser.
        wanted = sys.stdin.isatty() and sys.stdout.isatty() and is_loopback_host(host) and not options.no_open
        serve_with_uvicorn(
            app,
            host,
            port,
            keys_required=keys,
            anyone=not keys and not is_loopback_host(host),
            on_listening=open_served_page if wanted else None,
        )
    # The memory is about to be returned: to search it for garbage once more would take seconds.
    gc.freeze()


def open_served_page(address: str) -> None:
    """Open the page in the person's browser, if there is one, without waiting for it."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _arguments(options: argparse.Namespace) -> list[str]:
    """Return the same options as command-line arguments, for the child process."""
    flags = [
        f"--{name.replace('_', '-')}"
        for name in ("keys", "no_keys", "open_to_everyone", "no_open")
        if getattr(options, name)
    ]
    given = {"--host": options.host, "--port": options.port}
    named = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    return [*flags, *named, "--", *options.source]


def check_serve_access(app: App, host: str, options: argparse.Namespace) -> bool:
    """Return whether keys are required; raise if the server would be open to the network by accident."""
    from etude.host_addresses import is_loopback_host
    from etude.store.identity import Identity

    keys: bool = options.keys or (not is_loopback_host(host) and not options.no_keys)
    if not keys and not is_loopback_host(host) and not options.open_to_everyone:
        raise Invalid(
            f"Without keys, everyone who reaches `{host}` could read all data.",
            hint="Leave out --no-keys, or add --open-to-everyone.",
        )
    if keys and not Identity(app.store).any_key():
        raise Invalid(
            f"No keys exist, so no one could use the server on `{host}`.",
            hint="`etude keys create NAME --role analyst` creates one.",
        )
    return keys

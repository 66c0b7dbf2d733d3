"""`etude mcp`: etude as an MCP server over standard input and output."""

from __future__ import annotations

import argparse
import json
import sys

from etude.errors import Unavailable

CLIENTS = ("claude", "cursor", "vscode", "codex")
EXAMPLES = (
    "etude mcp",
    "etude mcp --install claude",
    "etude mcp --tools python,sql",
    "etude mcp --skill",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument(
        "--install",
        choices=CLIENTS,
        metavar="CLIENT",
        help=f"print the configuration for a client: {', '.join(CLIENTS)}",
    )
    parser.add_argument("--tools", metavar="NAMES", help="offer only these tools, such as python,sql (all)")
    parser.add_argument("--skill", action="store_true", help="print SKILL.md, which teaches coding agents to use etude")


def run(options: argparse.Namespace) -> None:
    """Serve one client, or print its configuration or the skill."""
    if options.install:
        sys.stdout.write(mcp_client_config(options.install, options.tools))
        return
    if options.skill:
        from importlib import resources

        sys.stdout.write((resources.files("etude") / "skill" / "SKILL.md").read_text("utf-8"))
        return
    try:
        from etude.mcp_server.server import choose_mcp_tools, serve_mcp_stdio
    except ImportError as error:
        raise Unavailable(f"`{error.name}` is not installed.", hint="pip install 'etude[server]'") from None
    from etude.app import App

    tools = choose_mcp_tools(options.tools) if options.tools is not None else None
    with App() as app:
        app.pool.warm()
        serve_mcp_stdio(app, tools)


def mcp_client_config(client: str, tools: str | None = None) -> str:
    """Return the configuration of a client; print on standard error where it belongs."""
    command, arguments = _command()
    arguments += ["--tools", tools] if tools else []
    match client:
        case "claude":
            place = "# claude_desktop_config.json; for Claude Code: claude mcp add etude -- "
            head = f"{place}{' '.join([command, *arguments])}\n"
            body = json.dumps({"mcpServers": {"etude": {"command": command, "args": arguments}}}, indent=2)
        case "cursor":
            head = "# ~/.cursor/mcp.json\n"
            body = json.dumps({"mcpServers": {"etude": {"command": command, "args": arguments}}}, indent=2)
        case "vscode":
            head = "# .vscode/mcp.json\n"
            server = {"type": "stdio", "command": command, "args": arguments}
            body = json.dumps({"servers": {"etude": server}}, indent=2)
        case _:
            head = "# ~/.codex/config.toml\n"
            body = f"[mcp_servers.etude]\ncommand = {json.dumps(command)}\nargs = {json.dumps(arguments)}"
    sys.stderr.write(head)
    return f"{body}\n"


def _command() -> tuple[str, list[str]]:
    """Return the command that starts etude, with its full path, because clients have their own search path."""
    import shutil

    found = shutil.which("etude")
    return (found, ["mcp"]) if found else (sys.executable, ["-m", "etude", "mcp"])

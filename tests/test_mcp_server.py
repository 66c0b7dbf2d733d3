"""MCP: the SDK's own client does a whole job, over standard input and output and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from api.conftest import listening, open_app
from etude.app import App
from etude.cli.mcp import mcp_client_config
from etude.entities import SourceSpec
from etude.errors import Invalid, InvalidQuery, NotFound
from etude.mcp_server.agent_tools import agents_create
from etude.mcp_server.caller import McpCaller
from etude.mcp_server.catalog_tools import catalogs_compare, catalogs_list, catalogs_show
from etude.mcp_server.dataset_tools import describe_dataset
from etude.mcp_server.run_tools import sql
from etude.mcp_server.server import TOOLS, choose_mcp_tools, create_mcp_server
from etude.sample import write_shop
from etude.store.identity import Identity
from etude.store.processes import Processes

LESSON = "---\nname: revenue\ndescription: How revenue is counted.\n---\nOnly completed orders count.\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with the shop, a scripted model and a playbook."""
    folder = tmp_path_factory.mktemp("mcp")
    write_shop(folder / "shop")
    open_app(folder / "home", folder / "shop").close()
    lesson = folder / "home" / "playbooks" / "main" / "revenue" / "SKILL.md"
    lesson.parent.mkdir(parents=True)
    lesson.write_text(LESSON)
    yield folder / "home"


@pytest.fixture(scope="module")
def app(home: Path) -> Iterator[App]:
    with App(home=str(home), model=f"scripted:{home / 'script.json'}") as opened:
        yield opened


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return dict(result.structured_content)


async def refused(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert result.is_error
    return dict(json.loads(result.content[0].text))  # type: ignore[union-attr]


async def do_a_whole_job(client: Client) -> None:
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {work.__name__ for work, _, _ in TOOLS}
    assert all(tool.description and tool.output_schema for tool in tools.values())
    assert "ctx" not in tools["python"].input_schema["properties"]

    assert await call(client, "list_datasets") == {"datasets": [{"name": "shop", "kind": "files"}]}
    catalog = await call(client, "describe_dataset", dataset="shop")
    assert "orders" in {table["name"] for table in catalog["tables"]}

    first = await call(client, "python", code="n = len(db.sql('SELECT * FROM orders').df())\nprint('loaded')")
    assert (first["ok"], first["stdout"]) == (True, "loaded\n"), first
    second = await call(client, "python", code="n + 1", thread_id=first["thread_id"])
    assert (second["value"], second["thread_id"]) == ("3705", first["thread_id"])
    wrong = await call(client, "python", code="1 / 0", thread_id=first["thread_id"])
    assert (wrong["ok"], "ZeroDivisionError" in wrong["error"]) == (False, True)

    rows = await call(client, "sql", query="SELECT status, count(*) AS n FROM orders GROUP BY 1 ORDER BY 1", limit=2)
    assert len(rows["rows"]) == 2 < rows["row_count"]

    answer = await call(client, "ask", question="how many orders are there?")
    assert (answer["status"], answer["text"]) == ("succeeded", "There are 3,704 orders.")
    assert answer["result"]["rows"] == [[3704]]

    started = await call(client, "ask", question="say much", wait_s=0)
    ended = await call(client, "wait_run", run_id=started["run_id"], timeout_s=300)
    assert ended["status"] == "succeeded"

    waiting = await call(client, "ask", question="which year?")
    assert (waiting["status"], waiting["choices"]) == ("waiting", ["2023", "2024"])
    assert "answer_run" in waiting["next"]
    assert (await call(client, "answer_run", run_id=waiting["run_id"], text="2024"))["status"] == "succeeded"

    slow = await call(client, "ask", question="be slow", wait_s=0)
    assert slow["next"] == "Call wait_run."
    await call(client, "cancel_run", run_id=slow["run_id"])
    assert (await call(client, "wait_run", run_id=slow["run_id"], timeout_s=300))["status"] == "cancelled"
    assert (await call(client, "get_run", run_id=slow["run_id"]))["status"] == "cancelled"

    told = await call(client, "log", text="counted the orders", code="SELECT count(*) FROM orders", dataset="shop")
    assert told["outcome"] == "worked"
    assert (await call(client, "playbooks"))["playbooks"][0]["name"] == "revenue"

    await steer_agents(client)

    error = await refused(client, "sql", query="SELECT regoin FROM orders")
    assert (error["code"], bool(error["detail"])) == ("invalid_query", True)
    error = await refused(client, "sql", query="DROP TABLE orders")
    assert error["code"] == "refused"
    error = await refused(client, "describe_dataset", dataset="shoop")
    assert (error["code"], "`shop`" in error["hint"]) == ("not_found", True)
    assert (await refused(client, "get_run", run_id="run_none"))["status"] == 404
    error = await refused(client, "sql", query=5)
    assert error["detail"] == "The argument `query` of `sql` cannot be `5`: it must be text."
    error = await refused(client, "sql", query="SELECT 1", limit=0)
    assert error["detail"] == "The argument `limit` of `sql` cannot be `0`: it must be 1 or more."
    error = await refused(client, "sql")
    assert error["detail"] == "The argument `query` of `sql` is missing."
    error = await refused(client, "sql", query="SELECT 1", limits=5)
    assert error["detail"] == "`sql` has no argument `limits`." and error["hint"] == "Did you mean `limit`?"
    error = await refused(client, "sqll", query="SELECT 1")
    assert error["detail"] == "There is no tool `sqll`."


async def steer_agents(client: Client) -> None:
    made = await call(client, "agents_create", kind="echo", config={"subject": "tea"})
    name = made["id"]
    assert (made["status"], made["step_no"]) == ("active", 0)
    assert name in {agent["id"] for agent in (await call(client, "agents_list"))["agents"]}
    assert (await call(client, "agents_pause", agent_id=name))["status"] == "paused"
    assert (await call(client, "agents_steer", agent_id=name, guidance={"subject": "rain"}))["status"] == "paused"
    assert (await call(client, "agents_resume", agent_id=name, guidance="snow"))["status"] == "active"
    assert (await call(client, "agents_interrupt", agent_id=name))["activity"] == "queued"
    sent = await call(client, "agents_message", agent_id=name, body="hail", id=f"m:{name}")
    assert sent == await call(client, "agents_message", agent_id=name, body="hail", id=f"m:{name}")
    reloaded = await call(client, "agents_reload", agent_id=name, config={"interval_s": 9})
    assert reloaded["config"] == made["config"] | {"interval_s": 9}
    assert (await call(client, "agents_show", agent_id=name))["steps"] == []
    assert (await call(client, "agents_destroy", agent_id=name))["status"] == "destroyed"
    assert (await refused(client, "agents_pause", agent_id=name))["code"] == "conflict"
    assert (await refused(client, "agents_show", agent_id="none"))["code"] == "not_found"
    error = await refused(client, "agents_create", kind="analyst", config={"source": "/etc", "goal": "x"})
    assert error["code"] == "not_found"


async def read_resources(client: Client, app: App) -> None:
    result = app.sql("shop", "SELECT 42 AS answer")
    run = app.store.run(str(result.run_id))
    templates = {t.uri_template for t in (await client.list_resource_templates()).resource_templates}
    assert templates == {"artifact://{run_id}/{hash}", "playbook://{name}"}
    blob = await client.read_resource(f"artifact://{run.id}/{run.artifacts[0].hash}")
    assert b64decode(blob.contents[0].blob).startswith(b"PAR1")  # type: ignore[union-attr]
    text = await client.read_resource("playbook://revenue")
    assert text.contents[0].text == "Only completed orders count."  # type: ignore[union-attr]
    for uri in (f"artifact://{run.id}/{'0' * 64}", "artifact://run_none/x", "playbook://none", "playbook://..%2Fx"):
        with pytest.raises(MCPError):
            await client.read_resource(uri)
    file = app.objects.local_path(run.artifacts[0].hash)
    assert file is not None
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]):
        file.write_bytes(damaged)
        with pytest.raises(MCPError, match="damaged"):
            await client.read_resource(f"artifact://{run.id}/{run.artifacts[0].hash}")
    file.write_bytes(whole)


def test_over_standard_input_and_output(home: Path) -> None:
    environment = {
        "ETUDE_HOME": str(home),
        "ETUDE_MODEL": f"scripted:{home / 'script.json'}",
        "PATH": os.environ["PATH"],
    }
    server = StdioServerParameters(command=sys.executable, args=["-m", "etude", "mcp"], env=environment)

    async def job() -> None:
        async with Client(server) as client:
            await do_a_whole_job(client)

    asyncio.run(job())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_over_http(app: App, mode: Any) -> None:
    """With today's protocol, and with the handshake of those before it."""
    _, secret = Identity(app.store).create_key("client", "analyst")
    with listening(app, keys_required=True) as server:

        async def job() -> None:
            async with AsyncExitStack() as stack:
                headers = {"Authorization": f"Bearer {secret}"}
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=300))
                transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
                client = await stack.enter_async_context(Client(transport, mode=mode))
                await do_a_whole_job(client)
                await read_resources(client, app)

        asyncio.run(job())


def test_a_reader_s_tools_only_read(app: App) -> None:
    _, secret = Identity(app.store).create_key("client", "reader")
    with listening(app, keys_required=True) as server:

        async def job() -> None:
            headers = {"Authorization": f"Bearer {secret}"}
            async with (
                httpx2.AsyncClient(headers=headers, timeout=120) as http,
                Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
            ):
                await call(client, "list_datasets")
                for name, arguments in (
                    ("sql", {"query": "SELECT 1"}),
                    ("python", {"code": "1"}),
                    ("log", {"text": "x"}),
                ):
                    assert (await refused(client, name, **arguments))["code"] == "forbidden"

        asyncio.run(job())
        assert httpx2.post(f"{server.url}/mcp", json={}, timeout=120).status_code == 401


@pytest.mark.parametrize("client", ["claude", "cursor", "vscode", "codex"])
def test_the_config_of_each_client_starts_it(client: str) -> None:
    import tomllib

    text = mcp_client_config(client)
    config = tomllib.loads(text) if client == "codex" else json.loads(text)
    (servers,) = config.values()
    command = [servers["etude"]["command"], *servers["etude"]["args"]]
    assert command[-1] == "mcp"
    assert Path(command[0]).is_file()


def test_queries_are_charged_whether_they_work_or_not(app: App) -> None:
    charged: list[str] = []
    caller = McpCaller(app, lambda _: None, charge_run=charged.append)  # type: ignore[arg-type, return-value]
    dataset = next(iter(app.sources()))
    assert sql(caller, "SELECT 1 AS x", dataset).run_id == charged[0]
    with pytest.raises(InvalidQuery):
        sql(caller, "SELECT nope", dataset)
    assert len(charged) == 2 and app.store.run(charged[1]).status == "failed"


def test_a_dataset_with_many_tables_is_listed_in_pages_and_described_by_name(tmp_path: Path) -> None:
    path = tmp_path / "wide.sqlite"
    with sqlite3.connect(path) as db:
        for n in range(60):
            db.execute(f"CREATE TABLE t{n:02} (a INTEGER, b TEXT)")
    db.close()
    with App(home=tmp_path / "home", sources={"wide": SourceSpec(url=str(path))}) as app:
        caller = McpCaller(app, lambda _: None)  # type: ignore[arg-type, return-value]
        first = describe_dataset(caller, limit=40)
        assert (first.table_count, first.tables, first.next) == (60, [], 40)
        second = describe_dataset(caller, limit=40, offset=40)
        assert second.next is None
        assert [e.name for e in (*first.entries, *second.entries)] == [f"t{n:02}" for n in range(60)]
        described = describe_dataset(caller, tables=["t07", "T08"])
        assert [t.name for t in described.tables] == ["t07", "t08"] and len(described.tables[0].columns) == 2
        with pytest.raises(NotFound, match="`t7`") as caught:
            describe_dataset(caller, tables=["t7"])
        assert "Did you mean" in caught.value.hint


def test_catalogs_are_listed_read_and_compared(tmp_path: Path) -> None:
    def write_orders(factor: int) -> None:
        rows = (f"{i},{i % 40 + 1},{(i * 37 % 400 + 5) * factor}" for i in range(1, 2001))
        (tmp_path / "data" / "orders.csv").write_text("\n".join(["id,customer_id,amount", *rows]) + "\n")

    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "customers.csv").write_text("id,name\n" + "".join(f"{i},N{i}\n" for i in range(1, 41)))
    with App(home=tmp_path / "home") as app:
        app.add_source("sales", SourceSpec(url=str(tmp_path / "data")))
        caller = McpCaller(app, report=lambda _: pytest.fail("nothing is reported"))
        assert catalogs_list(caller).catalogs == []
        for factor in (1, 100):
            write_orders(factor)
            app.cataloger.run("sales")
        page = catalogs_list(caller, limit=1)
        (newest,), (oldest,) = page.catalogs, catalogs_list(caller, before=page.next).catalogs
        shown = catalogs_show(caller)
        assert shown.catalog == newest and [c.id for c in shown.changes] == ["orders.amount:scale"]
        assert [t.references for t in shown.tables] == [[], ["customer_id -> customers.id"]]
        one = catalogs_show(caller, table="ORDERS", catalog=oldest.name)
        assert one.profile is not None and one.profile["rows"] == 2000 and one.changes == []
        back = catalogs_compare(caller, before="latest", after=oldest.name)
        assert "100 times smaller" in back.changes[0].text
        with pytest.raises(NotFound, match="no table `order`") as caught:
            catalogs_show(caller, table="order")
        assert caught.value.hint == "Did you mean `orders`?"


def test_the_list_of_tools_can_be_narrowed(app: App) -> None:
    caller = McpCaller(app, lambda fields: None)  # type: ignore[arg-type, return-value]

    async def offered(names: str) -> set[str]:
        async with Client(create_mcp_server(lambda _: caller, choose_mcp_tools(names))) as client:
            return {tool.name for tool in (await client.list_tools()).tools}

    assert asyncio.run(offered("python, sql")) == {"python", "sql"}
    with pytest.raises(Invalid, match="no tool `pyton`") as raised:
        choose_mcp_tools("pyton")
    assert "python" in raised.value.hint
    with pytest.raises(Invalid, match="No tool"):
        choose_mcp_tools(",")
    assert '"--tools"' in mcp_client_config("claude", "python,sql")


def test_an_agent_without_a_worker_says_so(app: App) -> None:
    caller = McpCaller(app, lambda fields: None)  # type: ignore[arg-type, return-value]
    made = agents_create(caller, "echo", {"subject": "rain"})
    assert "No worker runs" in made.next
    Processes(app.store).enter("worker")
    assert agents_create(caller, "echo", {"subject": "rain"}).next == ""
    Processes(app.store).leave()

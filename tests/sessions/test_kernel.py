"""The kernel on its own: the frames that each kind of cell sends, and that no cell ends the kernel."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from etude import wire
from etude.sessions import kernel

START = """
import socket, sys
from etude.sessions import kernel
kernel.serve_kernel_cells(socket.socket(fileno=int(sys.argv[1])))
"""


class Kernel:
    """A kernel without a sandbox around it, and the frames it sends."""

    def __init__(self) -> None:
        self.sock, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", START, str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self.sock.settimeout(120)
        self.cells = 0
        self.lent: dict[int, int] = {}
        assert self.receive()[0] == "R"

    def receive(self) -> tuple[str, bytes]:
        head = self.sock.recv(kernel.HEAD.size, socket.MSG_WAITALL)
        if not head:
            raise EOFError
        size, kind = kernel.HEAD.unpack(head)
        body = b""
        while len(body) < size:
            body += self.sock.recv(size - len(body))
        return chr(kind), body

    def lend(self, request: dict[str, Any]) -> None:
        number = len(self.lent)
        self.lent[number] = wire.lend_wire_memory(request["size"])
        body = json.dumps({"id": request["id"], "lent": number}).encode()
        socket.send_fds(self.sock, [kernel.HEAD.pack(len(body), ord("r")) + body], [self.lent[number]])

    def send(self, kind: str, body: bytes) -> None:
        self.sock.sendall(kernel.HEAD.pack(len(body), ord(kind)) + body)

    def start(self, code: str) -> None:
        self.cells += 1
        self.send("x", kernel.NUMBER.pack(self.cells) + code.encode())

    def frames(self) -> list[tuple[str, bytes]]:
        """Return all frames up to the end of the cell; lend memory when it is requested."""
        seen = [self.receive()]
        while seen[-1][0] != "X":
            if seen[-1][0] == "C" and json.loads(seen[-1][1])["method"] == "memory":
                self.lend(json.loads(seen[-1][1]))
            seen.append(self.receive())
        return seen

    def interrupt(self) -> dict[str, Any]:
        """Interrupt until the cell ends, as a session does: a signal just before a system call does not end it."""
        while True:
            self.process.send_signal(signal.SIGINT)
            if select.select([self.sock], [], [], 1)[0]:
                end: dict[str, Any] = json.loads(self.frames()[-1][1])
                return end

    def run(self, code: str) -> dict[str, Any]:
        self.start(code)
        end: dict[str, Any] = json.loads(self.frames()[-1][1])
        assert end["id"] == self.cells
        return end

    def value(self, code: str) -> Any:
        end = self.run(code)
        assert end["ok"], end
        return end.get("value", {})

    def close(self) -> None:
        self.sock.close()
        self.process.wait(60)


@pytest.fixture(scope="module")
def inside() -> Iterator[Kernel]:
    made = Kernel()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("1 + 1", 2),
        ("True", True),
        ("1.5", 1.5),
        ("'text'", "text"),
        ("[1, [2, {'a': None}]]", [1, [2, {"a": None}]]),
        ("{'a': [1, 2]}", {"a": [1, 2]}),
        ("import asyncio\nawait asyncio.sleep(0, 3)", 3),
        ("async def f(): return 4\nawait f()", 4),
    ],
)
def test_plain_data_comes_as_data(inside: Kernel, code: str, value: Any) -> None:
    assert inside.value(code)["json"] == value


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("(1, 2)", "(1, 2)"),
        ("{1}", "{1}"),
        ("{1: 2}", "{1: 2}"),
        ("b'x'", "b'x'"),
        ("object", "<class 'object'>"),
        ("x = []\nx.append(x)\nx", "[[...]]"),
    ],
)
def test_other_values_come_as_text(inside: Kernel, code: str, text: str) -> None:
    shown = inside.value(code)
    assert shown["text"] == text and "json" not in shown


def test_a_nested_value_beyond_reason_comes_as_text(inside: Kernel) -> None:
    shown = inside.value("y = []\nfor _ in range(500): y = [y]\ny")
    assert "json" not in shown
    assert "json" not in inside.value("[['x' * 900] * 900] * 900")


def test_a_long_text_is_cut_and_it_is_said(inside: Kernel) -> None:
    shown = inside.value("'x' * 100_000")
    assert len(shown["text"]) == kernel.PREVIEW
    assert shown["note"] == "The text of the value is cut: 16,384 of 100,002 characters are shown."
    assert "note" not in inside.value("'x' * 100")
    assert "16,384 of " in inside.value("import pyarrow as pa\npa.table({'n' * 20_000: [1]})")["note"]


@pytest.mark.parametrize(
    ("code", "plain"), [("numpy.int64(3)", 3), ("numpy.float32(0.5)", 0.5), ("numpy.bool_(True)", True)]
)
def test_a_number_of_numpy_is_a_number(inside: Kernel, code: str, plain: Any) -> None:
    assert inside.value(f"import numpy\n{code}")["json"] == plain
    assert "json" not in inside.value("numpy.datetime64('2024-01-01')")


@pytest.mark.parametrize("code", ["x = 1", "1;", "None", "def f(): pass", "# nothing", ""])
def test_some_cells_have_no_value(inside: Kernel, code: str) -> None:
    assert inside.value(code) == {}


def display(inside: Kernel, frames: list[tuple[str, bytes]]) -> tuple[dict[str, Any], bytes]:
    body = next(body for kind, body in frames if kind == "D")
    (size,) = struct.unpack("!I", body[:4])
    head = json.loads(body[4 : 4 + size])
    if "lent" in head:
        return head, bytes(wire.map_wire_memory(inside.lent.pop(head["lent"]), head["size"], whole=True))
    return head, body[4 + size :]


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("import pandas as pd\npd.DataFrame({'a': [1, 2]})", {"a": [1, 2]}),
        ("import pandas as pd\npd.Series([1, 2], name='s')", {"s": [1, 2]}),
        ("import pandas as pd\npd.Series([1])", {"value": [1]}),
        ("import pandas as pd\npd.DataFrame({'a': [1]}, index=['k']).rename_axis('i')", {"a": [1], "i": ["k"]}),
        ("import pandas as pd\npd.DataFrame({'a': [1]}, index=['k'])", {"a": [1], "index": ["k"]}),
        ("import pandas as pd\npd.DataFrame({'index': [1]}, index=['k'])", {"index": [1], "level_0": ["k"]}),
        ("import pandas as pd\npd.DataFrame({'a': [1]}, index=[2024])", {"a": [1], "index": [2024]}),
        ("import pandas as pd\npd.DataFrame({'a': [3, 1, 2]}).sort_values('a')", {"a": [1, 2, 3]}),
        ("import pandas as pd\npd.concat([pd.DataFrame({'a': [1, 2]})] * 2)[['a']]", {"a": [1, 2, 1, 2]}),
        ("import pandas as pd\npd.Series({7: 0.5, 3: 0.2, 4: 0.1})", {"value": [0.5, 0.2, 0.1], "index": [7, 3, 4]}),
        (
            "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': 'x'}, index=[2020, 2024])",
            {"a": [1, 2], "b": ["x", "x"], "index": [2020, 2024]},
        ),
        ("import pyarrow as pa\npa.table({'a': ['x']})", {"a": ["x"]}),
        ("import pyarrow as pa\npa.array([1])", {"value": [1]}),
        ("import duckdb\nduckdb.sql('select 1 as a')", {"a": [1]}),
        ("import pyarrow as pa\npa.table({'a': range(100_000)}).slice(0, 99_999)", None),
    ],
)
def test_tables_come_as_arrow(inside: Kernel, code: str, rows: dict[str, Any] | None) -> None:
    inside.start(code)
    frames = inside.frames()
    head, data = display(inside, frames)
    table = pa.ipc.open_stream(data).read_all()
    assert head["media"] == "application/vnd.apache.arrow.stream" and head["id"] == inside.cells
    assert table.num_rows == 99_999 if rows is None else table.to_pydict() == rows
    assert json.loads(frames[-1][1])["value"]["rows"] == table.num_rows


def test_a_frame_that_arrow_has_no_type_for_comes_as_text(inside: Kernel) -> None:
    shown = inside.value("import pandas as pd\npd.DataFrame({'a': [object(), 1]})")
    assert shown["text"].startswith(" ") and "media" not in shown


def test_a_chart_comes_as_its_specification(inside: Kernel) -> None:
    inside.start("{'$schema': 'https://vega.github.io/schema/vega-lite/v5.json', 'mark': 'bar'}")
    head, data = display(inside, inside.frames())
    assert head["media"] == "application/vnd.vegalite.v5+json" and json.loads(data)["mark"] == "bar"


def test_output_comes_in_order_and_before_the_end(inside: Kernel) -> None:
    inside.start("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c', end='')")
    assert [(k, b) for k, b in inside.frames()[:-1]] == [("O", b"a\n"), ("E", b"b\n"), ("O", b"c")]


def test_output_comes_again_after_it_was_caught(inside: Kernel) -> None:
    inside.run("import io, sys\nsys.stdout = io.StringIO()\nprint('caught')")
    inside.start("sys.stdout = sys.__stdout__\nprint('seen')")
    assert [(k, b) for k, b in inside.frames()[:-1]] == [("O", b"seen\n")]


def test_an_error_with_a_problem_of_its_own_ends_nothing(inside: Kernel) -> None:
    for problem in ("property(lambda self: 1 / 0)", "(lambda d: d.update(d=d) or d)({})"):
        assert inside.run(f"class E(Exception): problem = {problem}\nraise E('x')")["error"]["message"] == "x"


def test_much_output_goes_in_pieces_and_half_characters_are_marked(inside: Kernel) -> None:
    inside.start("print('x' * (3 << 20))\nprint('\\ud800')")
    frames = inside.frames()
    assert max(len(b) for _, b in frames) <= kernel.PIECE
    assert sum(len(b) for _, b in frames[:-1]) == (3 << 20) + 3


@pytest.mark.parametrize(
    ("code", "kind", "line"),
    [
        ("x = 1\n1 / 0", "ZeroDivisionError", 2),
        ("def f():\n    raise KeyError('k')\nf()", "KeyError", 2),
        ("x = (", "SyntaxError", 1),
        ("raise SystemExit(3)", "SystemExit", 1),
        ("exit()", "NameError", 1),
        ("class R:\n    def __repr__(self): raise SystemExit\nR()", "SystemExit", 2),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "E", 3),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", 1),
        ("def f(): f()\nf()", "RecursionError", 1),
        ("input('name?')", "RuntimeError", 1),
        ("import no_such_module_at_all", "ModuleNotFoundError", 1),
    ],
)
def test_an_error_names_its_line_and_ends_nothing(inside: Kernel, code: str, kind: str, line: int) -> None:
    if code == "exit()":
        inside.run("import builtins\nfor n in ('exit', 'quit'): builtins.__dict__.pop(n, None)")
    error = inside.run(code)["error"]
    assert (error["type"], error["line"]) == (kind, line)
    assert "kernel.py" not in error["traceback"]
    assert inside.value("1")["json"] == 1


def test_the_traceback_shows_the_user_their_lines(inside: Kernel) -> None:
    error = inside.run("def f():\n    return 1 / 0\nf()")["error"]
    assert "return 1 / 0" in error["traceback"] and f"<cell {inside.cells}>" in error["traceback"]


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("n = 'e' + 1", ["    n = 'e' + 1", "        ~~~~^~~"]),
        ("t = '\x0c'\r\nt / 2", ["    t / 2", "    ~~^~~"]),
        ("x = 1\nreturn x", ["    return x", "    ^^^^^^^^"]),
    ],
)
def test_a_traceback_points_at_the_place(inside: Kernel, code: str, lines: list[str]) -> None:
    assert inside.run(code)["error"]["traceback"].splitlines()[-3:-1] == lines


def test_a_traceback_tells_what_led_to_the_error_in_the_users_code(inside: Kernel) -> None:
    fails = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('later')"
    for code, link in ((fails, "During handling of"), (f"{fails} from e", "direct cause of")):
        told = inside.run(code)["error"]["traceback"]
        assert "    1 / 0\n" in told and link in told and "kernel.py" not in told
        assert told.endswith("ValueError: later\n")
    assert "ZeroDivisionError" not in inside.run(f"{fails} from None")["error"]["traceback"]
    assert inside.run("raise ValueError from KeyError('k')")["error"]["traceback"].startswith("KeyError: 'k'\n")


def test_what_led_to_an_error_inside_of_a_library_is_not_told(inside: Kernel) -> None:
    told = inside.run("import pandas as pd\npd.DataFrame({'a': [1]})['b']")["error"]["traceback"]
    assert told.count("KeyError") == 1 and "pandas/" not in told


def test_a_traceback_tells_all_errors_of_a_group(inside: Kernel) -> None:
    code = (
        "def f(): raise KeyError('k')\ntry: f()\nexcept KeyError as e: raise ExceptionGroup('two', [e, TypeError('t')])"
    )
    told = inside.run(code)["error"]["traceback"]
    assert "two (2 sub-exceptions)" in told and "KeyError: 'k'" in told and "TypeError: t" in told
    assert "def f(): raise KeyError('k')" in told


def test_a_long_traceback_keeps_its_end(inside: Kernel) -> None:
    told = inside.run("def f(): g()\ndef g(): f()\nf()")["error"]["traceback"]
    assert len(told) < kernel.PREVIEW + 100 and " characters are cut ..." in told
    assert told.startswith("Traceback") and "RecursionError" in told.splitlines()[-1]


def test_the_line_of_an_error_is_one_of_the_cell_that_ran(inside: Kernel) -> None:
    inside.run("def f():\n    pass\n    raise KeyError")
    assert inside.run("x = 1\nf()")["error"]["line"] == 2


def test_an_interrupt_stops_the_cell_and_keeps_its_names() -> None:
    inside = Kernel()
    inside.run("x = 7")
    for code in ("while True: pass", "import time\ntime.sleep(600)"):
        inside.start(f"print('begun')\n{code}")
        assert inside.receive()[0] == "O"
        assert inside.interrupt()["error"]["type"] == "KeyboardInterrupt"
        assert inside.value("x")["json"] == 7
    inside.process.send_signal(signal.SIGINT)
    assert inside.value("x")["json"] == 7, "an interrupt between two cells is none"
    inside.close()


def test_an_interrupt_never_cuts_a_frame_in_two() -> None:
    inside = Kernel()
    for _ in range(10):
        inside.start("while True: print('x' * 100_000)")
        for _ in range(5):
            assert inside.receive()[0] == "O"
        timer = threading.Timer(0.05, inside.process.send_signal, [signal.SIGINT])
        timer.start()
        time.sleep(0.1)  # nothing reads here, so the signal arrives while a frame is half sent
        assert json.loads(inside.frames()[-1][1])["error"]["type"] == "KeyboardInterrupt"
    inside.close()


def test_a_call_waits_for_its_own_reply(inside: Kernel) -> None:
    inside.start("import sys\nkernel = sys.modules['etude.sessions.kernel']\nkernel.SESSION.call('rows', table='t')[0]")
    kind, body = inside.receive()
    request = json.loads(body)
    assert kind == "C" and (request["method"], request["table"], request["cell"]) == ("rows", "t", inside.cells)
    inside.send("r", json.dumps({"id": request["id"] - 1, "stale": True}).encode())
    inside.send("r", json.dumps({"id": request["id"], "count": 3}).encode())
    assert json.loads(inside.frames()[-1][1])["value"]["json"]["count"] == 3


def test_a_refused_call_is_an_error_that_says_why(inside: Kernel) -> None:
    inside.start("import sys\nsys.modules['etude.sessions.kernel'].SESSION.call('rows')")
    request = json.loads(inside.receive()[1])
    inside.send(
        "r", json.dumps({"id": request["id"], "problem": {"detail": "not granted", "code": "refused"}}).encode()
    )
    error = json.loads(inside.frames()[-1][1])["error"]
    assert error["message"] == "not granted" and error["problem"]["code"] == "refused"


def test_a_thread_gets_its_reply_before_its_cell_ends_and_none_after(inside: Kernel) -> None:
    inside.start(
        "import sys, threading\ncall, told = sys.modules['etude.sessions.kernel'].SESSION.call, []\n"
        "asked = sys.modules['etude.sessions.kernel'].SESSION._calls\n"
        "thread = threading.Thread(target=lambda: told.append(call('rows')[1]))\nthread.start()\n"
        # The thread must send its request before the cell ends: afterwards it would be refused.
        "while sys.modules['etude.sessions.kernel'].SESSION._calls == asked: pass"
    )
    request = json.loads(inside.receive()[1])
    fd = os.memfd_create("reply")
    os.write(fd, b"data")
    body = json.dumps({"id": request["id"], "size": 4}).encode()
    socket.send_fds(inside.sock, [kernel.HEAD.pack(len(body), ord("r")) + body], [fd])
    os.close(fd)
    assert json.loads(inside.frames()[-1][1])["ok"]
    assert inside.value("thread.join()\nbytes(told[0]).decode()")["json"] == "data"
    late = (
        "def ask():\n    while sys.modules['etude.sessions.kernel'].SESSION._in_cell: pass\n"
        "    try: call('rows')\n    except RuntimeError as error: print(error)\n"
        "threading.Thread(target=ask).start()"
    )
    inside.start(late)
    frames = inside.frames()
    assert json.loads(frames[-1][1])["ok"]
    while not any(b"while a cell runs" in body for kind, body in frames if kind == "O"):
        frames.append(inside.receive())  # the thread prints just before the cell ends, or after it
    assert inside.value("1")["json"] == 1


def test_a_request_that_is_too_long_says_so(inside: Kernel) -> None:
    end = inside.run("sys.modules['etude.sessions.kernel'].SESSION.call('sql', query='x' * (9 << 20))")
    assert end["error"]["type"] == "ValueError" and "too long" in end["error"]["message"]


def test_annotations_stay_what_the_user_wrote(inside: Kernel) -> None:
    assert inside.value("def f(x: int): ...\nf.__annotations__['x'] is int")["json"] is True
    assert inside.value("(lambda: 1).__code__.co_flags & 0x1000000")["json"] == 0


def test_streams_keep_their_order_without_line_ends(inside: Kernel) -> None:
    inside.start("import sys\nprint('a', end='')\nprint('b', end='', file=sys.stderr)\nprint('c')")
    assert [(kind, body) for kind, body in inside.frames()[:-1]] == [("O", b"a"), ("E", b"b"), ("O", b"c\n")]


def test_a_child_that_user_code_forks_takes_no_cell(inside: Kernel) -> None:
    inside.value("import os\nparent = os.getpid()\nos.fork()\nx = 0")
    for _ in range(20):
        assert inside.value("os.getpid() == parent")["json"] is True


def test_what_was_interrupted_does_not_go_on_in_the_next_cell() -> None:
    inside = Kernel()
    inside.start("import asyncio\nfor i in range(100_000):\n    print(i)\n    await asyncio.sleep(0.05)")
    assert inside.receive()[0] == "O"
    inside.process.send_signal(signal.SIGINT)
    assert json.loads(inside.frames()[-1][1])["error"]["type"] == "KeyboardInterrupt"
    inside.start("await asyncio.sleep(0.3)")
    assert [kind for kind, _ in inside.frames()] == ["X"]
    inside.close()


def test_what_was_drawn_is_shown_beside_the_value_and_only_once(inside: Kernel) -> None:
    # A stand-in for the used parts of matplotlib, which is not a dependency.
    inside.run(
        "import sys, types\nclass Figure:\n    def savefig(self, file, **_): file.write(b'PNG')\n"
        "Figure.__module__ = 'matplotlib.figure'\nfigures = {}\nplt = types.ModuleType('matplotlib.pyplot')\n"
        "plt.get_fignums = lambda: list(figures)\nplt.figure = lambda n: figures.setdefault(n, Figure())\n"
        "plt.close = lambda f: [figures.pop(n) for n, g in [*figures.items()] if g is f]\n"
        "sys.modules['matplotlib.pyplot'] = plt"
    )
    inside.start("plt.figure(1); plt.figure(2)\n[1, 2]")
    seen = inside.frames()
    assert [kind for kind, _ in seen] == ["D", "D", "X"] and seen[0][1].endswith(b"PNG")
    assert json.loads(seen[-1][1])["value"]["json"] == [1, 2]
    inside.start("plt.figure(1)\nNone")
    seen = inside.frames()
    assert json.loads(seen[-1][1])["value"]["media"] == "image/png"
    assert inside.value("None") == {}
    inside.run("del sys.modules['matplotlib.pyplot']")
    assert inside.value("Figure()")["media"] == "image/png", "a figure without pyplot"


def test_a_value_too_large_to_send_is_no_error() -> None:
    inside = Kernel()
    inside.run("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))")
    shown = inside.value("import pyarrow as pa\npa.table({'a': range(1 << 18)})")
    assert "media" not in shown and shown["text"].startswith("pyarrow.Table")
    assert "2,0" in shown["note"] and "cannot be sent" in shown["note"]
    inside.close()


def test_a_chart_of_values_that_json_does_not_know(inside: Kernel) -> None:
    code = "import datetime\n{'$schema': 'vega-lite', 'x': datetime.date(2020, 1, 2)}"
    inside.start(code)
    assert b'"2020-01-02"' in inside.frames()[0][1]


def test_it_ends_with_the_host() -> None:
    inside = Kernel()
    inside.close()
    assert inside.process.returncode == 0


def test_it_imports_nothing_of_etude() -> None:
    code = (
        "import sys, importlib.util as u\ns = u.spec_from_file_location('k', sys.argv[1])\nm = u.module_from_spec(s)\n"
    )
    code += "sys.modules['k'] = m\ns.loader.exec_module(m)\nprint([n for n in sys.modules if n.startswith('etude')])"
    done = subprocess.run([sys.executable, "-c", code, kernel.__file__], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

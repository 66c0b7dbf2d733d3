"""Where agents may connect to: public addresses, and what the settings allow; the address checked is the one used."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator

import pytest

from etude.agents.address import connect, is_public, may_reach
from etude.errors import Invalid, Refused, Unavailable
from etude.settings import load_settings

OURS = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "fe80::1%eth0",
    "fc00::1",
    "fd12:3456::1",
    "fec0::1",
    "ff02::1",
    "64:ff9b::10.0.0.1",
    "2002:7f00:1::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", OURS)
def test_what_is_not_everybodys_is_out_of_reach(address: str) -> None:
    assert not may_reach("some.host", address, ())


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "::ffff:1.1.1.1", "2606:4700:4700::1111"])
def test_what_is_public_can_be_reached(address: str) -> None:
    assert may_reach("some.host", address, ())


def test_hosts_and_networks_can_be_allowed() -> None:
    assert may_reach("hooks.internal", "10.1.2.3", ["hooks.internal"])
    assert may_reach("Hooks.Internal.", "10.1.2.3", ["hooks.internal"])
    assert not may_reach("hooks.internal.evil.example", "10.1.2.3", ["hooks.internal"])
    assert may_reach("x", "10.1.2.3", ["10.1.0.0/16"]) and may_reach("x", "::ffff:10.1.2.3", ["10.1.0.0/16"])
    assert not may_reach("x", "10.2.2.3", ["10.1.0.0/16", "fd00::/8"])
    assert may_reach("x", "fd00::7", ["10.1.0.0/16", "fd00::/8"])


def test_a_public_network_has_public_addresses_only() -> None:
    for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10", "ff00::/8"):
        found = ipaddress.ip_network(network)
        assert not is_public(found[0]) and not is_public(found[-1])


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0"])
def test_this_machine_is_refused_however_it_is_written(host: str, port: int) -> None:
    with pytest.raises(Refused, match="is not a public address"):
        connect(host, port, (), 5)


def test_a_name_is_asked_for_once_and_connected_as_it_was_checked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    look_up, asked = socket.getaddrinfo, []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: asked.append(a[0]) or look_up(*a, **k))
    with connect("localhost", port, ["127.0.0.1"], 5) as opened:
        assert opened.getpeername() == ("127.0.0.1", port)
    assert asked == ["localhost"]


def test_what_is_not_there_is_tried_again_later() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        with pytest.raises(Unavailable, match="cannot be reached"):
            connect("127.0.0.1", taken.getsockname()[1], ["127.0.0.1"], 5)
    with pytest.raises(Unavailable, match="cannot be found"):
        connect("no-such-host.invalid", 80, (), 5)


def test_what_is_allowed_is_a_setting() -> None:
    found = load_settings({"ETUDE_AGENTS__REACH": "hooks.internal, 10.0.0.0/8"})
    assert found.agents.reach == ("hooks.internal", "10.0.0.0/8")
    with pytest.raises(Invalid, match=r"agents\.reach"):
        load_settings({}, agents={"reach": ["10.0.0.0/33"]})

"""Which addresses are public, how allow-lists name hosts, and that connections go to the address that was checked."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etude.errors import Invalid, Refused, Unavailable
from etude.host_addresses import (
    connect_to_host,
    dial_host_addresses,
    find_host_addresses,
    is_loopback_host,
    is_public_address,
    may_reach_host,
    parse_allowed_host,
    parse_host_port,
    parse_reachable_host,
)
from etude.settings import load_settings

address = ipaddress.ip_address

PUBLIC = [
    "1.1.1.1",
    "93.184.215.14",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "223.255.255.255",
    "::ffff:1.1.1.1",
    "64:ff9b::1.1.1.1",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
    "2620:fe::fe",
    "2606:4700::5efe:101:101",  # ISATAP around 1.1.1.1
]
NOT_PUBLIC = {
    "loopback": ["127.0.0.1", "127.8.8.8", "::1"],
    "this network": ["0.0.0.0", "0.1.2.3", "::"],
    "private": ["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12:3456::1", "fd00:ec2::254"],
    "link-local": ["169.254.169.254", "fe80::1", "fe80::1%eth0"],
    "site-local": ["fec0::1"],
    "carrier-grade NAT": ["100.64.0.1", "100.100.100.200", "100.127.255.255"],
    "a cloud's own": ["168.63.129.16", "192.0.0.192"],
    "documentation": ["192.0.2.1", "198.51.100.7", "203.0.113.9", "2001:db8::1", "3fff::1"],
    "benchmarks": ["198.18.0.1", "198.19.255.255", "2001:2::1"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "4000::1", "5f00::1", "100::1"],
    "IPv4-mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:100.64.0.1"],
    "IPv4-compatible": ["::127.0.0.1", "::1.1.1.1"],
    "IPv4-translated": ["::ffff:0:10.0.0.1"],
    "NAT64": ["64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::a00:1", "64:ff9b:1::101:101"],
    "6to4": ["2002:7f00:1::", "2002:a00:1::1", "2002:101:101::1", "192.88.99.1"],
    "Teredo": ["2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:0:101:101::fefe:fefe"],
    "ISATAP": ["2606:4700::5efe:a00:1", "2606:4700::200:5efe:7f00:1", "fe80::5efe:101:101"],
}


@pytest.mark.parametrize("text", PUBLIC)
def test_addresses_of_the_public_internet_are_public(text: str) -> None:
    assert is_public_address(address(text))


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in NOT_PUBLIC.items() for text in texts])
def test_no_other_address_is_public(kind: str, text: str) -> None:
    assert not is_public_address(address(text)), kind


def embed(inner: ipaddress.IPv4Address, outer: int) -> dict[str, ipaddress.IPv6Address]:
    """The IPv4 address in each form of IPv6 that carries one; `outer` fills what a form leaves open."""
    low, prefix = int(inner), outer >> 64 << 64
    return {
        "mapped": ipaddress.IPv6Address(0xFFFF << 32 | low),
        "compatible": ipaddress.IPv6Address(low),
        "translated": ipaddress.IPv6Address(0xFFFF << 48 | low),
        "NAT64": ipaddress.IPv6Address(int(address("64:ff9b::")) | low),
        "NAT64, local": ipaddress.IPv6Address(int(address("64:ff9b:1::")) | (outer & 0xFFFF_FFFF_FFFF << 32) | low),
        "6to4": ipaddress.IPv6Address(0x2002 << 112 | low << 80 | outer & (1 << 80) - 1),
        "Teredo": ipaddress.IPv6Address(0x20010000 << 96 | (outer & (1 << 64) - 1) << 32 | low ^ 0xFFFF_FFFF),
        "ISATAP": ipaddress.IPv6Address(prefix | 0x5EFE << 32 | low),
        "ISATAP, unique": ipaddress.IPv6Address(prefix | 0x0200_5EFE << 32 | low),
    }


@given(st.ip_addresses(v=4), st.integers(0, (1 << 128) - 1))
@example(ipaddress.IPv4Address("169.254.169.254"), int(address("2606:4700::")))
def test_an_address_is_never_more_public_than_the_one_inside(inner: ipaddress.IPv4Address, outer: int) -> None:
    public = is_public_address(inner)
    for form, found in embed(inner, outer).items():
        assert public or not is_public_address(found), form
    assert is_public_address(embed(inner, outer)["mapped"]) == is_public_address(embed(inner, outer)["NAT64"]) == public


@given(st.ip_addresses())
def test_a_public_address_is_one_that_python_calls_global_too(found: ipaddress.IPv4Address) -> None:
    inner = getattr(found, "ipv4_mapped", None) or found
    if is_public_address(found) and found not in ipaddress.ip_network(
        "64:ff9b::/96" if found.version == 6 else "0.0.0.0/32"
    ):
        assert inner.is_global and not (inner.is_multicast or inner.is_reserved or inner.is_private)


@given(
    st.sampled_from(["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fe80::/10", "ff00::/8"]), st.data()
)
def test_no_address_of_a_private_network_is_public(network: str, data: st.DataObject) -> None:
    found = data.draw(st.ip_addresses(network=network))
    assert not is_public_address(found) and not may_reach_host("x", found, ()) and may_reach_host("x", found, [network])


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"]
)
def test_the_loopback_is_known_by_name_and_address(host: str) -> None:
    assert is_loopback_host(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "127.1", "2130706433", "10.0.0.1", "localhost.evil.example", "[::1]x"]
)
def test_nothing_else_is_the_loopback(host: str) -> None:
    assert not is_loopback_host(host)


# -- allow-lists


@pytest.mark.parametrize(
    ("entry", "parsed"),
    [
        ("api.example.com:443", ("api.example.com", 443)),
        ("API.Example.COM.:443", ("api.example.com", 443)),
        ("bücher.example:80", ("xn--bcher-kva.example", 80)),
        ("localhost:1", ("localhost", 1)),
        ("192.0.2.7:65535", ("192.0.2.7", 65535)),
        ("[2001:DB8:0::7]:80", ("2001:db8::7", 80)),
    ],
)
def test_an_entry_is_a_host_and_a_port(entry: str, parsed: tuple[str, int]) -> None:
    assert parse_allowed_host(entry) == parsed


@given(st.text())
def test_any_text_is_an_entry_or_named_as_none(text: str) -> None:
    try:
        host, port = parse_allowed_host(text)
    except Invalid as error:
        assert text in str(error) and error.details["value"] == text
    else:
        assert parse_host_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}") == (host, port)


def test_hosts_and_networks_can_be_allowed() -> None:
    ours = address("10.1.2.3")
    assert may_reach_host("hooks.internal", ours, ["hooks.internal"])
    assert may_reach_host("Hooks.Internal.", ours, ["hooks.internal"])
    assert not may_reach_host("hooks.internal.evil.example", ours, ["hooks.internal"])
    assert may_reach_host("x", ours, ["10.1.0.0/16"]) and may_reach_host(
        "x", address("::ffff:10.1.2.3"), ["10.1.0.0/16"]
    )
    assert not may_reach_host("x", address("10.2.2.3"), ["10.1.0.0/16", "fd00::/8"])
    assert may_reach_host("x", address("fd00::7"), ["10.1.0.0/16", "fd00::/8"])
    # A route through a gateway is another one than the network that was allowed.
    assert not may_reach_host("x", address("64:ff9b::10.1.2.3"), ["10.1.0.0/16"])


@pytest.mark.parametrize("entry", ["", "10.0.0.0/33", "10.1", "*.internal", "hooks.internal:80", "http://x", "a b"])
def test_a_bad_entry_without_a_port_is_named(entry: str) -> None:
    with pytest.raises(Invalid, match="is neither a host name nor a network") as error:
        parse_reachable_host(entry)
    assert error.value.details["value"] == entry


# -- connections


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0"])
def test_this_machine_is_refused_however_it_is_written(host: str, port: int) -> None:
    with pytest.raises(Refused, match="is not a public address"):
        connect_to_host(host, port, (), 5)


def test_a_name_is_asked_for_once_and_connected_as_it_was_checked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    look_up, asked = socket.getaddrinfo, []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: asked.append(a[0]) or look_up(*a, **k))
    with connect_to_host("localhost", port, ["127.0.0.1"], 5) as opened:
        assert opened.getpeername() == ("127.0.0.1", port)
    assert asked == ["localhost"]


def test_a_host_with_addresses_of_both_kinds_is_reached_at_the_public_one() -> None:
    answers = [["10.0.0.1", "93.184.216.34", "64:ff9b::10.0.0.1"], ["127.0.0.1"]]
    assert find_host_addresses("api.example.com", 80, resolve=lambda *_: answers.pop(0)) == [address("93.184.216.34")]
    with pytest.raises(Refused, match=r"`api\.example\.com` is not a public address"):
        find_host_addresses("api.example.com", 80, resolve=lambda *_: answers.pop(0))


def test_the_next_address_is_tried_if_one_does_not_answer(port: int) -> None:
    dropped: list[socket.socket] = []
    with dial_host_addresses(
        [address("::1"), address("127.0.0.1")], port, 5, drop=lambda s: (dropped.append(s), s.close())
    ) as opened:
        assert opened.getpeername() == ("127.0.0.1", port)
    assert [s.family for s in dropped] == [socket.AF_INET6]


def test_what_is_not_there_is_tried_again_later() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        with pytest.raises(Unavailable, match="cannot be reached"):
            connect_to_host("127.0.0.1", taken.getsockname()[1], ["127.0.0.1"], 5)
    with pytest.raises(Unavailable, match="has no address"):
        connect_to_host("no-such-host.invalid", 80, (), 5)


def test_what_is_allowed_is_a_setting() -> None:
    found = load_settings({"ETUDE_AGENTS__REACH": "hooks.internal, 10.0.0.0/8"})
    assert found.agents.reach == ("hooks.internal", "10.0.0.0/8")
    with pytest.raises(Invalid, match=r"agents\.reach.*`10.0.0.0/33` is neither a host name nor a network"):
        load_settings({}, agents={"reach": ["10.0.0.0/33"]})

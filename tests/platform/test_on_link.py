"""Asking the kernel what is on link: here, where nothing changes. See tests/namespace."""

import gc
from ipaddress import ip_network

import gevent
import pytest
from gevent import socket

from nxdns.platform.on_link import OnLink
from tests.support.leaks import greenlets_alive, no_descriptor_left

pytestmark = pytest.mark.integration

needs_netlink = pytest.mark.skipif(
    not hasattr(socket, "AF_NETLINK"), reason="only Linux has rtnetlink"
)


@needs_netlink
def test_the_loopback_prefix_is_on_link_and_nobody_has_waited() -> None:
    others_ran: list[bool] = []
    gevent.spawn(others_ran.append, True)
    on_link = OnLink()
    assert not others_ran
    try:
        assert {ip_network("127.0.0.0/8"), ip_network("127.0.0.1/32")} <= on_link.prefixes
    finally:
        on_link.close()


@needs_netlink
def test_the_end_of_following_leaves_nothing_behind() -> None:
    before = greenlets_alive()
    with no_descriptor_left():
        for follows in (False, True):
            on_link = OnLink()
            if follows:
                on_link.follow(lambda prefixes: pytest.fail(f"what changed? {prefixes}"))
                gevent.idle()
            on_link.close()
            gevent.idle()
    gc.collect()
    assert greenlets_alive() <= before


def test_where_there_is_no_netlink_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK", raising=False)
    with no_descriptor_left(), pytest.raises(OSError, match="Address family not supported"):
        OnLink()

"""The page as its owner sees it, in a real browser."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import gevent
import pytest
from gevent import socket
from gevent.event import Event

from nxdns.app import App
from nxdns.config import load
from nxdns.snapshots import ReloadSnapshot
from nxdns.web.server import WebServer
from tests.support.authority import NAME, Authority, Issued
from tests.support.browser import TAB, Browser
from tests.support.forwarder import address_of, ask_udp, running
from tests.support.http_peer import answering, reply
from tests.support.messages import make_query, make_response
from tests.support.overviews import (
    AT,
    ScriptedSource,
    episode_of,
    flight_of,
    listener_of,
    missing_of,
    overview_of,
    tripped_of,
    upstream_of,
)
from tests.support.tls_peer import Session, TlsPeer, answer_all
from tests.support.waiting import eventually
from tests.support.web_client import port_of, serving

pytestmark = [pytest.mark.browser, pytest.mark.integration, pytest.mark.timeout(120)]

REFUSED = "ConnectFailed (cause ConnectionRefused)"
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>alert(1)</script>"

_LOOKS = (
    "return performance.getEntriesByType('resource')"
    ".filter(e => e.name.endsWith('/api/overview')).length"
)


def full_source() -> ScriptedSource:
    """Something of everything that the page can show."""
    flight = tuple(flight_of(REFUSED, ended_in="dial", session_seconds=None) for _ in range(40))
    source = ScriptedSource(
        overview_of(
            tripped_of(REFUSED, label="a-name-without-any-place-to-break-it-" + "x" * 27),
            upstream_of(
                1, url="https://dns.example/…", consecutive_failures=1, window="0" + "1" * 31
            ),
            upstream_of(2, enabled=False),
            upstream_of(3, window="", successes_total=0, last_success_at=None),
            listeners=(listener_of(udp_kernel_drops=7), listener_of(address="[::1]:5300")),
            missing_listeners=(missing_of(),),
            reload=ReloadSnapshot(0, 1, False, AT, ("/etc/nxdns/nxdns.toml:5: " + "y" * 90,)),
            open_episodes=(
                episode_of("a-name-without-any-place-to-break-it-" + "x" * 27, flight=flight),
            ),
        )
    )
    source.stored = (episode_of("upstream-1", resolved_at=AT - 10, flight=flight),)
    return source


@contextmanager
def shown(window: Browser, source: ScriptedSource) -> Iterator[WebServer]:
    """The page of a server that shows ``source``, once it has been filled."""
    with serving(source) as server:
        window.open(server.url)
        window.eventually(lambda: window.text("#about"))
        yield server
        window.open("about:blank")  # before the server goes: that would be on the console


def looks_of(window: Browser) -> int:
    """How often the page has asked the server."""
    return int(window.run(_LOOKS))


def await_refresh(window: Browser) -> None:
    """Wait until the page has asked, and shown, twice more."""
    before = looks_of(window)
    window.eventually(lambda: looks_of(window) >= before + 2)


def test_a_tripped_upstream_appears_within_one_refresh(window: Browser) -> None:
    source = ScriptedSource(overview_of(upstream_of(label="quad9"), upstream_of(1)))
    with shown(window, source):
        assert "trusted" in window.text("#upstreams .state")
        assert "not trusted" not in window.text()

        source.shown = overview_of(
            tripped_of(REFUSED, label="quad9"),
            upstream_of(1),
            open_episodes=(episode_of("quad9"),),
        )
        before = looks_of(window)
        window.eventually(lambda: "not trusted" in window.text("#upstreams .state"))
        assert looks_of(window) <= before + 2  # one may have been under way
        assert "quad9 refuses connections" in window.text("#notes")
        assert REFUSED in window.text("#open .episode")
        assert "in part" in window.text("#status")
        assert "quad9 refuses connections" in window.run(
            "return document.querySelector('[aria-live]').textContent"
        )


def test_a_recovered_upstream_leaves_its_warning_and_its_episode_is_kept_below(
    window: Browser,
) -> None:
    over = episode_of("quad9", resolved_at=AT)
    source = ScriptedSource(
        overview_of(tripped_of(REFUSED, label="quad9"), open_episodes=(episode_of("quad9"),))
    )
    with shown(window, source):
        window.eventually(lambda: "quad9" in window.text("#open"))
        source.shown = overview_of(upstream_of(label="quad9"))
        source.stored = (over,)
        window.eventually(lambda: "resolved" in window.text("#resolved"))
        assert "quad9" in window.text("#resolved")
        assert "None is open" in window.text("#open")
        assert "Nothing is wrong" in window.text("#notes")


def test_hostile_names_and_causes_are_shown_as_text(window: Browser) -> None:
    source = ScriptedSource(
        overview_of(
            tripped_of(HOSTILE, label=HOSTILE, url=HOSTILE + "/", rcodes={HOSTILE: 1}),
            listeners=(listener_of(address=HOSTILE, udp={HOSTILE: 1}),),
            reload=ReloadSnapshot(0, 1, False, AT, (HOSTILE,)),
            open_episodes=(
                episode_of(HOSTILE, detail=HOSTILE, flight=(flight_of(HOSTILE, ended_in=HOSTILE),)),
            ),
        )
    )
    with shown(window, source):
        window.eventually(lambda: window.text("#open summary"))
        window.run("document.querySelector('#open summary').click()")
        window.eventually(lambda: HOSTILE in window.text("#open td:last-child"))
        for part in ("#notes", "#upstreams h3", "#upstreams .url", "#open h3", "#queries"):
            assert HOSTILE in window.text(part), part
        assert window.run("return document.querySelectorAll('main img, main script').length") == 0
        assert "owned" not in window.run("return document.title")


def test_the_page_says_that_the_server_is_gone_and_recovers_when_it_is_back(
    window: Browser,
) -> None:
    source = ScriptedSource(overview_of(upstream_of(label="before")))
    with serving(source) as server:
        window.open(server.url)
        window.eventually(lambda: "before" in window.text("#upstreams"))
        assert window.text("#lost") == ""
        port = port_of(server)
    window.eventually(lambda: "has not answered since" in window.text("#lost"))
    assert "before" in window.text("#upstreams")  # what it knew last is still of use
    assert "not reached" in window.text("#status")
    await_refresh(window)  # in vain, and again

    source.shown = overview_of(upstream_of(label="after"))
    back = WebServer("127.0.0.1", port, source, ())
    back.start()
    try:
        window.eventually(lambda: "after" in window.text("#upstreams"))
        assert window.text("#lost") == ""
        assert "working" in window.text("#status")
        window.open("about:blank")
    finally:
        back.stop()
    # Chromium itself tells of each connection that was refused; nothing else was said.
    assert all("ERR_CONNECTION_REFUSED" in line for line in window.console())


def test_a_server_that_accepts_and_never_answers_is_gone_too(window: Browser) -> None:
    with serving() as server:
        window.open(server.url)
        window.eventually(lambda: window.text("#about"))
        port = port_of(server)
    with socket.socket() as mute:
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        mute.bind(("127.0.0.1", port))
        mute.listen(8)
        window.eventually(lambda: "has not answered since" in window.text("#lost"), seconds=40)
        window.open("about:blank")
    window.console()  # it may have met neither of the two


def test_a_disk_that_hangs_takes_nothing_but_the_resolved_episodes(window: Browser) -> None:
    source, gate = ScriptedSource(overview_of(open_episodes=(episode_of("quad9"),))), Event()
    source.on_episodes = gate.wait
    source.stored = (episode_of("before", resolved_at=AT),)
    with shown(window, source):
        await_refresh(window)
        assert "quad9" in window.text("#open")
        assert "Not read yet" in window.text("#resolved")
        assert window.text("#lost") == ""
        gate.set()
        window.eventually(lambda: "before" in window.text("#resolved"))


def test_nothing_scrolls_sideways_on_a_phone(window: Browser) -> None:
    window.resize(360, 740)
    with shown(window, full_source()):
        window.eventually(lambda: window.text("#resolved summary"))
        window.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        window.eventually(lambda: window.text("#open td"))
        wide = window.run(
            """
            return [...document.querySelectorAll('body *')].filter(e =>
              !e.closest('.scroll') && !e.matches('.skip, .sr-only')
              && e.getBoundingClientRect().right > 360).map(e => e.outerHTML.slice(0, 80));
            """
        )
        assert wide == []
        assert window.run("return document.scrollingElement.scrollWidth") <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_light_and_in_dark(window: Browser, scheme: str) -> None:
    window.prefer(scheme)
    with shown(window, full_source()):
        window.eventually(lambda: window.text("#resolved summary"))
        window.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        window.eventually(lambda: window.text("#open td"))
        ground = window.run("return getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(245, 246, 244)") is (scheme == "light")
        # WCAG 2.2 §1.4.3: 4.5 to 1.
        pale = window.run(
            """
            const parse = (color) => color.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
              .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
              .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const under = (e) => {
              for (; e; e = e.parentElement) {
                const color = parse(getComputedStyle(e).backgroundColor);
                if (color.length < 4 || color[3] > 0) return color;
              }
            };
            const texts = [...document.querySelectorAll('body *')].filter(e =>
              [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())
              && e.checkVisibility() && !e.closest('script, noscript'));
            return texts.flatMap(e => {
              const style = getComputedStyle(e);
              const ink = light(parse(e instanceof SVGElement ? style.fill : style.color));
              const paper = light(under(e));
              const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
              return contrast < 4.5 ? [`${contrast.toFixed(2)} ${e.outerHTML.slice(0, 90)}`] : [];
            });
            """
        )
        assert pale == []


def test_the_keyboard_reaches_everything_there_is_to_act_on(window: Browser) -> None:
    with shown(window, full_source()):
        window.eventually(lambda: window.text("#resolved summary"))
        window.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        window.eventually(lambda: window.text("#resolved td"))
        wanted = window.run(
            """
            const all = [...document.querySelectorAll('a, summary, button, .scroll')]
              .filter(e => !e.closest('noscript'));
            all.forEach((e, i) => { e.dataset.number = i; });
            return all.length;
            """
        )
        assert wanted >= 9  # the skip link, two records with their tables, four links
        reached: list[str] = []
        for _ in range(wanted):
            window.press(TAB)
            reached.append(window.run("return document.activeElement.dataset.number"))
        assert reached == [str(number) for number in range(wanted)]
        # And whoever gets there sees where that is.
        assert window.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_keyboard_unfolds_a_flight_record_which_stays_so(window: Browser) -> None:
    with shown(window, full_source()):
        window.eventually(lambda: window.text("#open summary"))
        window.run("document.querySelector('#open summary').focus()")
        window.press("\ue007")  # Enter
        window.eventually(lambda: REFUSED in window.text("#open td:last-child"))
        await_refresh(window)
        assert window.run("return document.querySelector('#open details').open") is True
        assert window.run("return document.activeElement.closest('#open') !== null") is True


def test_a_screen_reader_finds_its_way(window: Browser) -> None:
    with shown(window, full_source()):
        window.eventually(lambda: window.text("#open summary"))
        outline = window.run(
            """
            const all = (selector) => [...document.querySelectorAll(selector)];
            return {
              lang: document.documentElement.lang,
              landmarks: ['body > header', 'main', 'body > footer', 'nav'].map(e => all(e).length),
              levels: all('h1, h2, h3, h4').map(e => Number(e.tagName[1])),
              nameless: all('section')
                .filter(e => !document.getElementById(e.getAttribute('aria-labelledby'))).length,
              pictures: all('svg:not([aria-hidden=true], [aria-label])').length,
              live: all('[aria-live=polite]').length,
              strip: document.querySelector('.strip').getAttribute('aria-label'),
            };
            """
        )
        assert outline["lang"] == "en"
        assert outline["landmarks"] == [1, 1, 1, 1]
        levels = outline["levels"]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert outline["nameless"] == outline["pictures"] == 0
        assert outline["live"] == 1
        assert outline["strip"] == "Last 2 outcomes: 0 answered, 2 failed; the newest failed"


def test_no_meaning_is_in_a_colour_alone(window: Browser) -> None:
    with shown(window, full_source()):
        states = window.run("return [...document.querySelectorAll('.state')].map(e => e.innerText)")
        assert [state[0] for state in states] == ["■", "▲", "○", "○"]
        heights = window.run(
            "return [...document.querySelectorAll('.strip')[1].querySelectorAll('rect')]"
            ".map(e => `${e.getAttribute('class')} ${e.getAttribute('height')}`)"
        )
        assert set(heights) == {"yes 32", "no 11"}
        assert heights[-1] == "no 11"  # the newest at the right
        alarm = window.run(
            "return getComputedStyle(document.querySelector('#queries .alarm'), '::before').content"
        )
        assert "▲" in alarm


def test_everything_comes_from_the_server_itself(window: Browser) -> None:
    with shown(window, full_source()) as server:
        await_refresh(window)
        names = window.run("return performance.getEntriesByType('resource').map(e => e.name)")
        assert all(name.startswith(server.url) for name in names)


def test_drops_of_the_kernel_stand_out(window: Browser) -> None:
    with shown(window, full_source()):
        assert window.run(
            "return [...document.querySelectorAll('#queries .alarm')].map(e => e.innerText)"
        )[0].endswith("7")
        assert "The kernel dropped 7 queries" in window.text("#notes")


# --- six faults, as they happen -----------------------------------------------------------------


def table(name: str, port: int, priority: int) -> str:
    url = f'url = "tls://127.0.0.1:{port}"'
    return f'name = "{name}"\n{url}\ntls_name = "{NAME}"\npriority = {priority}'


def answer(query: bytes) -> bytes:
    return make_response(query, "192.0.2.1")


def silent(session: Session) -> None:
    session.wait_for_end()


def ask(app: App, times: int) -> None:
    for _ in range(times):
        ask_udp(address_of(app), make_query())


@contextmanager
def seen(window: Browser, app: App) -> Iterator[None]:
    """The page of ``app``."""
    with serving(app.surface) as server:
        window.open(server.url)
        window.eventually(lambda: window.text("#about"))
        yield
        window.open("about:blank")


def assert_named(window: Browser, title: str, cause: str, what_to_do: str) -> None:
    """One note says all three."""

    def notes() -> list[str]:
        script = "return [...document.querySelectorAll('#notes .note')].map(e => e.innerText)"
        return list(window.run(script))

    window.eventually(lambda: any(title in note for note in notes()))
    note = next(note for note in notes() if title in note)
    assert cause in note
    assert what_to_do in note


LONG_BACKOFF = "[health]\nbase_backoff_ms = 60000\n"


def test_a_dead_upstream_is_named(
    window: Browser, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), silent) as gone:
        port = gone.port
    good = TlsPeer(certificate.openssl_context(), answer_all(answer))
    upstreams = [table("dead", port, 1), table("good", good.port, 2)]
    with good, running(tmp_path, authority.ca_file, upstreams, LONG_BACKOFF) as app:
        ask(app, 2)
        with seen(window, app):
            assert_named(window, "dead refuses connections", REFUSED, "address and port")


def test_a_silent_upstream_is_named(
    window: Browser, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    context = certificate.openssl_context()
    with TlsPeer(context, silent) as mute, TlsPeer(context, answer_all(answer)) as good:
        upstreams = [table("mute", mute.port, 1), table("good", good.port, 2)]
        extra = LONG_BACKOFF + "[budgets]\nattempt_ms = 100\ntotal_ms = 10000\n"
        with running(tmp_path, authority.ca_file, upstreams, extra) as app:
            ask(app, 2)
            with seen(window, app):
                assert_named(window, "mute is silent", "Timeout (cause Timeout)", "line")
                assert "good" in window.text("#notes")


def test_an_expired_certificate_is_named(
    window: Browser, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    expired = TlsPeer(authority.expired().openssl_context(), silent)
    with expired, TlsPeer(certificate.openssl_context(), answer_all(answer)) as good:
        upstreams = [table("old", expired.port, 1), table("good", good.port, 2)]
        with running(tmp_path, authority.ca_file, upstreams, LONG_BACKOFF) as app:
            ask(app, 2)
            with seen(window, app):
                assert_named(
                    window, "old shows an expired certificate", "CertificateExpired", "clock"
                )


def test_a_saturated_upstream_is_named(
    window: Browser, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    gate = Event()

    def answer_when_told(query: bytes) -> bytes:
        gate.wait()
        return reply(answer(query))

    # Of DNS over HTTPS, a connection carries one query at a time.
    with TlsPeer(certificate.openssl_context(), answering(answer_when_told)) as peer:
        upstream = table("narrow", peer.port, 1).replace("tls://", "https://")
        extra = "[budgets]\nattempt_ms = 20000\ntotal_ms = 60000\n"
        with running(tmp_path, authority.ca_file, [upstream], extra) as app:
            slots = app.snapshot()[0].slots
            asked = [gevent.spawn(ask, app, 1) for _ in range(slots + 12)]
            eventually(lambda: app.snapshot()[0].in_flight == slots)
            with seen(window, app):
                assert_named(window, "narrow is saturated", f"its {slots} places", "priority")
                # And afterwards, for as long as what has waited is news.
                gate.set()
                gevent.joinall(asked, raise_error=True)
                waited = f"12 of the last {slots + 12} waited"
                window.eventually(lambda: waited in window.text("#notes"))


def test_an_unwritable_store_is_named(
    window: Browser, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    # A folder in the place of the file: not even root can write that.
    os.mkdir(tmp_path / "events.db")
    with TlsPeer(certificate.openssl_context(), silent) as gone:
        port = gone.port
    extra = f'{LONG_BACKOFF}[storage]\npath = "{tmp_path / "events.db"}"\n'
    with running(tmp_path, authority.ca_file, [table("dead", port, 1)], extra) as app:
        ask(app, 2)
        with seen(window, app):
            assert_named(
                window, "Episodes cannot be stored", "unable to open database file", "[storage]"
            )


def test_a_bad_reload_is_named_with_its_line(
    window: Browser, tmp_path: Path, authority: Authority, certificate: Issued
) -> None:
    with TlsPeer(certificate.openssl_context(), answer_all(answer)) as good:
        upstreams = [table("good", good.port, 1)]
        with running(tmp_path, authority.ca_file, upstreams) as app:
            bad = tmp_path / "bad.toml"
            bad.write_text('[[upstreams]]\nurl = "tls://192.0.2.1"\nprio = 3\n')
            with seen(window, app):
                app.reload(lambda: load(bad))
                assert_named(window, "The last reload failed", "did you mean priority?", "check")
                assert "bad.toml:3" in window.text("#notes")

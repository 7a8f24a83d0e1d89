"""The projection of health onto the store: pools over fake leaves, and the real store."""

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import gevent
import pytest

from nxdns.owner import Owner
from nxdns.storage.events import EventStore
from nxdns.upstream import health
from nxdns.upstream.entry import Entry
from nxdns.upstream.episodes import UPSTREAM_EXCHANGE, Episodes
from nxdns.upstream.health import CLEAR, Effect, Tripped
from nxdns.upstream.history import History
from nxdns.upstream.pool import UpstreamPool
from nxdns.upstream.transport import PeerFault
from tests.storage.stores import (
    NOW,
    WallClock,
    locked,
    open_in,
    resolved_in,
    store_on,
    written,
)
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import (
    MS,
    QUERY,
    REFUSED,
    REPLY,
    RESET,
    SECOND,
    FakeLeaf,
    GatedLeaf,
    ManualClock,
    ScriptedLeaf,
    SteadyLeaf,
    Step,
    entry_of,
    pool_of,
)
from tests.support.waiting import eventually

CFG = health.Config(2, 1_000, 60_000)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another process that holds the file."""
    monkeypatch.setattr("nxdns.storage.database._BUSY_SECONDS", 0.01)
    monkeypatch.setattr("nxdns.storage.events._PAUSE_SECONDS", 0.001)


class House:
    """A store, what projects onto it, and the pools that do."""

    def __init__(self, path: str) -> None:
        self.clock = ManualClock()
        self.wall = WallClock()
        self.store = EventStore(path, self.wall)
        self.episodes = Episodes(self.store, self.clock)

    def entry(self, *script: Step, label: str = "home", history: History | None = None) -> Entry:
        return self.entry_over(ScriptedLeaf(*script), label=label, history=history)

    def entry_over(
        self,
        *leaves: FakeLeaf,
        label: str = "home",
        history: History | None = None,
        enabled: bool = True,
    ) -> Entry:
        return entry_of(*leaves, clock=self.clock, label=label, history=history, enabled=enabled)

    def pool(self, *entries: Entry, threshold: int = 2) -> UpstreamPool:
        return pool_of(
            *entries, clock=self.clock, threshold=threshold, on_effect=self.episodes.apply
        )

    def boot(self, pool: UpstreamPool) -> None:
        self.store.load()
        self.reconcile(pool)

    def reconcile(self, pool: UpstreamPool) -> None:
        self.episodes.reconcile(pool.entries, pool._cfg)

    def owner(self, generation: "Generation") -> Owner:
        self.boot(generation.pool)
        return Owner(generation, self.clock, self.reconcile)

    @property
    def open(self) -> list[tuple[str, int]]:
        """Subjects and occurrences."""
        return [(each.subject, each.occurrences) for each in self.store.active()]

    @property
    def ended(self) -> list[tuple[str, int]]:
        return [(each.subject, each.occurrences) for each in self.store.recent(99)]


class Generation:
    """A pool, and whether its sessions are closed."""

    def __init__(self, pool: UpstreamPool) -> None:
        self.pool = pool
        self.closes = 0

    def close(self) -> None:
        self.closes += 1
        self.pool.close()


@contextmanager
def house_on(path: str) -> Iterator[House]:
    house = House(path)
    try:
        yield house
    finally:
        house.store.close()


@pytest.fixture
def house() -> Iterator[House]:
    with house_on("") as house:
        yield house


def ask(pool: UpstreamPool | Owner) -> None:
    """One query, whatever comes of it."""
    with suppress(PeerFault):
        exchanged(pool, QUERY)


def apply_all(house: House, entry: Entry, effects: Sequence[Effect]) -> None:
    for effect in effects:
        house.episodes.apply(entry, effect)


# The life of an episode.


def test_one_failure_opens_nothing_the_second_opens_and_the_next_success_resolves(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nxdns")
    pool = house.pool(house.entry(RESET, REFUSED, RESET, REPLY, REPLY))
    ask(pool)
    assert house.open == []
    house.clock.advance(MS)
    ask(pool)
    [episode] = house.store.active()
    assert (episode.code, episode.subject) == (UPSTREAM_EXCHANGE, "home")
    assert episode.detail == "upstream 'home' failed: ConnectFailed (cause ConnectionRefused)"
    house.clock.advance(MS)
    house.wall.now += 60
    ask(pool)
    [episode] = house.store.active()
    assert episode.detail == "upstream 'home' failed: ReceiveFailed (cause ConnectionResetByPeer)"
    assert (episode.occurrences, episode.opened_at, episode.last_seen) == (2, NOW, NOW + 60)
    house.clock.advance(MS)
    ask(pool)
    ask(pool)
    assert (house.open, house.ended) == ([], [("home", 2)])
    assert caplog.messages == [
        "upstream 'home' failed: ConnectFailed (cause ConnectionRefused)",
        "upstream 'home' has recovered",
    ]


def test_the_log_tells_once_a_minute_of_an_upstream_that_comes_and_goes(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="nxdns")
    pool = house.pool(house.entry_over(ScriptedLeaf(*(REFUSED, REFUSED, REPLY) * 5)))
    for _ in range(15):
        ask(pool)
        house.clock.advance(SECOND)
    assert house.open == []
    assert caplog.messages == [
        "upstream 'home' failed: ConnectFailed (cause ConnectionRefused)",
        "upstream 'home' has recovered",
    ]


def test_an_upstream_that_fails_every_other_exchange_opens_none(house: House) -> None:
    pool = house.pool(house.entry_over(ScriptedLeaf(*(RESET, REPLY) * 20)))
    for _ in range(40):
        ask(pool)
        house.clock.advance(MS)
    assert (house.open, house.ended) == ([], [])


def test_a_stale_success_while_tripped_leaves_the_episode_as_it_is(house: House) -> None:
    def answer_as_of_before() -> bytes:
        house.clock.advance(-5 * MS)
        return REPLY

    entry = house.entry(RESET, answer_as_of_before, RESET)
    pool = house.pool(entry, threshold=1)
    ask(pool)
    before = house.store.active()
    applied = entry.history.applied_revision
    house.wall.now += 5
    ask(pool)
    assert house.store.active() == before
    assert entry.history.applied_revision == applied, "None does not advance it"
    assert entry.health.revision > applied


def test_a_backoff_that_ends_resolves_nothing(house: House) -> None:
    entry = house.entry(RESET, RESET)
    pool = house.pool(entry, threshold=1)
    ask(pool)
    house.clock.advance(3_600_000 * MS)
    assert entry.health.available(house.clock())
    house.reconcile(pool)
    assert house.open == [("home", 1)]


# In the order of revisions.


@pytest.mark.parametrize(
    ("effects", "still_open"),
    [
        pytest.param([(1, Tripped(RESET)), (3, CLEAR), (2, Tripped(RESET))], False, id="tripped"),
        pytest.param([(1, CLEAR), (3, Tripped(RESET)), (2, CLEAR)], True, id="clear"),
    ],
)
def test_an_effect_after_a_newer_one_is_dropped(
    house: House, effects: list[tuple[int, health.Clear | Tripped]], still_open: bool
) -> None:
    entry = house.entry()
    apply_all(house, entry, [Effect(*effect) for effect in effects])
    assert house.open == ([("home", 1)] if still_open else [])
    assert entry.history.applied_revision == 3


def test_effects_of_one_upstream_say_nothing_of_the_revisions_of_another(house: House) -> None:
    one, other = house.entry(label="one"), house.entry(label="other")
    house.episodes.apply(one, Effect(9, CLEAR))
    house.episodes.apply(other, Effect(1, Tripped(RESET)))
    assert house.open == [("other", 1)]


# Reconciliation.


def test_at_boot_episodes_of_unknown_disabled_and_healthy_upstreams_are_closed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.db"
    with store_on(path, WallClock()) as store:
        for label in ("unknown", "disabled", "healthy"):
            store.report(UPSTREAM_EXCHANGE, label, "", str)
        store.report("another code", "unknown", "", str)
    with house_on(str(path)) as house:
        healthy = house.entry(label="healthy")
        disabled = house.entry_over(SteadyLeaf(), label="disabled", enabled=False)
        house.boot(house.pool(healthy, disabled))
        assert [(each.code, each.subject) for each in house.store.active()] == [
            ("another code", "unknown")
        ]
        written(house.store)
        assert {each.subject for each in resolved_in(path)} == {"unknown", "disabled", "healthy"}


def test_asserting_again_moves_neither_occurrences_nor_last_seen_nor_the_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    pool = house.pool(house.entry(RESET), threshold=1)
    ask(pool)
    before = house.store.active()
    caplog.clear()
    house.wall.now += 60
    for _ in range(3):
        house.reconcile(pool)
    assert house.store.active() == before
    assert caplog.messages == []


def test_reconciliation_sets_the_revision_so_that_what_is_older_is_dropped(house: House) -> None:
    entry = house.entry(REPLY, REPLY, REPLY)
    pool = house.pool(entry)
    late = Effect(2, Tripped(RESET))
    for _ in range(3):
        entry.health.record_success(house.clock(), CFG)
    house.reconcile(pool)
    house.episodes.apply(entry, late)
    assert entry.history.applied_revision == 3
    assert house.open == []


# Generations.


def test_a_late_tripped_of_a_retired_generation_is_put_right_at_its_last_release(
    house: House,
) -> None:
    leaves = [GatedLeaf(RESET), GatedLeaf(RESET)]  # the last one is lent first
    old = Generation(house.pool(house.entry_over(*leaves, label="removed"), threshold=1))
    owner = house.owner(old)
    asking = []
    for leaf in reversed(leaves):
        asking.append(gevent.spawn(ask, owner))
        leaf.entered.wait()
        house.clock.advance(MS)
    owner.replace(Generation(house.pool(house.entry(REPLY, label="home"))))
    leaves[1].gate.set()
    asking[0].join()
    assert house.open == [("removed", 1)], "late, and the generation is not retired yet"
    assert old.closes == 0
    leaves[0].gate.set()
    asking[1].join()
    assert old.closes == 1
    assert house.open == []
    assert house.ended == [("removed", 2)]


def test_an_idle_generation_is_reconciled_at_once(house: House) -> None:
    old = Generation(house.pool(house.entry(RESET, label="removed"), threshold=1))
    owner = house.owner(old)
    ask(owner)
    assert house.open == [("removed", 1)]
    owner.replace(Generation(house.pool(house.entry(label="home"))))
    assert old.closes == 1
    assert (house.open, house.ended) == ([], [("removed", 1)])


def test_an_upstream_that_stays_tripped_over_a_reload_keeps_its_episode(house: House) -> None:
    history = History()
    old = Generation(house.pool(house.entry(RESET, RESET, history=history)))
    owner = house.owner(old)
    ask(owner)
    house.clock.advance(MS)
    ask(owner)
    before = house.store.active()
    house.wall.now += 60
    owner.replace(Generation(house.pool(house.entry(REPLY, history=history))))
    assert house.store.active() == before
    ask(owner)
    assert (house.open, house.ended) == ([], [("home", 1)])


def test_an_upstream_under_a_new_name_takes_its_open_episode_along(house: House) -> None:
    history = History()
    old = Generation(house.pool(house.entry(RESET, RESET, label="old name", history=history)))
    owner = house.owner(old)
    ask(owner)
    house.clock.advance(MS)
    ask(owner)
    owner.replace(Generation(house.pool(house.entry(label="new name", history=history))))
    assert (house.open, house.ended) == ([("new name", 1)], [("old name", 1)])


def test_another_upstream_under_the_name_of_a_tripped_one_is_no_episode(house: House) -> None:
    owner = house.owner(Generation(house.pool(house.entry(RESET), threshold=1)))
    ask(owner)
    owner.replace(Generation(house.pool(house.entry(REPLY))))
    assert (house.open, house.ended) == ([], [("home", 1)])


# The store's own trouble.


def test_what_the_store_could_not_write_is_made_good_by_the_next_effect(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    with house_on(str(path)) as house:
        pool = house.pool(house.entry(RESET, RESET, REPLY, REPLY), threshold=1)
        house.boot(pool)
        ask(pool)
        written(house.store)
        with locked(path):
            house.clock.advance(MS)
            ask(pool)
            eventually(lambda: house.store.failing)
            assert house.open == [("home", 2)]
        ask(pool)
        written(house.store)
        assert open_in(path) == []
        assert [(e.subject, e.occurrences) for e in resolved_in(path)] == [("home", 2)]


def test_a_corrupt_file_is_set_aside_at_boot_and_what_is_tripped_is_written_anew(
    tmp_path: Path,
) -> None:
    path = tmp_path / "events.db"
    path.write_bytes(b"garbage" * 1_000)
    with house_on(str(path)) as house:
        pool = house.pool(house.entry(RESET), threshold=1)
        house.boot(pool)
        assert house.store.set_aside
        ask(pool)
        written(house.store)
        assert [each.subject for each in open_in(path)] == ["home"]


@pytest.mark.parametrize("outcome", [REPLY, RESET], ids=["success", "failure"])
def test_no_other_greenlet_has_its_turn_while_an_effect_is_projected(
    house: House, outcome: Step
) -> None:
    turns = 0

    def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            gevent.sleep(0)

    entry = house.entry(RESET, outcome)
    pool = house.pool(entry, threshold=1)
    ask(pool)
    house.clock.advance(MS)
    counting = gevent.spawn(count)
    gevent.sleep(0)
    before = turns
    ask(pool)
    house.reconcile(pool)
    assert turns == before
    counting.kill()


# The flight record.


def test_an_episode_is_stored_with_what_came_before_it(house: House) -> None:
    def after(seconds: int, step: Step) -> Callable[[], bytes]:
        def take() -> bytes:
            house.clock.advance(seconds * 1_000 * MS)
            assert isinstance(step, bytes)
            return step

        return take

    pool = house.pool(house.entry(after(1, REPLY), after(100, REPLY), RESET, RESET, REFUSED))
    ask(pool)
    ask(pool)
    house.clock.advance(1_000 * MS)
    ask(pool)
    house.clock.advance(1_000 * MS)
    ask(pool)
    [episode] = house.store.active()
    told = json.loads(episode.flight)
    assert [(each["outcome"], each["failed"], each["seconds_ago"]) for each in told] == [
        ("ReceiveFailed (cause ConnectionResetByPeer)", True, 0.0),
        ("ReceiveFailed (cause ConnectionResetByPeer)", True, 1.0),
        ("NOERROR", False, 2.0),
    ]
    house.clock.advance(60_000 * MS)
    ask(pool)
    assert house.store.active()[0].flight == episode.flight, "of its opening, not of later"

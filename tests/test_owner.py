"""The current generation: pinned for the length of an exchange, replaced at once, retired once."""

from collections.abc import Callable

import gevent
import pytest

from nxdns.owner import Owner
from nxdns.upstream.pool import UpstreamPool
from nxdns.upstream.transport import LocalKind, LocalResource, PeerFault
from tests.support.exchanging import exchanged
from tests.support.fake_leaves import (
    MS,
    QUERY,
    REPLY,
    RESET,
    FakeLeaf,
    GatedLeaf,
    ManualClock,
    ScriptedLeaf,
    SteadyLeaf,
    entry_of,
    pool_of,
)
from tests.support.messages import make_response

ONE, TWO = (make_response(QUERY, f"192.0.2.{host}") for host in (1, 2))


class Story:
    """Generations, and what became of them in order."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.told: list[str] = []

    def generation(self, name: str, *leaves: FakeLeaf) -> "Generation":
        entry = entry_of(*(leaves or (SteadyLeaf(),)), clock=self.clock, label=name)
        return Generation(self, name, pool_of(entry, clock=self.clock))

    def owner(self, generation: "Generation") -> Owner:
        return Owner(generation, self.clock, self._on_retired)

    def _on_retired(self, current: UpstreamPool) -> None:
        self.told.append(f"reconcile {current.entries[0].label}")


class Generation:
    def __init__(self, story: Story, name: str, pool: UpstreamPool) -> None:
        self.pool = pool
        self._story = story
        self._name = name

    def close(self) -> None:
        self._story.told.append(f"close {self._name}")
        self.pool.close()


@pytest.fixture
def story() -> Story:
    return Story()


def test_an_exchange_goes_to_the_current_generation(story: Story) -> None:
    one, two = SteadyLeaf(ONE), SteadyLeaf(TWO)
    owner = story.owner(story.generation("one", one))
    assert exchanged(owner, QUERY) == ONE
    second = story.generation("two", two)
    owner.replace(second)
    assert owner.current is second
    assert exchanged(owner, QUERY) == TWO
    assert len(one.queries) == 1


def test_an_idle_generation_is_retired_at_once_and_the_current_one_reconciled(
    story: Story,
) -> None:
    owner = story.owner(story.generation("one"))
    exchanged(owner, QUERY)
    owner.replace(story.generation("two"))
    assert story.told == ["close one", "reconcile two"]


def test_a_pinned_generation_is_retired_once_when_its_last_exchange_has_ended(
    story: Story,
) -> None:
    leaves = [GatedLeaf(ONE), GatedLeaf(ONE)]
    owner = story.owner(story.generation("one", *leaves))
    asking = [gevent.spawn(exchanged, owner, QUERY) for _ in leaves]
    for leaf in leaves:
        leaf.entered.wait()
    leaves.reverse()  # the last one is lent first
    owner.replace(story.generation("two", SteadyLeaf(TWO)))
    assert exchanged(owner, QUERY) == TWO
    assert story.told == []
    for leaf, each in zip(leaves, asking, strict=True):
        assert story.told == [], "the other exchange still runs"
        leaf.gate.set()
        assert each.get() == ONE, "the reload broke no query in flight"
    assert story.told == ["close one", "reconcile two"]
    exchanged(owner, QUERY)
    assert story.told == ["close one", "reconcile two"]


def test_the_generation_that_is_current_at_the_last_release_is_reconciled(story: Story) -> None:
    leaf = GatedLeaf()
    owner = story.owner(story.generation("one", leaf))
    asking = gevent.spawn(exchanged, owner, QUERY)
    leaf.entered.wait()
    owner.replace(story.generation("two"))
    owner.replace(story.generation("three"))
    assert story.told == ["close two", "reconcile three"]
    leaf.gate.set()
    asking.get()
    assert story.told == ["close two", "reconcile three", "close one", "reconcile three"]


@pytest.mark.parametrize(
    ("step", "error"),
    [(RESET, PeerFault), (LocalResource(LocalKind.OUT_OF_MEMORY), LocalResource)],
)
def test_a_failed_exchange_lets_go_of_its_generation(
    story: Story, step: Callable[[], bytes], error: type[Exception]
) -> None:
    owner = story.owner(story.generation("one", ScriptedLeaf(step)))
    with pytest.raises(error):
        exchanged(owner, QUERY)
    owner.replace(story.generation("two"))
    assert story.told == ["close one", "reconcile two"]


def test_a_killed_exchange_lets_go_of_its_generation(story: Story) -> None:
    leaf = GatedLeaf()
    owner = story.owner(story.generation("one", leaf))
    asking = gevent.spawn(exchanged, owner, QUERY)
    leaf.entered.wait()
    owner.replace(story.generation("two"))
    asking.kill()
    assert story.told == ["close one", "reconcile two"]


def test_one_that_is_killed_while_it_queues_lets_go_as_well(story: Story) -> None:
    leaf = GatedLeaf()
    owner = story.owner(story.generation("one", leaf))
    asking = [gevent.spawn(exchanged, owner, QUERY) for _ in range(2)]
    leaf.entered.wait()
    gevent.idle()
    owner.replace(story.generation("two"))
    asking[1].kill()
    assert story.told == []
    leaf.gate.set()
    asking[0].get()
    assert story.told == ["close one", "reconcile two"]


def test_replacing_never_waits(story: Story) -> None:
    owner = story.owner(story.generation("one"))
    others: list[str] = []
    gevent.spawn(others.append, "had a turn")
    for name in ("two", "three"):
        owner.replace(story.generation(name))
    assert others == []
    gevent.idle()


def test_what_clients_waited_is_counted_failed_attempts_included(story: Story) -> None:
    def taking(milliseconds: int, outcome: object) -> Callable[[], object]:
        def step() -> object:
            story.clock.advance(milliseconds * MS)
            return outcome

        return step

    failing = entry_of(
        ScriptedLeaf(taking(400, RESET), taking(300, RESET)),  # type: ignore[arg-type]
        clock=story.clock,
        priority=1,
    )
    good = entry_of(
        ScriptedLeaf(taking(20, REPLY), taking(40, RESET)),  # type: ignore[arg-type]
        clock=story.clock,
        priority=2,
    )
    owner = story.owner(Generation(story, "one", pool_of(failing, good, clock=story.clock)))
    exchanged(owner, QUERY)
    with pytest.raises(PeerFault):
        exchanged(owner, QUERY)
    waits = owner.waits.snapshot()
    assert sum(waits.counts) == 2
    assert waits.sum_seconds == pytest.approx(0.420 + 0.340)
    assert sum(good.history.durations.snapshot().counts) == 2


def test_it_is_one_histogram_for_all_generations(story: Story) -> None:
    owner = story.owner(story.generation("one"))
    exchanged(owner, QUERY)
    owner.replace(story.generation("two"))
    exchanged(owner, QUERY)
    assert sum(owner.waits.snapshot().counts) == 2

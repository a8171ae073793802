"""The list of all checkers."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checkers import Checker, Violation
from tests.simulation.checkers.consumption import OnlyConsumed
from tests.simulation.checkers.counts import DeliveryCounts
from tests.simulation.checkers.dead_letters import LettersArrive, LettersTrue, NoLettersUnasked
from tests.simulation.checkers.delays import Delays
from tests.simulation.checkers.durability import ConfirmedTruthfully, DurableBeforeConfirmed
from tests.simulation.checkers.exclusion import MutualExclusion
from tests.simulation.checkers.fencing import Fencing
from tests.simulation.checkers.finality import AcceptIsFinal, StoredIsFinal
from tests.simulation.checkers.first_start import FirstStart
from tests.simulation.checkers.group_changes import ChangesEnd, ConfirmedChanges, DeletedGroups
from tests.simulation.checkers.groups_apart import OwnDeliveries, OwnSettings
from tests.simulation.checkers.isolation import TopicIds
from tests.simulation.checkers.labels import LabelsKept
from tests.simulation.checkers.lag import Drained, Lag
from tests.simulation.checkers.liveness import ClientsRecover, FetchesEnd
from tests.simulation.checkers.membership import Assignments, Expiry, GroupEpochs, MemberEpochs
from tests.simulation.checkers.moves import AgesEnd, Moves
from tests.simulation.checkers.objects import Objects
from tests.simulation.checkers.ownership import Ownership
from tests.simulation.checkers.passing import NothingSkipped
from tests.simulation.checkers.reasons import Reasons
from tests.simulation.checkers.removed_members import LostGo, RemovedEnd
from tests.simulation.checkers.replay import LogEqualsState, LogsOutlive
from tests.simulation.checkers.response import ResponseShape
from tests.simulation.checkers.rights import Rights
from tests.simulation.checkers.sessions import Sessions
from tests.simulation.checkers.start_offset import StartOffset
from tests.simulation.checkers.state_epochs import StateEpochs
from tests.simulation.checkers.targets import HeartbeatTargets
from tests.simulation.checkers.transactions import Transactions
from tests.simulation.checkers.values import LogBegins, NoInvention, ProducedStays, StoredOnce
from tests.simulation.checkers.window import Bounds, Memory, Window
from tests.simulation.final import Final
from tests.simulation.history import History

ALL: tuple[Checker, ...] = (
    NothingSkipped(),
    ProducedStays(),
    LogBegins(),
    OnlyConsumed(),
    Drained(),
    NoInvention(),
    LabelsKept(),
    StoredOnce(),
    MutualExclusion(),
    Objects(),
    AcceptIsFinal(),
    StoredIsFinal(),
    Ownership(),
    DeliveryCounts(),
    Delays(),
    StartOffset(),
    FirstStart(),
    Window(),
    Memory(),
    Bounds(),
    DurableBeforeConfirmed(),
    ConfirmedTruthfully(),
    Fencing(),
    StateEpochs(),
    ConfirmedChanges(),
    DeletedGroups(),
    ChangesEnd(),
    LogEqualsState(),
    LogsOutlive(),
    ResponseShape(),
    Sessions(),
    TopicIds(),
    OwnSettings(),
    OwnDeliveries(),
    LettersArrive(),
    LettersTrue(),
    NoLettersUnasked(),
    Reasons(),
    GroupEpochs(),
    MemberEpochs(),
    Assignments(),
    HeartbeatTargets(),
    Expiry(),
    LostGo(),
    RemovedEnd(),
    Lag(),
    FetchesEnd(),
    ClientsRecover(),
    Transactions(),
    AgesEnd(),
    Moves(),
    Rights(),
)


def judged(history: History, final: Final) -> Iterator[Violation]:
    """Yield the violations that the checkers find in a run."""
    for checker in ALL:
        yield from checker.check(history, final)

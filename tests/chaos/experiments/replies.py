"""Replies from the store are lost one by one: the request was carried out, but the requesting node cannot know this."""

from __future__ import annotations

from typing import Final

from tests.chaos.deployment import GROUP_COORDINATOR, PARTITION_LEADER, SHARE_COORDINATOR, Unsupported
from tests.chaos.drivers.proxy import ProxyDeployment
from tests.chaos.experiments.definition import Definition
from tests.chaos.trial import Trial

#: Words that select a flush, and a call of a server-side function (a renewal or a claim).
WORDS: Final = (b"XADD", b"EVALSHA")


def lose_replies(trial: Trial) -> None:
    """Make owners in each service repeatedly lose the reply to a write, then to a renewal."""
    deployment = trial.deployment
    if not isinstance(deployment, ProxyDeployment):
        raise Unsupported(f"the driver {deployment.driver} cannot lose the reply to one request; the driver proxy can")
    for role in (PARTITION_LEADER, SHARE_COORDINATOR, GROUP_COORDINATOR, PARTITION_LEADER, SHARE_COORDINATOR):
        for word in WORDS:
            name = trial.an_owner(role)
            struck = deployment.lose_reply(name, word)
            if role != GROUP_COORDINATOR or word != b"XADD":  # it writes only when the group changes
                trial.until(struck.is_set, f"request with {word.decode()} of {name}")
            trial.record_of_worker("lost a reply of the store", name)
            trial.pass_time(0.2, 0.6)
    trial.heal()
    trial.pass_time(0.5, 1.0)


EXPERIMENTS: Final = (
    Definition(
        "replies-lost",
        "Replies of the store to writes and renewals are lost, the requests were carried out",
        ("schedule: after write but before the response",),
        lose_replies,
        by_default=False,
    ),
)

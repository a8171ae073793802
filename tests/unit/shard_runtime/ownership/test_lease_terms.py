"""The earlier histories of the store that a claim may rely on."""

from __future__ import annotations

import pytest

from shard_runtime.ownership.lease_terms import LeaseTerms


@pytest.mark.rule("CM-104")
@pytest.mark.parametrize(
    ("whole", "history", "before"),
    [
        (("now", "then", "earlier"), "now", ("then", "earlier")),
        (("now", "then"), "then", ()),
        (("now", "then"), "other", ()),
        (("now",), "now", ()),
        ((), "now", ()),
    ],
)
def test_earlier_histories_prove_something_only_under_the_one_in_force(
    whole: tuple[str, ...], history: str, before: tuple[str, ...]
) -> None:
    assert LeaseTerms(whole=whole).whole_before(history) == before

"""Planted bugs in connections that reach their maximum age, and in what moves off them."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_SESSION: Final = "partition_leader.sessions.core.session"
_STREAM: Final = "partition_leader.service"
_SHARE_SESSION: Final = "sharegroups.consuming.share_session"
_LINK: Final = "sharegroups.connection.leader_stream"

MOVES: Final = (
    Mutant(
        "former-stream-ends-the-session",
        "the end of a stream that a session has left ends the session",
        ("INV-22", "complaint"),
        (
            Edit(
                _SESSION,
                "        self._unbind(key, session)\n        session.connection_id = connection_id\n",
                "        session.connection_id = connection_id\n",
            ),
        ),
    ),
    Mutant(
        "epoch-restarts-with-the-move",
        "a session that moves expects epoch 1 again",
        ("INV-14", "INV-22"),
        (
            Edit(
                _SESSION,
                "            self._bind(key, session, request.connection_id)\n        return session\n",
                "            self._bind(key, session, request.connection_id)\n            session.epoch = 1\n"
                "        return session\n",
            ),
        ),
    ),
    Mutant(
        "asked-to-move-twice",
        "a leader asks a stream's client to move a second time",
        ("INV-22",),
        (
            Edit(
                _STREAM,
                "                self._move_unwritten = False\n",
                "                self._move_unwritten = False\n"
                "                await self._stream.write(share_stream_pb2.ShareStreamResponse(move=True))\n",
            ),
        ),
    ),
    Mutant(
        "fetches-wait-through-the-move",
        "a fetch that waits when its client is asked to move is not answered, so the session ends with the connection",
        ("INV-22",),
        (
            Edit(
                _STREAM,
                "        self._moves = self._move_unwritten = True\n"
                "        for handle in list(self._running.values()):\n",
                "        self._moves = self._move_unwritten = True\n        for handle in ():\n",
            ),
        ),
    ),
    Mutant(
        "age-not-given-to-grpc",
        "an old connection never ends",
        ("INV-22",),
        (Edit("shard_runtime.rpc.server", "grpc_age_ms(self.connection_age_ms)", "grpc_age_ms(86_400_000)"),),
    ),
    Mutant(
        "former-stream-kept-open",
        "a consumer that has moved does not close the former stream",
        ("INV-22",),
        (
            Edit(
                _LINK,
                "            if self._bound is not None:\n                self._close_later(self._bound)\n",
                "            if self._bound is not None and self._bound.is_lost:\n"
                "                self._close_later(self._bound)\n",
            ),
        ),
    ),
    Mutant(
        "refused-move-loses-the-session",
        "a consumer whose new stream is refused takes its session for lost, though the former stream is open",
        ("INV-22",),
        (Edit(_SHARE_SESSION, "if self.link.keeps_session and ", "if not self.link.keeps_session and "),),
    ),
    Mutant(
        "refused-epochs-used-up",
        "requests on a stream that was refused are sent again over the former one with later epochs",
        ("INV-22", "INV-14"),
        (
            Edit(
                _SHARE_SESSION,
                "if self.link.keeps_session and self._session.refused(step):",
                "if self.link.keeps_session and self._session.is_established:",
            ),
        ),
    ),
    Mutant(
        "moves-without-waiting",
        "a consumer opens the new stream while requests are in flight on the former one, and overtakes them",
        ("INV-22", "INV-14"),
        (Edit(_LINK, "        await stream.quiet()\n", ""),),
    ),
    Mutant(
        "the-ask-unheard",
        "a consumer that is asked to move stays until the connection is closed",
        ("INV-22",),
        (
            Edit(
                "sharegroups.connection.streams",
                "                elif answer.move and not self.must_move and",
                "                elif answer.move and self.must_move and",
            ),
        ),
    ),
)

"""The watch over unfinished messages needs file descriptors to query the kernel. With none left it neither stops nor
forgets what it has counted (CM-93)."""

from __future__ import annotations

import asyncio

import pytest

from shard_runtime.rpc import unfinished
from shard_runtime.rpc.budget import Budget, Holder
from shard_runtime.rpc.unfinished import CUT_MIN_BYTES, EVERY_S, STALLED_S, Unfinished

from .descriptors import no_descriptor_left

pytestmark = pytest.mark.asyncio


@pytest.mark.rule("CM-93")
async def test_no_descriptor_left_neither_ends_the_watch_nor_makes_what_came_unfinished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 4 * CUT_MIN_BYTES
    cut: list[str] = []
    watch = Unfinished(Budget(CUT_MIN_BYTES), lambda peer, _: cut.append(peer))
    came, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(size)
        host, port = writer.get_extra_info("peername")
        watch.came(f"ipv4:{host}:{port}", size)  # all of it was one message that reached its handler
        came.set()
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes(size))
    await asyncio.wait_for(came.wait(), 30)
    watch.add(port)
    await watch.check()
    assert watch.unfinished_bytes == 0

    listed = unfinished._descriptors()  # the last descriptors are taken afterwards, by new connections
    with no_descriptor_left():
        watch.start()
        await asyncio.sleep(EVERY_S * 2)
        with monkeypatch.context() as patch:
            patch.setattr(unfinished, "_descriptors", lambda: listed)
            with pytest.raises(OSError, match="Too many open files"):
                await watch.check()
    assert watch.running
    await watch.check()
    assert (watch.unfinished_bytes, cut) == (0, [])
    await watch.stop(port)
    writer.close()
    await writer.wait_closed()
    await asyncio.wait_for(left.wait(), 30)
    server.close()
    await server.wait_closed()


@pytest.mark.rule("CM-93")
@pytest.mark.parametrize("gives_back", [False, True], ids=["stalled", "one call after the other"])
async def test_who_has_more_than_an_equal_part_is_cut_only_when_it_gives_nothing_back(gives_back: bool) -> None:
    """No memory is left, and a new connection waits. The stalled connection reads no responses. The other one sends one
    large call after another: at each check it holds as much memory, yet it has given all of it back in between."""
    part = 200_000
    budget = Budget(4 * part + part // 4)
    cut: list[str] = []
    watch = Unfinished(budget, lambda peer, _: cut.append(peer))
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")
        budget.add(Holder(f"ipv4:{host}:{port}"), 2 * part)
        while await reader.read(1):
            budget.give(Holder(f"ipv4:{host}:{port}"), 2 * part)
            budget.add(Holder(f"ipv4:{host}:{port}"), 2 * part)
        budget.give(Holder(f"ipv4:{host}:{port}"), 2 * part)
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    budget.add(Holder("another"), 2 * part)
    watch.add(port)
    watch.start()
    waiting = asyncio.ensure_future(budget.wait(Holder("newcomer"), 3 * part, 3600))
    for _ in range(int(2 * STALLED_S / 0.02) if gives_back else 3000):
        if cut:
            break
        if gives_back:
            writer.write(b".")
        await asyncio.sleep(0.02)
    assert len(cut) == (0 if gives_back else 1)
    await watch.stop(port)
    writer.close()
    await asyncio.wait_for(left.wait(), 30)
    budget.give(Holder("another"), 2 * part)
    assert await asyncio.wait_for(waiting, 30)
    server.close()
    await server.wait_closed()


class Connection:
    """A connection that is not gRPC's. `unread`: for how long its client has read nothing, s."""

    def __init__(self, unread: float, held_bytes: int) -> None:
        self.unread = unread
        self.held_bytes = held_bytes
        self.is_cut = False

    def unread_s(self, now_s: float) -> float:
        return self.unread

    def cut(self) -> None:
        self.is_cut = True


@pytest.mark.rule("CM-93", "KL-107")
@pytest.mark.parametrize(("over", "cut"), [(0, []), (1, ["c"]), (4, ["c"]), (5, ["c", "b"]), (50, ["c", "b"])])
async def test_above_the_budget_those_are_cut_that_have_read_nothing_for_longest(over: int, cut: list[str]) -> None:
    mib = CUT_MIN_BYTES
    held = {"a": (0.5, 4), "b": (2.0, 4), "c": (5.0, 4), "d": (9.0, 0.5), "e": (0.0, 9)}
    parties = {name: Connection(unread, int(size * mib)) for name, (unread, size) in held.items()}
    budget, was_cut = Budget(100 * mib), list[str]()
    watch = Unfinished(budget, lambda peer, _: was_cut.append(peer))
    for name, party in parties.items():
        watch.join(name, party)
    budget.add(Holder("others"), (100 + over) * mib)
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    watch.add(server.sockets[0].getsockname()[1])
    await watch.check()
    assert was_cut == cut
    assert [name for name, party in parties.items() if party.is_cut] == sorted(cut)
    server.close()


@pytest.mark.rule("CM-93", "KL-107")
async def test_a_connection_above_its_share_that_gives_nothing_back_is_cut_also_when_it_is_not_of_grpc() -> None:
    budget, was_cut = Budget(64 * CUT_MIN_BYTES), list[str]()
    watch = Unfinished(budget, lambda peer, _: was_cut.append(peer))
    party = Connection(0.0, 40 * CUT_MIN_BYTES)
    watch.join("kafka:1", party)
    budget.add(Holder("kafka:1"), party.held_bytes)
    now_s = asyncio.get_running_loop().time()
    assert not watch._stalled(now_s)
    budget.throttle(Holder("other"))
    assert watch._stalled(now_s + STALLED_S)
    await watch.check()
    assert (was_cut, party.is_cut) == (["kafka:1"], True)


@pytest.mark.rule("CM-246")
@pytest.mark.parametrize(("sizes", "cut"), [((1, 2), []), ((3, 2), ["inside"]), ((2, 3), ["external:outside"])])
async def test_messages_half_sent_to_two_ports_count_together_and_who_holds_most_is_cut(
    sizes: tuple[int, int], cut: list[str]
) -> None:
    """Each port alone stays within the budget of 4 MiB."""
    was_cut = list[str]()
    watch = Unfinished(Budget(4 * CUT_MIN_BYTES), lambda peer, _: was_cut.append(peer))
    came, numbers, servers, writers = asyncio.Event(), dict[int, int](), [], dict[str, asyncio.StreamWriter]()
    received, left = 0, asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        while data := await reader.read(1 << 16):
            received += len(data)
            if received == sum(sizes) * CUT_MIN_BYTES + sum(sizes) * CUT_MIN_BYTES // 8:
                came.set()
        writer.close()
        await writer.wait_closed()
        left.release()

    for begins, size in (("", sizes[0]), ("external:", sizes[1])):
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        port = server.sockets[0].getsockname()[1]
        watch.add(port, begins, lambda number, port=port: numbers.update({port: number}))  # type: ignore[misc]  # lambda
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        host, number = writer.get_extra_info("sockname")
        writers[f"{begins}ipv4:{host}:{number}"] = writer
        writer.write(bytes(size * CUT_MIN_BYTES * 9 // 8))  # an eighth more than what HTTP/2's own bytes may be
    await asyncio.wait_for(came.wait(), 30)
    await watch.check()
    names = dict(zip(writers, ("inside", "external:outside"), strict=True))
    assert [names[peer] for peer in was_cut] == cut
    assert list(numbers.values()) == [1, 1]
    for each in writers.values():
        each.close()
        await each.wait_closed()
        await asyncio.wait_for(left.acquire(), 30)
    for each_server in servers:
        each_server.close()
        await each_server.wait_closed()


@pytest.mark.rule("CM-246")
async def test_the_watch_over_two_ports_ends_with_the_last_one() -> None:
    watch = Unfinished(Budget(CUT_MIN_BYTES), lambda peer, size: None)
    for port in (1, 2):
        watch.add(port)
        watch.start()
    await watch.stop(1)
    assert watch.running
    await watch.stop(2)
    assert not watch.running

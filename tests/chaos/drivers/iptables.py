"""Rules that cut one network namespace off from addresses: packets vanish, in one direction or both, or are refused.

The rules are in a separate chain, so `heal` removes these and no others. The caller gives the words that enter the
namespace: `ip netns exec NAME` for a named namespace, `nsenter -t PID -n` for a container's.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from tests.chaos.drivers.delayer import QUEUE, Delayer

#: Where Debian keeps these programs, whatever the caller's PATH.
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_CHAIN: Final = "SHAREGROUPS-CHAOS"
_WAIT_S: Final = 20


def inside_named(namespace: str) -> list[str]:
    """Return words that run a command in a namespace of `ip netns`; it keeps the process id."""
    return [_program("ip"), "netns", "exec", namespace]


def inside_process(pid: int) -> list[str]:
    """Return words that run a command of this machine in the network of a process, such as a container's."""
    return [_program("nsenter"), "-t", str(pid), "-n"]


def missing() -> str:
    """Return the program that is missing on this machine; "" if none is."""
    absent = [program for program in ("ip", "iptables", "nsenter") if shutil.which(program, path=_PATH) is None]
    return f"{' and '.join(absent)} not found (Debian: iproute2, iptables, util-linux)" if absent else ""


class Firewall:
    """The rules in one namespace. All methods raise AssertionError with iptables' message if it refuses."""

    def __init__(self, enter: Sequence[str]) -> None:
        self._enter = list(enter)
        self._made = False
        self._delayer: Delayer | None = None

    def drop(self, address: str, *, incoming: bool, outgoing: bool) -> None:
        """Drop packets from the address, or to it; open connections keep waiting."""
        self._make_chain()
        if incoming:
            self._iptables("-A", _CHAIN, "-s", address, "-j", "DROP")
        if outgoing:
            self._iptables("-A", _CHAIN, "-d", address, "-j", "DROP")

    def refuse(self, address: str) -> None:
        """Refuse connects to and from the address at once, and reset open connections at their next packet."""
        self._make_chain()
        for direction in ("-s", "-d"):
            # The resets themselves must pass: those sent by these rules go through this chain too.
            unreset = ("-p", "tcp", "!", "--tcp-flags", "RST", "RST")
            self._iptables("-A", _CHAIN, direction, address, *unreset, "-j", "REJECT", "--reject-with", "tcp-reset")

    def lose(self, address: str, percent: int) -> None:
        """Drop `percent` % of the packets between this namespace's address and others, at random."""
        self._make_chain()
        chance = ("-m", "statistic", "--mode", "random", "--probability", str(percent / 100))
        for one, other in (("-s", "-d"), ("-d", "-s")):
            self._iptables("-A", _CHAIN, one, address, "!", other, address, *chance, "-j", "DROP")

    def delay(self, address: str, delay_ms: int) -> None:
        """Delay what arrives at this namespace's address by this much; 0 removes the delay."""
        self._make_chain()
        rule = ("-d", address, "!", "-s", address, "-j", "NFQUEUE", "--queue-num", str(QUEUE), "--queue-bypass")
        if self._delayer is not None:
            self._iptables("-D", _CHAIN, *rule)
            self.close()
        if delay_ms:
            self._delayer = Delayer(self._enter, delay_ms)
            self._iptables("-A", _CHAIN, *rule)

    def close(self) -> None:
        """End the delaying process before the namespace is removed."""
        if self._delayer is not None:
            self._delayer.close()
            self._delayer = None

    def heal(self) -> None:
        """Remove all rules."""
        if self._made:
            self._iptables("-F", _CHAIN)
        self.close()

    def _make_chain(self) -> None:
        if self._made:
            return
        self._iptables("-N", _CHAIN)
        for chain in ("INPUT", "OUTPUT"):
            self._iptables("-I", chain, "-j", _CHAIN)
        self._made = True

    def _iptables(self, *words: str) -> None:
        command([*self._enter, "iptables", "-w", str(_WAIT_S), *words])


def command(words: Sequence[str]) -> None:
    """Run one short command. Raises AssertionError with its output if it fails."""
    done = answer(words)
    said = " ".join(done.stderr.split())  # one line: it may become the reason of a skip
    assert done.returncode == 0, f"{' '.join(words)}: status {done.returncode}: {said}"


def answer(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run one short command, whatever its exit status. Raises AssertionError if it cannot be run at all."""
    environment = {"PATH": _PATH, "LC_ALL": "C"}
    try:
        return subprocess.run(
            [_program(words[0]), *words[1:]],
            capture_output=True, text=True, timeout=2 * _WAIT_S, check=False, env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AssertionError(f"{' '.join(words)}: {error}") from error


def _program(name: str) -> str:
    return shutil.which(name, path=_PATH) or name

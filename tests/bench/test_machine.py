"""What the kernel tells of processes (machine.py)."""

import os
import socket
import subprocess
import sys

from tests.bench.machine import children, connections_of, family, open_descriptors, resident_bytes, spent


def test_cpu_time_grows_while_a_process_works() -> None:
    before = spent([os.getpid()])
    sum(range(1_000_000))
    assert spent([os.getpid()]).since(before).cpu > 0


def test_a_process_has_memory_and_descriptors() -> None:
    assert resident_bytes([os.getpid()]) > 1_000_000
    before = open_descriptors(os.getpid())
    with socket.socket():
        assert open_descriptors(os.getpid()) == before + 1


def test_a_family_is_the_process_and_its_descendants() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        assert child.pid in family(os.getpid())
        assert family(child.pid) == (child.pid,)
        child.communicate(b"\n")


def test_accepted_connections_are_counted_by_process_and_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        assert connections_of(os.getpid(), port) == 0
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = listening.accept()
            with accepted:
                assert connections_of(os.getpid(), port) == 1

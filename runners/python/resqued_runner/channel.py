"""The socket of a runner: lines of JSON, each read and written with one system call where it can be."""

import fcntl
import json
import os
import re
import socket
import threading

CHUNK = 64 * 1024
# Code that starts programs or becomes a daemon closes low descriptors.
HIGH = 100
# The longest line that resqued reads.
LONGEST = 8 * 1024 * 1024

_NUMBER = re.compile(rb'\s*\{\s*"job"\s*:\s*\{\s*"number"\s*:\s*(\d{1,18})[,}\s]')


class BadLine(Exception):
    """A line from resqued that cannot be read. `number` is the job that it is about, or None."""

    def __init__(self, line, error):
        super().__init__(str(error)[:300])
        found = _NUMBER.match(line)
        self.number = int(found.group(1)) if found else None
        self.error = error


class Channel:
    def __init__(self, descriptor):
        self._pid = os.getpid()
        try:
            high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH)
            os.close(descriptor)
        except OSError:  # the limit of descriptors is lower
            high = descriptor
            os.set_inheritable(high, False)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=high)
        self._socket.setblocking(True)
        self._rest = bytearray()
        self._searched = 0
        # A signal handler may write while its thread writes.
        self._writing = threading.RLock()
        self.writer = None    # the thread that writes for a job
        self.deferred = None  # the interrupt that waits until the line is written

    def fileno(self):
        return self._socket.fileno()

    def own(self):
        """Reports whether this is the runner, and no process that a job has forked."""
        return os.getpid() == self._pid

    def receive(self, flags=0):
        """Returns the object of the next line. Raises EOFError at the end, BadLine, and
        BlockingIOError where flags say not to wait. One thread at a time may call it."""
        rest = self._rest
        if not rest:
            chunk = self._recv(flags)
            if chunk.find(b"\n") == len(chunk) - 1:
                return parse(chunk)
            rest += chunk
        while True:
            found = rest.find(b"\n", self._searched)
            if found >= 0:
                line = bytes(rest[:found + 1])
                del rest[:found + 1]
                self._searched = 0
                return parse(line)
            self._searched = len(rest)
            rest += self._recv(flags)

    def _recv(self, flags):
        try:
            chunk = self._socket.recv(CHUNK, flags)
        except BlockingIOError:
            raise
        except OSError as error:
            raise EOFError from error
        if not chunk:
            raise EOFError
        return chunk

    def send(self, line, ends=None):
        """Writes a line (bytes with their line feed), unless this is a process that a job has
        forked. From the line that ends a job on nothing else is written for it."""
        if os.getpid() != self._pid:
            return
        with self._writing:
            if ends is not None:
                ends.ended = True
            self._write(line)

    def tell(self, line, job=None):
        """Writes an object, of a job that has not ended. Raises where it is not JSON or too long,
        and writes nothing then."""
        encoded = json.dumps(line, allow_nan=False, separators=(",", ":")).encode("ascii")
        if len(encoded) >= LONGEST:
            raise ValueError("a line of %d bytes is longer than resqued reads (%d)" % (len(encoded), LONGEST))
        if os.getpid() != self._pid:
            return
        with self._writing:
            if job is not None and job.ended:
                return
            # An exception raised by a signal handler must not leave half a line.
            self.writer = threading.get_ident()
            try:
                self._write(encoded + b"\n")
            finally:
                self.writer = None
        interrupt, self.deferred = self.deferred, None
        if interrupt is not None:
            interrupt()

    def _write(self, line):
        try:
            self._socket.sendall(line)
        except OSError:
            # resqued is gone; the reading thread notices.
            pass


def parse(line):
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadLine(line, error) from error
    if not isinstance(parsed, dict):
        raise BadLine(line, TypeError("a line has to be an object"))
    return parsed

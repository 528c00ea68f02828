"""The template: boots the application once, and forks runners."""

import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import traceback

import resqued

from .channel import Channel
from .perform import complain
from .worker import hello


# A request to fork brings the socket of the runner, its standard output and error, and a pipe
# for its exit status.
DESCRIPTORS = 4
# The exit code of a template without free descriptors (EX_OSERR of sysexits.h).
FULL = 71


class Template:
    def __init__(self, status, requests, concurrency, app):
        self.status = status              # descriptor 3
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=requests)
        self.socket.setblocking(True)
        self.concurrency = concurrency
        self.app = app
        self.children = {}                # the pipe for the exit status of each, by process id
        self.reaping = 0                  # nesting depth of reap, which a signal may interrupt
        self.warned = False

    def run(self):
        """Forks runners until the end of the requests. Returns only in a child: its descriptor
        and its concurrency."""
        signal.signal(signal.SIGCHLD, self.reap)
        gc.collect()
        # Existing objects are never examined again, so their pages stay shared.
        gc.freeze()
        self.tell(hello(self.concurrency, self.app, template=True))
        while True:
            try:
                packet, descriptors, flags, _ = socket.recv_fds(self.socket, 64 * 1024, 8)
            except OSError as error:
                complain("the socket of requests: %s" % error)
                os._exit(1)
            # The kernel dropped descriptors that did not fit.
            if flags & socket.MSG_CTRUNC and len(descriptors) < DESCRIPTORS:
                full("%d of %d descriptors of a request to fork could be received" % (len(descriptors), DESCRIPTORS))
            if not packet and not descriptors:
                sys.stdout.flush()
                os._exit(0)
            request = self.understood(packet, descriptors)
            child = None
            if request is not None:
                child = self.fork(request, descriptors)
            if child is not None:
                return child
            for descriptor in descriptors:
                os.close(descriptor)

    def understood(self, packet, descriptors):
        try:
            request = json.loads(packet)
            fork = request.get("fork") if isinstance(request, dict) else None
        except (ValueError, RecursionError):
            fork = None
        if not isinstance(fork, dict) or len(descriptors) != DESCRIPTORS:
            self.tell({"error": "a request to fork that cannot be read (%d descriptors): %s" % (
                len(descriptors), packet[:200].decode("utf-8", "replace"))})
            return None
        return fork

    def fork(self, request, descriptors):
        try:
            self.hook("before_fork")
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.EMFILE:
                full("a hook before the fork: %s" % error)
            # The requesting process sees the end of its socket, and asks again.
            self.tell({"error": "a hook before the fork: %r" % (error,)})
            return None
        self.warn_of_threads()
        sys.stdout.flush()
        sys.stderr.flush()
        # A child that ends before it is recorded would not be reaped.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        try:
            child = os.fork()
        except OSError as error:
            complain("cannot fork: %s" % error)
            self.tell({"error": "cannot fork: %s" % error})
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            return None
        if child == 0:
            try:
                return self.become_runner(request, descriptors)
            except BaseException:
                traceback.print_exc()
                complain("the forked runner could not begin")
                os._exit(1)
        self.children[child] = descriptors.pop()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        return None

    def become_runner(self, request, descriptors):
        reset_signals()
        os.setsid()
        connection, out, err, status = descriptors
        os.dup2(out, 1)
        os.dup2(err, 2)
        for descriptor in (out, err, status, *self.children.values()):
            if descriptor > 2:
                os.close(descriptor)
        self.socket.close()
        os.close(self.status)
        for name, value in (request.get("env") or {}).items():
            os.environ[str(name)] = str(value)
        concurrency = request.get("concurrency")
        if not isinstance(concurrency, int) or concurrency < 1:
            concurrency = self.concurrency
        channel = Channel(connection)
        self.hook("after_fork")
        return channel, concurrency

    def hook(self, kind):
        # A hook that fails ends the runner: jobs would run without their connections.
        for function in resqued._hooks[kind]:
            function()

    def warn_of_threads(self):
        if self.warned:
            return
        others = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
        try:
            native = len(os.listdir("/proc/self/task")) - 1
        except OSError:
            native = len(others)
        if others or native:
            self.warned = True
            self.tell({"log": {"level": "warn", "message": (
                "the application has started %d threads%s, which forked runners do not have; start "
                "them in @resqued.after_fork" % (
                    max(native, len(others)), " (" + ", ".join(others) + ")" if others else ""))}})

    def reap(self, *_):
        self.reaping += 1
        for child in list(self.children):
            try:
                ended, status = os.waitpid(child, os.WNOHANG)
            except ChildProcessError:
                if self.reaping > 1:
                    continue  # the outer call may have the status, and not have written it yet
                ended, status = child, None  # the application has waited for it
            pipe = self.children.pop(child, None) if ended else None
            if pipe is not None:
                try:
                    if status is not None:
                        os.write(pipe, b"%d\n" % status)
                except OSError:
                    pass  # its worker process is gone
                os.close(pipe)
        self.reaping -= 1

    def tell(self, line):
        # A worker process that is gone, or does not read, must not hold up the forks.
        encoded = json.dumps(line).encode("ascii") + b"\n"
        if select.select([], [self.status], [], 1)[1]:
            try:
                os.write(self.status, encoded)
            except OSError:
                pass


def full(why):
    """Ends a process that has no room for descriptors: it would fail at each request, and its
    master starts another one."""
    complain("%s: the limit of open files is %d (LimitNOFILE= of the service, ulimit -n); this "
             "template ends, and another one is started in its place" % (why, resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    os._exit(FULL)


def reset_signals():
    """Restores the default effects, as a process has them that was just started."""
    for number in signal.valid_signals():
        if number in (signal.SIGKILL, signal.SIGSTOP):
            continue
        default = signal.SIG_DFL
        if number == signal.SIGINT:
            default = signal.default_int_handler
        elif number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", None)):
            default = signal.SIG_IGN  # Python's own default
        try:
            signal.signal(number, default)
        except (OSError, ValueError):
            pass
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])

"""The jobs of a runner.

Whoever waits for a job reads the socket, so that a runner of one job at a time reads, performs and
answers in one thread, and needs no other for short jobs. While it performs, a watcher reads, once
the job has taken a while (TICK): it sees a cancel, and the end of the socket. A runner of several
jobs has as many threads and one more, which take turns in reading; coroutines run in one loop, in
the main thread.
"""

import asyncio
import atexit
import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time

import resqued

from . import PROTOCOL
from .channel import BadLine
from .perform import call, call_coroutine, complain, end_process, ended, handler_of

TICK = 0.05
# The signal that interrupts the main thread, even in a system call. Programs have no other use
# for it.
INTERRUPT = getattr(signal, "SIGRTMIN", signal.SIGUSR2)
if hasattr(signal, "SIGRTMIN"):
    INTERRUPT = signal.SIGRTMIN + 7


def hello(concurrency, app, template=False):
    version = "%d.%d.%d" % sys.version_info[:3]
    said = {
        "protocol": PROTOCOL, "concurrency": concurrency, "language": "python " + version,
        "app": app, "classes": sorted(resqued._jobs), "leaving": True,
    }
    if template:
        said["template"] = True
    return {"hello": said}


class Worker:
    def __init__(self, channel, concurrency, app):
        self.channel = channel
        self.concurrency = concurrency
        self.app = app
        self.pid = os.getpid()
        self.jobs = {}
        self.leaving = False
        self.lock = threading.Lock()      # jobs, leaving, waiting
        self.reading = threading.Lock()   # held by the thread that reads
        self.changed = threading.Condition(self.lock)

    def run(self):
        resqued.LogHandler.outlet = self.channel
        self.channel.tell(hello(self.concurrency, self.app))
        if self.concurrency == 1:
            self.run_one()
        else:
            self.run_many()
        self.leave()

    def leave(self):
        """Ends the process in peace: its jobs have ended."""
        resqued.LogHandler.outlet = None
        try:
            atexit._run_exitfuncs()
        except BaseException as error:
            complain("at exit: %r" % (error,))
        end_process(0)

    # One job at a time.

    def run_one(self):
        self.current = None     # the job being performed
        self.sequence = 0       # number of jobs performed
        self.parked = False
        self.wake = threading.Semaphore(0)
        self.loop = None
        self.main = threading.get_ident()
        self.kept = []          # jobs that arrived while another was performed
        signal.signal(INTERRUPT, self.interrupted)
        threading.Thread(target=self.watch, name="resqued watcher", daemon=True).start()
        channel, reading = self.channel, self.reading
        reading.acquire()
        while not self.leaving:
            if self.kept:
                job = self.kept.pop(0)
            else:
                job = self.receive()
                if job is None:
                    continue
            self.sequence += 1
            self.current = job
            reading.release()
            if self.parked:
                self.parked = False
                self.wake.release()
            line = self.perform_one(job)
            self.current = None
            if os.getpid() != self.pid:
                # A process forked by the job returned here.
                end_process(0)
            reading.acquire()
            if job.cancelled is not None:
                self.leaving = True
            channel.send(line, job)
        for job in self.kept:
            channel.send(ended(job, resqued.Requeue(0)))

    def perform_one(self, job):
        handler = resqued._jobs.get(job.class_name)
        if handler is None or handler.kind != "coroutine":
            return call(job, self.wait_one)
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        try:
            job.task = self.loop.create_task(call_coroutine(job, handler))
            if job.cancelled is not None:
                job.task.cancel()
            return self.loop.run_until_complete(job.task)
        except BaseException as error:
            # The loop was stopped, or the task was cancelled before it began.
            return ended(job, error, handler.function)

    def receive(self):
        """Waits for a line, and returns the job if it is one."""
        try:
            return self.obey(self.channel.receive())
        except BadLine as bad:
            self.bad(bad)
        except EOFError:
            end_process(0)

    def watch(self):
        seen = -1
        while True:
            if self.current is None:
                if seen == self.sequence:
                    # No job for a tick or more: sleep until there is one.
                    self.parked = True
                    if self.current is None:
                        self.wake.acquire()
                    self.parked = False
                seen = self.sequence
                time.sleep(TICK)
                continue
            if seen != self.sequence:
                seen = self.sequence
                time.sleep(TICK)
                continue
            # The same job as a tick ago. Lines that came with it are in the buffer.
            self.read_meanwhile(seen)
            try:
                poll = select.poll()
                poll.register(self.channel.fileno(), select.POLLIN)
                ready = poll.poll(20 * TICK * 1000)
            except (OSError, ValueError):
                ready = [(-1, select.POLLNVAL)]
            if ready:
                self.read_meanwhile(seen)

    def read_meanwhile(self, seen):
        if not self.reading.acquire(blocking=False):
            return
        try:
            while self.current is not None and self.sequence == seen:
                try:
                    job = self.obey(self.channel.receive(socket.MSG_DONTWAIT))
                except BadLine as bad:
                    self.bad(bad)
                    continue
                if job is not None:
                    self.kept.append(job)
        except BlockingIOError:
            pass
        except EOFError:
            # The worker process is gone, and the job will run elsewhere.
            os._exit(1)
        finally:
            self.reading.release()

    def wait_one(self, run, done):
        """Reads, in the thread of the job, until done."""
        while not done():
            poll = select.poll()
            poll.register(self.channel.fileno(), select.POLLIN)
            poll.poll(TICK * 1000)
            with self.reading:
                if done():
                    return
                try:
                    job = self.obey(self.channel.receive(socket.MSG_DONTWAIT))
                    if job is not None:
                        self.kept.append(job)
                except BadLine as bad:
                    self.bad(bad)
                except BlockingIOError:
                    pass
                except EOFError:
                    os._exit(1)

    def interrupted(self, *_):
        job = self.current
        if self.channel.writer == self.main:
            self.channel.deferred = self.interrupted
            return
        if job is not None and job.cancelled is not None and job.raising and not job.raised:
            job.raised = True
            raise resqued.Cancelled(job.cancelled)

    # Several jobs at a time.

    def run_many(self):
        self.waiting = self.threads = 0
        self.loop = None
        kinds = {handler.kind for handler in resqued._jobs.values()}
        if "coroutine" in kinds:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        with self.lock:
            self.start_thread()
        if self.loop is not None:
            # A job that stops the loop must not stop the others.
            while True:
                self.loop.run_forever()
                with self.lock:
                    if self.leaving and not self.jobs:
                        return
        with self.lock:
            while not (self.leaving and not self.jobs):
                self.changed.wait()

    def start_thread(self):
        self.threads += 1
        threading.Thread(target=self.take_turns, name="resqued %d" % self.threads, daemon=True).start()

    def take_turns(self):
        while True:
            with self.lock:
                self.waiting += 1
            with self.reading:
                job = self.next_job()
                with self.lock:
                    self.waiting -= 1
                    if not self.waiting and self.threads <= self.concurrency:
                        self.start_thread()
            self.perform_many(job)

    def next_job(self):
        while True:
            job = self.receive_many()
            if job is None:
                continue
            handler = resqued._jobs.get(job.class_name)
            if handler is None or handler.kind != "coroutine":
                job.thread = True
                return job
            job.loop = self.loop
            if job.loop is None:
                self.answer(job, ended(job, RuntimeError(
                    "%s was registered after the start: coroutines have to be there by then" % job.class_name)))
                continue
            job.loop.call_soon_threadsafe(self.start_task, job, handler)

    def receive_many(self):
        try:
            return self.obey(self.channel.receive())
        except BadLine as bad:
            self.bad(bad)
        except EOFError:
            with self.lock:
                lost = bool(self.jobs)
            if lost:
                os._exit(1)
            end_process(0)

    def perform_many(self, job):
        line = None
        while True:
            try:
                if line is None:
                    job.thread = threading.get_ident()
                    if job.cancelled is not None:
                        raise resqued.Cancelled(job.cancelled)
                    line = call(job, self.wait_many)
                with self.lock:
                    # From here on no thread raises an exception in this one.
                    job.thread = None
                if job.raised:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
                break
            except resqued.Cancelled as error:
                if line is None:
                    line = ended(job, error)
        if os.getpid() != self.pid:
            end_process(0)
        self.answer(job, line)

    def start_task(self, job, handler):
        job.task = self.loop.create_task(call_coroutine(job, handler))
        if job.cancelled is not None:
            job.task.cancel()
        job.task.add_done_callback(lambda task: self.task_done(job, handler, task))

    def task_done(self, job, handler, task):
        try:
            line = task.result()
        except BaseException as error:  # cancelled before it began
            line = ended(job, error, handler.function)
        if os.getpid() != self.pid:
            end_process(0)
        self.answer(job, line)

    def answer(self, job, line):
        self.channel.send(line, job)
        # After the line: once no job is left, the process may end.
        with self.lock:
            self.jobs.pop(job.number, None)
            if job.cancelled is not None:
                self.leaving = True
        if self.leaving:
            self.maybe_over()

    def maybe_over(self):
        with self.lock:
            if self.leaving and not self.jobs:
                self.changed.notify_all()
                if self.loop is not None:
                    self.loop.call_soon_threadsafe(self.loop.stop)

    def wait_many(self, run, done):
        with self.lock:
            while not done():
                self.changed.wait(1)

    # Lines from resqued.

    def obey(self, line):
        """Does what a line says. Returns the job, if it is one."""
        described = line.get("job")
        if described is not None:
            return self.new_job(described)
        if "cancel" in line:
            self.cancel(line["cancel"], line.get("why"))
        elif "leave" in line:
            self.leaving = True
            if self.concurrency > 1:
                self.maybe_over()
        elif "leaving" in line:
            job = self.find(line["leaving"])
            if job is not None:
                job.leaving = True
        elif "slice_over" in line:
            job = self.find(line["slice_over"])
            if job is not None and job.run is not None:
                job.run._over = True
            elif job is not None:
                job.described["slice_over"] = True
        elif "reply" in line:
            self.reply(line["reply"])
        elif "pause" in line:
            self.hook("on_pause")
        elif "resume" in line:
            self.hook("on_resume")
        else:
            kinds = ", ".join(sorted(str(key) for key in line))[:200]
            self.channel.tell({"error": "a kind of line that this runner does not know: %s" % (kinds or "none")})
        return None

    def new_job(self, described):
        number = described.get("number") if isinstance(described, dict) else None
        if not isinstance(number, int) or isinstance(number, bool):
            self.channel.tell({"error": "a job without a number"})
            return None
        job = resqued.Job(described, self.channel)
        if self.concurrency > 1:
            with self.lock:
                self.jobs[number] = job
        if self.leaving:
            # The job crossed the end of a cancelled one; nothing of it has run.
            line = ended(job, resqued.Requeue(0))
            if self.concurrency > 1:
                self.answer(job, line)
            else:
                self.channel.send(line)
            return None
        return job

    def find(self, number):
        if self.concurrency == 1:
            job = self.current
            return job if job is not None and job.number == number else None
        with self.lock:
            job = self.jobs.get(number)
            return None if job is None or job.ended else job

    def reply(self, reply):
        job = self.find(reply.get("job")) if isinstance(reply, dict) else None
        if job is None or job.run is None or not isinstance(reply.get("line"), dict):
            return
        saved = reply["line"].get("saved")
        if isinstance(saved, int):
            job.run._saved = max(job.run._saved, saved)
            with self.lock:
                self.changed.notify_all()

    def cancel(self, number, why):
        if self.concurrency == 1:
            job = self.current
            if job is None or job.number != number:
                return
            job.cancelled = str(why or "killed")
            if job.task is not None:
                self.loop.call_soon_threadsafe(job.task.cancel)
            elif signal.getsignal(INTERRUPT) == self.interrupted:
                signal.pthread_kill(self.main, INTERRUPT)
            else:  # the job has replaced our signal handler
                job.raised = True
                raise_in(self.main, resqued.Cancelled)
            return
        with self.lock:
            job = self.jobs.get(number)
            if job is None or job.ended:
                return
            job.cancelled = str(why or "killed")
            self.leaving = True
            if job.loop is not None:
                if job.task is not None:
                    job.loop.call_soon_threadsafe(job.task.cancel)
            elif job.thread and job.thread is not True and not job.raised:
                job.raised = True
                raise_in(job.thread, resqued.Cancelled)

    def hook(self, kind):
        for function in resqued._hooks[kind]:
            try:
                function()
            except Exception as error:
                complain("%s: %s: %r" % (kind, getattr(function, "__qualname__", function), error))

    def bad(self, bad):
        """Answers a line that cannot be read: the job, if it is one, fails."""
        if bad.number is None:
            self.channel.tell({"error": "a line that is not a JSON object: %s" % bad})
            return
        job = resqued.Job({"number": bad.number}, self.channel)
        self.channel.send(ended(job, bad.error))


def raise_in(thread, error):
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))

"""The classes of test/runners, in Python."""

import logging
import os
import sys
import threading
import time

import resqued

logging.getLogger().setLevel(logging.INFO)


class Boom(Exception):
    pass


@resqued.job("Nop")
def nop(*args):
    pass


@resqued.job("Fail")
def fail(message):
    raise Boom(message)


@resqued.job("Two")
def two(first, second):
    pass


@resqued.job("Length")
def length(text):
    resqued.discard(str(len(text)))


@resqued.job("Again")
def again(after):
    try:
        raise resqued.Requeue(after)
    except Exception:
        pass


@resqued.job("Hit")
def hit(limit, after):
    resqued.limit_hit(limit, after)


@resqued.job("Drop")
def drop(why):
    resqued.discard(why)


@resqued.job("Tell")
def tell():
    resqued.progress(3, 9, "half")
    resqued.log("told")
    resqued.refresh_lock()


@resqued.job("Sleep")
def sleep(seconds):
    try:
        time.sleep(seconds)
    except Exception:
        pass


@resqued.job("Busy")
def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@resqued.job("Exit")
def leave(code):
    sys.exit(code)


@resqued.job("Die")
def die():
    os._exit(3)


@resqued.job("Print")
def show(text):
    print(text)
    print(text, file=sys.stderr)


@resqued.job("CloseAll")
def close_all():
    os.closerange(3, 64)


@resqued.job("Environment")
def environment(name):
    resqued.discard(os.environ.get(name, "(not set)"))


@resqued.job("Recurse")
def recurse(*args):
    recurse()


@resqued.job("ForkAndReturn")
def fork_and_return():
    if os.fork() != 0:
        os.wait()


meeting = threading.Condition()
met = 0


@resqued.job("Meet")
def meet(people):
    global met
    with meeting:
        met += 1
        meeting.notify_all()
        while met < people:
            meeting.wait()


@resqued.long_job("Steps")
def steps(run, count):
    for step in range(run.state.get("step", 0), count):
        time.sleep(0.001)
        yield {"step": step + 1}

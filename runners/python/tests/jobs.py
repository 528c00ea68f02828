"""The application of the tests."""

import asyncio
import logging
import os
import signal
import threading
import time

import resqued

logging.getLogger().setLevel(logging.INFO)
told = []
met = 0


@resqued.before_fork
def before():
    told.append("before %d" % os.getpid())


@resqued.after_fork
def after():
    told.append("after %d" % os.getpid())


@resqued.on_pause
def paused():
    told.append("paused")


@resqued.job("Told")
def what_was_told():
    resqued.discard(" ".join(line.split()[0] for line in told))


@resqued.job("Log")
def log(message):
    logging.getLogger("app").warning("%s", message)
    logging.getLogger("app").debug("too quiet")


@resqued.job("Slow")
async def slow(seconds):
    await asyncio.sleep(seconds)


@resqued.job("MeetAsync")
async def meet(people):
    global met
    met += 1
    while met < people:
        await asyncio.sleep(0.001)
    name = resqued.current_job().class_name
    resqued.discard("%s in %s" % (name, threading.current_thread().name))


@resqued.job("AsyncFail")
async def async_fail():
    await asyncio.sleep(0)
    raise KeyError("nobody")


@resqued.job("AsyncExit")
async def async_exit():
    raise SystemExit(3)


@resqued.job("Caught")
def caught(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(0.01)
        except Exception:
            pass


@resqued.job("MakesRoom")
def makes_room():
    resqued.progress(1)
    while not resqued.leaving():
        time.sleep(0.01)
    resqued.discard("made room")


@resqued.job("Interrupted")
def interrupted():
    resqued.interrupted()


@resqued.job("Cleanup")
def cleanup():
    try:
        time.sleep(600)
    except resqued.Cancelled as cancelled:
        resqued.discard("cleaned up after " + cancelled.why)


@resqued.job("TakesSignals")
def takes_signals():
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
    while True:
        time.sleep(0.01)


@resqued.job("Chained")
def chained():
    try:
        {}["x"]
    except KeyError as error:
        raise ValueError("no x") from error


@resqued.job("NotJSON")
def not_json():
    resqued.progress(float("nan"))


@resqued.job("TooLong")
def too_long():
    resqued.current_job()._outlet.tell({"log": {"message": "x" * (9 << 20)}})


@resqued.job("Interrupt")
def interrupt():
    raise KeyboardInterrupt


@resqued.job("Unreadable")
def unreadable():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no")
    raise Odd()


@resqued.long_job("Yields")
def yields(run):
    run.report(state={"a": 1}, done=1, total=2)
    run.wait_saved()
    while not run.over():
        time.sleep(0.001)
    run.yield_slice()


@resqued.long_job("AsyncSteps")
async def async_steps(run, count):
    for step in range(count):
        run.report(state={"step": step})
        await run.until_saved()


@resqued.job("Outlives")
def outlives():
    job = resqued.current_job()
    gate = threading.Event()

    def late():
        gate.wait()
        time.sleep(0.02)
        job.progress(1, 2)
        job.log("late")
    threading.Thread(target=late, daemon=True).start()
    gate.set()


@resqued.job("Chatter")
def chatter():
    while True:
        resqued.progress(1, 2, "x" * 200000)

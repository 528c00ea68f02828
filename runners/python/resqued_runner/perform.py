"""Performs one job: what it returns is the line that ends it."""

import asyncio
import json
import os
import sys

import resqued

from . import text


def handler_of(job):
    """Returns the handler of a job's class, or raises UnknownClass."""
    handler = resqued._jobs.get(job.class_name)
    if handler is None:
        known = ", ".join(sorted(resqued._jobs)) or "none"
        raise resqued.UnknownClass("no function is registered for the class %s (registered: %s)" % (
            job.class_name, known))
    return handler


def ended(job, error, function=None):
    """Returns the line that ends a job with what it has raised; None if it has succeeded."""
    number = job.number
    if error is None:
        return (b'{"done":%d,"interrupted":true}\n' if job.interrupted else b'{"done":%d}\n') % number
    if isinstance(error, resqued.LimitHit):
        line = {"limit_hit": number, "limit": error.limit[:1000], "after": error.after}
    elif isinstance(error, resqued.Requeue):
        line = {"requeue": number, "after": error.after}
    elif isinstance(error, resqued.Discard):
        line = {"discard": number, "why": error.why[:1000]}
    else:
        if isinstance(error, asyncio.CancelledError) and job.cancelled is not None:
            error = resqued.Cancelled(job.cancelled).with_traceback(error.__traceback__)
        elif type(error) is resqued.Cancelled and job.cancelled is not None and error.why != job.cancelled:
            # An exception raised in another thread is created from a class, without a reason.
            error.__init__(job.cancelled)
        line = {
            "failed": number, "exception": text.name(error),
            "message": text.message(error), "backtrace": text.backtrace(error, function),
        }
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def call(job, waiter):
    """Performs a job in this thread. Returns its line. Only what interrupts the job comes out of it:
    Cancelled, where that is raised a moment late."""
    function = None
    error = None
    token = resqued._current.set(job)
    try:
        try:
            job.raising = True
            if job.cancelled is not None and not job.raised:
                raise resqued.Cancelled(job.cancelled)
            handler = handler_of(job)
            if handler.long:
                long_slice(job, handler, waiter)
            else:
                args = job.args
                function = handler.function
                function(*args)
        finally:
            job.raising = False
    except BaseException as raised:
        error = raised
    resqued._current.reset(token)
    return ended(job, error, function)


def long_slice(job, handler, waiter):
    run = resqued.LongJob(job, waiter)
    job.run = run
    args = run_args(job)
    try:
        if handler.kind == "generator":
            generator = handler.function(run, *args)
            try:
                for state in generator:
                    run.save(state)
                    if run.over():
                        raise resqued.Yielded()
            finally:
                generator.close()
        else:
            handler.function(run, *args)
    except resqued.Yielded:
        run._tell({"yield": True})
        return
    run._tell({"done": True})


def run_args(job):
    args = job.described.get("args")
    return args if isinstance(args, list) else []


async def call_coroutine(job, handler):
    """Performs a job in a task of its own. Returns its line."""
    error = None
    resqued._current.set(job)
    try:
        if handler.long:
            run = resqued.LongJob(job, None)
            job.run = run
            try:
                await handler.function(run, *run_args(job))
                run._tell({"done": True})
            except resqued.Yielded:
                run._tell({"yield": True})
        else:
            await handler.function(*job.args)
    except BaseException as raised:
        error = raised
    return ended(job, error, handler.function)


def complain(message):
    """Writes a line to the daemon's log, by way of standard error."""
    try:
        sys.stderr.write("resqued_runner: %s\n" % message)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass


def end_process(code):
    """Ends the process at once: no other thread, and nothing that a job has left, holds it up."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)

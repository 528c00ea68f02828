"""What Python jobs of resqued use: they register functions by the name of their class.

    import resqued

    @resqued.job("Mail")
    def mail(user, subject):
        ...

Importing this module starts nothing, so functions can be called and tested as any others.
"""

import contextvars
import logging

__all__ = [
    "Cancelled", "Discard", "Job", "LogHandler", "LimitHit", "LongJob", "Requeue", "UnknownClass",
    "after_fork", "before_fork", "current_job", "discard", "interrupted", "job", "leaving", "limit_hit", "log", "long_job",
    "on_pause", "on_resume", "progress", "refresh_lock", "requeue",
]


class Cancelled(BaseException):
    """Raised in a job that is to stop: it was killed, its time is up, or its lock is lost.

    As KeyboardInterrupt it is not an Exception, so that `except Exception` does not swallow it.
    """

    def __init__(self, why="killed"):
        super().__init__("the job was cancelled: " + str(why))
        self.why = why


class Requeue(BaseException):
    """Raised by a job that is to go back to its queue, neither failed nor succeeded."""

    def __init__(self, after=0):
        super().__init__("run again after %s seconds" % after)
        self.after = float(after)
        if not 0 <= self.after < float("inf"):
            raise ValueError("resqued.Requeue(after): %r is not a number of seconds from 0" % (after,))


class LimitHit(Requeue):
    """Raised by a job whose service has had too many requests."""

    def __init__(self, limit, after):
        super().__init__(after)
        self.limit = str(limit)


class Discard(BaseException):
    """Raised by a job that is to end without success and without a failure."""

    def __init__(self, why=""):
        super().__init__(str(why))
        self.why = str(why)


class UnknownClass(NameError):
    """A job's class that no function is registered for."""


class Job:
    """One job, as resqued describes it, and what it can tell resqued while it runs."""

    __slots__ = ("number", "described", "_payload", "_outlet", "cancelled", "thread", "raising",
                 "raised", "ended", "task", "loop", "run", "leaving", "interrupted")

    def __init__(self, described, outlet):
        self.number = described["number"]
        self.described = described
        self._payload = None
        self._outlet = outlet
        # Why the job must stop, or None. The other fields are the runner's.
        self.cancelled = None
        self.thread = self.task = self.loop = self.run = None
        self.raising = self.raised = self.ended = False
        # Whether it should make room: its worker process exits, or it has run for its max_run.
        self.leaving = False
        # Whether it has enqueued the rest of its work.
        self.interrupted = False

    @property
    def id(self):
        return self.described.get("id")

    @property
    def class_name(self):
        return self.described.get("class")

    @property
    def queue(self):
        return self.described.get("queue")

    @property
    def attempt(self):
        return self.described.get("attempt")

    @property
    def max_attempts(self):
        return self.described.get("max_attempts")

    @property
    def enqueued_at(self):
        return self.described.get("enqueued_at")

    @property
    def deadline(self):
        return self.described.get("deadline")

    @property
    def deaths(self):
        return self.described.get("deaths", 0)

    @property
    def worker(self):
        return self.described.get("worker")

    @property
    def lock_key(self):
        return self.described.get("lock_key")

    @property
    def fence(self):
        return self.described.get("fence")

    @property
    def payload(self):
        """The payload as an object."""
        if self._payload is None:
            payload = self.described.get("payload")
            if payload is None:
                import base64
                import json
                decoded = base64.b64decode(self.described.get("payload_base64") or "")
                payload = json.loads(decoded.decode("utf-8", "replace"))
            if not isinstance(payload, dict):
                raise TypeError("the payload of a job has to be an object, and is %s" % type(payload).__name__)
            self._payload = payload
        return self._payload

    @property
    def args(self):
        args = self.described.get("args")  # an Active Job's; its payload has the wrapper's
        if args is None:
            args = self.payload.get("args")
        if args is None:
            return []
        if not isinstance(args, list):
            raise TypeError("the args of a job have to be a list, and are %s" % type(args).__name__)
        return args

    def progress(self, done, total=None, message=None, step=None):
        told = {"job": self.number, "done": done}
        for key, value in (("total", total), ("message", message), ("step", step)):
            if value is not None:
                told[key] = value
        self._outlet.tell({"progress": told}, self)

    def refresh_lock(self):
        self._outlet.tell({"refresh_lock": self.number}, self)

    def log(self, message, level="info"):
        self._outlet.tell({"log": {"job": self.number, "level": level, "message": str(message)[:8192]}}, self)

    def __repr__(self):
        return "<resqued.Job %s %s>" % (self.class_name, self.id)


class LongJob:
    """The slice of a long job that is running: its first argument.

    `state` is what earlier slices and this one have saved.
    """

    def __init__(self, job, waiter):
        self.job = job
        self.id = job.described.get("run")
        self.slice = job.described.get("slice")
        self.fence = job.described.get("fence")
        self.message = job.described.get("message")
        self.state = dict(job.described.get("state") or {})
        self._waiter = waiter
        self._over = False
        self._reported = self._saved = 0

    def over(self):
        """Reports whether the slice is over, so that the job should save and yield."""
        return self._over

    def report(self, state=None, done=None, total=None, step=None, message=None):
        """Reports a state (keys with new values; None forgets one) or a progress, without waiting."""
        line = {}
        progress = {"done": done, "total": total, "step": step, "message": message}
        progress = {key: value for key, value in progress.items() if value is not None}
        if progress:
            line["progress"] = progress
        if state is not None:
            line["state"] = state
        if not line:
            return
        self._tell(line)
        if state is not None:
            self._reported += 1
            for key, value in state.items():
                if value is None:
                    self.state.pop(key, None)
                else:
                    self.state[key] = value

    @property
    def saved(self):
        """Whether all states that were reported are saved."""
        return self._saved >= self._reported

    def wait_saved(self):
        """Waits until all states that were reported are saved."""
        self._waiter(self, lambda: self._saved >= self._reported)

    async def until_saved(self):
        """Is wait_saved for coroutines."""
        import asyncio
        while not self.saved:
            await asyncio.sleep(0.005)

    def save(self, state=None, **progress):
        """Reports a state and waits until it is saved."""
        self.report({} if state is None else state, **progress)
        self.wait_saved()

    def yield_slice(self):
        """Ends the slice here; the run goes on with the next one. Does not return."""
        raise Yielded()

    def _tell(self, line):
        self.job._outlet.tell({"report": {"job": self.job.number, "line": line}}, self.job)


class Yielded(BaseException):
    """Ends a slice: see LongJob.yield_slice."""


_jobs = {}
_hooks = {"before_fork": [], "after_fork": [], "on_pause": [], "on_resume": []}
_current = contextvars.ContextVar("resqued_job")


class _Handler:
    __slots__ = ("name", "function", "long", "kind")

    def __init__(self, name, function, long):
        import inspect
        self.name, self.function, self.long = name, function, long
        called = function if not hasattr(function, "__call__") or inspect.isroutine(function) else function.__call__
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
            self.kind = "coroutine"
        elif long and inspect.isgeneratorfunction(function):
            self.kind = "generator"
        elif inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("%s: a generator can only be a long job (@resqued.long_job)" % name)
        else:
            self.kind = "function"


def _register(name, long):
    if not isinstance(name, str) or not name:
        raise TypeError('@resqued.job("Mail") needs the name of the class, and got %r' % (name,))

    def decorate(function):
        known = _jobs.get(name)
        if known is not None and known.function is not function:
            raise ValueError("two functions are registered for the class %s: %s.%s and %s.%s" % (
                name, known.function.__module__, known.function.__qualname__,
                function.__module__, function.__qualname__))
        _jobs[name] = _Handler(name, function, long)
        return function

    return decorate


def job(name):
    """Registers a function or coroutine for the jobs of a class. It gets their arguments."""
    return _register(name, False)


def long_job(name):
    """Registers a function for the slices of a long job. It gets a LongJob, then the arguments.

    A generator yields states: each is saved, and where the slice is over it ends there.
    """
    return _register(name, True)


def _hook(kind):
    def register(function):
        _hooks[kind].append(function)
        return function
    register.__name__ = kind
    return register


before_fork = _hook("before_fork")
after_fork = _hook("after_fork")
on_pause = _hook("on_pause")
on_resume = _hook("on_resume")
before_fork.__doc__ = "Registers a function that a template calls before it forks a runner."
after_fork.__doc__ = "Registers a function that a runner calls when it was forked: to connect anew."
on_pause.__doc__ = "Registers a function that is called when the worker process takes no new jobs."
on_resume.__doc__ = "Registers a function that is called when it takes jobs again."


def current_job():
    """Returns the job that this thread or task performs, or None."""
    return _current.get(None)


def _here():
    current = _current.get(None)
    if current is None:
        raise RuntimeError("no job is performed here: resqued.current_job() is None")
    return current


def progress(done, total=None, message=None, step=None):
    """Tells people how far the current job is."""
    _here().progress(done, total, message, step)


def refresh_lock():
    """Restarts the time limit of the current job's class lock."""
    _here().refresh_lock()


def leaving():
    """Reports whether the current job should make room: save what it has done and end.

    Its worker process leaves, its runner is replaced, or it has run for its max_run.
    """
    return _here().leaving


def interrupted():
    """Counts the current job, if it succeeds, as interrupted: it has saved what it did and enqueued the rest."""
    _here().interrupted = True


def log(message, level="info"):
    """Writes a line of resqued's log with the current job."""
    _here().log(message, level)


def requeue(after=0):
    """Ends the current job: it goes back to its queue."""
    raise Requeue(after)


def limit_hit(limit, after):
    """Ends the current job like requeue, and lets no job of the same key of a limit begin for some seconds."""
    raise LimitHit(limit, after)


def discard(why=""):
    """Ends the current job without success and without a failure."""
    raise Discard(why)


class LogHandler(logging.Handler):
    """Sends records of the module logging to resqued's log, with the job that they are about."""

    outlet = None

    def emit(self, record):
        try:
            if LogHandler.outlet is None:
                return
            if record.levelno >= logging.ERROR:
                level = "error"
            elif record.levelno >= logging.WARNING:
                level = "warn"
            elif record.levelno >= logging.INFO:
                level = "info"
            else:
                level = "debug"
            line = {"level": level, "message": self.format(record)[:8192]}
            current = _current.get(None)
            if current is not None and current.ended:
                current = None
            if current is not None:
                line["job"] = current.number
            LogHandler.outlet.tell({"log": line}, current)
        except Exception:
            self.handleError(record)

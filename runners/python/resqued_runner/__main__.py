"""python3 -m resqued_runner MODULE…: see README.md."""

import importlib
import logging
import os
import sys

USAGE = """usage: python3 -m resqued_runner MODULE...

Imports the modules (app.jobs, or a file: jobs.py), whose functions are registered with
@resqued.job("Class"), and performs the jobs that resqued hands it. It is not run by hand: name
it in the configuration of resqued,

    runners:
      app:
        command: [python3, -m, resqued_runner, app.jobs]
    handlers:
      "*": {runner: app}

or try it: resqued dev --runner 'python3 -m resqued_runner app.jobs'"""


def load(name):
    """Imports a module, or a file."""
    if not name.endswith(".py"):
        importlib.import_module(name)
        return
    from importlib import util
    path = os.path.abspath(name)
    if not os.path.isfile(path):
        raise FileNotFoundError("no such file: %s" % path)
    module_name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    spec = util.spec_from_file_location(module_name, path)
    module = util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)


def descriptor(name):
    value = os.environ.get(name)
    if value is None:
        return None
    try:
        number = int(value)
        os.fstat(number)
    except (ValueError, OSError):
        sys.exit("resqued_runner: %s is %r, which is not an open descriptor" % (name, value))
    # Programs that the application starts while it boots must not have the descriptor.
    os.set_inheritable(number, False)
    return number


def main():
    modules = sys.argv[1:]
    if not modules or modules[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if modules else sys.stderr)
        sys.exit(0 if modules else 64)
    requests = descriptor("RESQUED_FORK_FD")
    connection = descriptor("RESQUED_FD")
    if connection is None:
        sys.exit("resqued_runner: RESQUED_FD is not set, as resqued sets it\n\n" + USAGE)
    try:
        concurrency = max(1, int(os.environ.get("RESQUED_CONCURRENCY", "1")))
    except ValueError:
        sys.exit("resqued_runner: RESQUED_CONCURRENCY is %r, and has to be a number" % os.environ["RESQUED_CONCURRENCY"])
    for name in ("RESQUED_FD", "RESQUED_FORK_FD"):
        os.environ.pop(name, None)
    # Write log lines one by one: a buffer is lost when the process is killed.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
        except (AttributeError, ValueError):
            pass
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    import resqued
    for name in modules:
        load(name)
    if not resqued._jobs:
        sys.exit("resqued_runner: %s registers no function: write @resqued.job(\"Mail\") before one" % ", ".join(modules))
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(resqued.LogHandler())
    from .channel import Channel
    from .worker import Worker
    app = " ".join(modules)
    if requests is None:
        channel = Channel(connection)
    else:
        from .template import Template
        channel, concurrency = Template(connection, requests, concurrency, app).run()
    Worker(channel, concurrency, app).run()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A long job in Python: it sends an invoice to each customer of a shop, for as long as
that takes, through every deploy. README.md says how to run it."""

import json
import os
import signal
import sys
import time


class Slice:
    """One slice of a run, as docs/longjob.md describes it. Copy it into your program."""

    def __init__(self):
        job = json.load(sys.stdin)
        self.args = job["args"]
        self.state = job["state"]  # what earlier slices have saved
        self.number = job["slice"]
        self.over = False  # True when the slice should end
        self._saves = 0
        signal.signal(signal.SIGTERM, self._told)
        self._reports = os.fdopen(3, "w", encoding="utf-8")
        self._replies = os.fdopen(4, encoding="utf-8")

    def _told(self, *_):
        self.over = True

    def _report(self, message):
        self._reports.write(json.dumps(message) + "\n")
        self._reports.flush()

    def save(self, **values):
        """Changes the state, None forgets a key, and returns when it is saved: what is done
        by then is not done again, whatever happens."""
        self._report({"state": values})
        self._saves += 1
        saved = 0
        while saved < self._saves:
            line = self._replies.readline()
            if not line:
                sys.exit("nobody listens any more")
            saved = json.loads(line)["saved"]
        self.state = {k: v for k, v in {**self.state, **values}.items() if v is not None}

    def progress(self, done, total, message=""):
        """Is for people: resqued longjobs shows it."""
        self._report({"progress": {"done": done, "total": total, "message": message}})

    def goes_on(self):
        """Ends the slice: the program runs again, in the next one. Exit with 0 then."""
        self._report({"yield": True})

    def is_done(self):
        """Ends the run. Exit with 0 then."""
        self._report({"done": True})


def main():
    run = Slice()
    shop, count = (run.args + [20])[:2]
    if "customers" not in run.state:  # a step that runs once
        run.save(customers=customers_of(shop, count))
    customers = run.state["customers"]
    for n in range(run.state.get("sent", 0), len(customers)):
        if run.over:
            return run.goes_on()
        send(shop, customers[n])
        run.save(sent=n + 1)
        run.progress(n + 1, len(customers), "sent to " + customers[n])
    print(f"{shop}: {len(customers)} invoices sent in {run.number} slices")
    run.is_done()


def customers_of(shop, count):
    return [f"{shop}-{n + 1}" for n in range(count)]


def send(shop, customer):
    """A real one would hand RESQUED_LONG_FENCE to what it writes to, which can then refuse
    a slice that another one has taken over from."""
    time.sleep(float(os.environ.get("SECONDS_EACH", "0.1")))
    with open(shop + ".outbox", "a", encoding="utf-8") as outbox:
        outbox.write(f"{customer} {os.environ['RESQUED_LONG_FENCE']}\n")


if __name__ == "__main__":
    main()

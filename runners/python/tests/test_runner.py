"""Drives the runner over its socket. What holds for every language is in test/runners."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 30


class Connection:
    def __init__(self, ours):
        ours.settimeout(PATIENCE)
        self.socket = ours
        self.lines = ours.makefile("rb")
        self.number = 0

    def read(self):
        line = self.lines.readline()
        return json.loads(line) if line else None

    def write(self, line):
        self.socket.sendall(json.dumps(line).encode() + b"\n")

    def start(self, name, *args, **more):
        self.number += 1
        self.write({"job": dict({"number": self.number, "class": name, "payload": {"class": name, "args": args}}, **more)})
        return self.number

    def perform(self, name, *args):
        self.start(name, *args)
        return self.read()

    def close(self):
        self.lines.close()
        self.socket.close()


class RunnerTest(unittest.TestCase):
    def spawn(self, *argv, descriptors=(), **env):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        command = [sys.executable, "-m", "resqued_runner"] + (list(argv) or [os.path.join(HERE, "jobs.py")])
        # The program moves what it inherits to 3 and 4.
        numbers = " ".join("%d>&%d" % (3 + i, d.fileno()) for i, d in enumerate(descriptors))
        process = subprocess.Popen(
            ["bash", "-c", 'exec "$@" %s' % numbers, "bash"] + command, cwd=directory.name,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            pass_fds=[d.fileno() for d in descriptors],
            env=dict(os.environ, PYTHONPATH=os.path.dirname(HERE), PYTHONDONTWRITEBYTECODE="1", **env))
        for descriptor in descriptors:
            descriptor.close()

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def runner(self, concurrency=1):
        ours, theirs = socket.socketpair()
        self.process = self.spawn(descriptors=[theirs], RESQUED_FD="3", RESQUED_CONCURRENCY=str(concurrency))
        runner = Connection(ours)
        self.addCleanup(runner.close)
        hello = runner.read()["hello"]
        self.assertIn("Told", hello["classes"])
        self.assertEqual(concurrency, hello["concurrency"])
        return runner

    def test_logging_goes_to_the_log_with_its_job(self):
        runner = self.runner()
        self.assertEqual({"log": {"job": 1, "level": "warn", "message": "grüße"}}, runner.perform("Log", "grüße"))
        self.assertEqual({"done": 1}, runner.read())

    def test_coroutines_run_beside_each_other_in_one_loop(self):
        runner = self.runner(50)
        for _ in range(50):
            runner.start("MeetAsync", 50)
        ends = [runner.read() for _ in range(50)]
        self.assertEqual({"MeetAsync in MainThread"}, {end["why"] for end in ends})
        self.assertEqual(set(range(1, 51)), {end["discard"] for end in ends})

    def test_coroutines_one_at_a_time(self):
        runner = self.runner()
        self.assertEqual({"done": 1}, runner.perform("Slow", 0))
        failed = runner.perform("AsyncFail")
        self.assertEqual("KeyError", failed["exception"])
        self.assertRegex(failed["backtrace"][0], r"jobs\.py:\d+:in 'async_fail'$")

    def test_a_coroutine_that_exits_fails_alone(self):
        for concurrency in (1, 3):
            runner = self.runner(concurrency)
            self.assertEqual("SystemExit", runner.perform("AsyncExit")["exception"])
            self.assertEqual({"done": 2}, runner.perform("Slow", 0))

    def test_a_coroutine_is_cancelled_and_the_others_go_on(self):
        runner = self.runner(3)
        other = runner.start("MeetAsync", 2)
        number = runner.start("Slow", 600)
        runner.write({"cancel": number, "why": "timeout"})
        failed = runner.read()
        self.assertEqual((number, "resqued.Cancelled"), (failed["failed"], failed["exception"]))
        # No more jobs: this one goes back.
        late = runner.start("Slow", 0)
        self.assertEqual(late, runner.read()["requeue"])
        runner.write({"cancel": other, "why": "killed"})
        self.assertEqual(other, runner.read()["failed"])
        self.assertIsNone(runner.read())
        self.assertEqual(0, self.process.wait(PATIENCE))

    def test_a_coroutine_is_cancelled_alone(self):
        runner = self.runner()
        number = runner.start("Slow", 600)
        runner.write({"cancel": number, "why": "killed"})
        self.assertEqual("resqued.Cancelled", runner.read()["exception"])
        self.assertIsNone(runner.read())

    def test_code_that_catches_exceptions_does_not_catch_a_cancel(self):
        for concurrency in (1, 2):
            runner = self.runner(concurrency)
            number = runner.start("Caught", 600)
            runner.write({"cancel": number, "why": "lock_lost"})
            failed = runner.read()
            self.assertEqual("resqued.Cancelled", failed["exception"])
            self.assertEqual("the job was cancelled: lock_lost", failed["message"])
            self.assertIsNone(runner.read())

    def test_a_cancelled_job_may_clean_up(self):
        runner = self.runner()
        number = runner.start("Cleanup")
        runner.write({"cancel": number, "why": "timeout"})
        self.assertEqual("cleaned up after timeout", runner.read()["why"])

    def test_a_job_that_should_make_room_is_told(self):
        for concurrency in (1, 2):
            runner = self.runner(concurrency)
            number = runner.start("MakesRoom")
            self.assertIn("progress", runner.read())
            runner.write({"leaving": number + 7})  # one that has ended already
            runner.write({"leaving": number})
            self.assertEqual({"discard": number, "why": "made room"}, runner.read())

    def test_an_interrupted_job_says_so(self):
        runner = self.runner()
        self.assertEqual({"done": 1, "interrupted": True}, runner.perform("Interrupted"))
        self.assertEqual({"done": 2}, runner.perform("Slow", 0))

    def test_what_outlives_its_job_does_not_speak_for_it(self):
        runner = self.runner()
        self.assertEqual({"done": 1}, runner.perform("Outlives"))
        self.assertEqual({"done": 2}, runner.perform("Slow", 0.1))

    def test_a_cancel_leaves_no_half_line(self):
        runner = self.runner()
        number = runner.start("Chatter")
        # Its lines do not fit the socket, so it is cancelled while it writes.
        for _ in range(5):
            self.assertIn("progress", runner.read())
        runner.write({"cancel": number, "why": "killed"})
        # Long enough for the write to be in progress; otherwise the test proves less.
        time.sleep(0.3)
        line = runner.read()
        while "progress" in line:
            line = runner.read()
        self.assertEqual("resqued.Cancelled", line["exception"])

    def test_a_job_that_ignores_all_signals_is_cancelled(self):
        runner = self.runner()
        number = runner.start("TakesSignals")
        runner.write({"cancel": number, "why": "killed"})
        self.assertEqual("resqued.Cancelled", runner.read()["exception"])

    def test_failures(self):
        runner = self.runner()
        chained = runner.perform("Chained")
        self.assertEqual(("ValueError", "no x"), (chained["exception"], chained["message"]))
        self.assertIn("caused by KeyError: 'x'", chained["backtrace"])
        self.assertEqual("ValueError", runner.perform("NotJSON")["exception"])
        self.assertEqual("ValueError", runner.perform("TooLong")["exception"])
        self.assertEqual("KeyboardInterrupt", runner.perform("Interrupt")["exception"])
        self.assertIn("cannot be read", runner.perform("Unreadable")["message"])
        self.assertIn("registered: ", runner.perform("Nobody")["message"])

    def test_slices(self):
        for concurrency in (1, 2):
            runner = self.runner(concurrency)
            number = runner.start("Yields", args=[], run="r", slice=1, state={})
            self.assertEqual(
                {"report": {"job": number, "line": {"state": {"a": 1}, "progress": {"done": 1, "total": 2}}}}, runner.read())
            runner.write({"reply": {"job": number, "line": {"saved": 1}}})
            runner.write({"slice_over": number})
            self.assertEqual({"yield": True}, runner.read()["report"]["line"])
            self.assertEqual({"done": number}, runner.read())

    def test_a_coroutine_in_slices(self):
        for concurrency in (1, 2):
            runner = self.runner(concurrency)
            number = runner.start("AsyncSteps", args=[3], run="r", slice=1, state={})
            for step in range(3):
                self.assertEqual({"state": {"step": step}}, runner.read()["report"]["line"])
                runner.write({"reply": {"job": number, "line": {"saved": step + 1}}})
            self.assertEqual({"done": True}, runner.read()["report"]["line"])
            self.assertEqual({"done": number}, runner.read())

    def template(self, *argv):
        status, theirs = socket.socketpair()
        self.requests, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = self.spawn(*argv, descriptors=[theirs, other], RESQUED_FD="3", RESQUED_FORK_FD="4")
        self.addCleanup(self.requests.close)
        status = Connection(status)
        self.addCleanup(status.close)
        self.assertTrue(status.read()["hello"]["template"])
        return status

    def forked(self):
        ours, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_RDWR)
        socket.send_fds(self.requests, [b'{"fork":{"concurrency":1}}'], [theirs.fileno(), null, null, null])
        theirs.close()
        os.close(null)
        runner = Connection(ours)
        self.addCleanup(runner.close)
        self.assertIn("hello", runner.read())
        return runner

    def test_hooks_around_a_fork(self):
        self.template()
        first, second = self.forked(), self.forked()
        first.write({"pause": True})
        self.assertEqual("before after paused", first.perform("Told")["why"])
        self.assertEqual("before before after", second.perform("Told")["why"])

    def test_a_hook_without_room_for_a_file_ends_a_template(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "greedy.py")
            with open(path, "w") as file:
                file.write("import os, resource, resqued\n"
                           "@resqued.job(\"Nop\")\ndef nop(): pass\n"
                           "@resqued.before_fork\ndef before():\n"
                           "    resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
                           "    open(os.devnull)\n")
            self.template(path)
            ours, theirs = socket.socketpair()
            self.addCleanup(ours.close)
            socket.send_fds(self.requests, [b'{"fork":{}}'], [theirs.fileno()] * 4)
            theirs.close()
            self.assertEqual(b"", ours.recv(1))
            _, said = self.process.communicate(timeout=PATIENCE)
            self.assertEqual(71, self.process.returncode)
            self.assertRegex(said.decode(), "hook before the fork: .*Too many open files.*limit of open files is 0")

    def test_threads_of_a_template_are_named(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "threads.py")
            with open(path, "w") as file:
                file.write("import threading, time, resqued\n"
                           "threading.Thread(target=time.sleep, args=[600], name='beat', daemon=True).start()\n"
                           "@resqued.job('Nop')\ndef nop(): pass\n")
            status = self.template(path)
            runner = self.forked()
            said = status.read()["log"]
            self.assertEqual("warn", said["level"])
            self.assertIn("beat", said["message"])
            self.assertEqual({"done": 1}, runner.perform("Nop"))

    def test_what_cannot_start_says_why(self):
        for argv, env, said in (
                ([], {}, "RESQUED_FD is not set"),
                ([], {"RESQUED_FD": "99"}, "not an open descriptor"),
                (["nowhere.py"], {"RESQUED_FD": "0"}, "no such file"),
                (["json"], {"RESQUED_FD": "0"}, "registers no function")):
            process = self.spawn(*argv, **env)
            _, err = process.communicate(timeout=PATIENCE)
            self.assertNotEqual(0, process.returncode)
            self.assertIn(said, err.decode())


class ModuleTest(unittest.TestCase):
    def test_functions_stay_functions(self):
        import resqued

        @resqued.job("ModuleTest")
        def double(number):
            return 2 * number

        self.assertEqual(4, double(2))
        self.assertIsNone(resqued.current_job())
        with self.assertRaises(RuntimeError):
            resqued.progress(1)
        with self.assertRaises(ValueError):
            resqued.job("ModuleTest")(lambda: None)
        with self.assertRaises(TypeError):
            resqued.job(double)
        for after in (-1, float("inf"), float("nan")):
            with self.assertRaises(ValueError):
                resqued.Requeue(after)
        for outcome in (resqued.Cancelled, resqued.Requeue, resqued.Discard):
            self.assertFalse(issubclass(outcome, Exception))


if __name__ == "__main__":
    unittest.main()

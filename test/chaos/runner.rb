# The classes of the harness that a runner performs. Like its commands, they note in the ledger,
# outside of Redis, what they do.

require "json"

# Ledger appends to the file of the worker process that the runner belongs to; see package ledger.
module Ledger
  def self.write(entry)
    worker = ENV.fetch("RESQUED_PROC")
    @file ||= File.open(File.join(ENV.fetch("CHAOS_LEDGER"), "#{worker}.jsonl"), File::WRONLY | File::APPEND | File::CREAT, 0o600)
    now = Process.clock_gettime(Process::CLOCK_BOOTTIME, :nanosecond)
    # A single write: a kill leaves a whole line or none.
    @file.syswrite(JSON.generate({ t: now, proc: worker, pid: Process.pid }.merge(entry)) << "\n")
  end
end

# Runner takes the time that its payload demands. One that holds a lock notes that it still runs.
class Runner
  def self.perform(*)
    job = Resqued.job
    payload = job.payload
    run = { run: rand(1 << 62).to_s(36), id: payload["id"] }
    start = { e: "start", class: name, queue: job.queue, attempt: job.attempt }
    start.update(lock: job.lock_key, fence: job.fence) if job.fence.to_i.positive?
    Ledger.write(start.merge(run))
    act(run, payload["ms"] / 1000.0, start.key?(:lock))
    finish(job, run)
  end

  def self.act(run, long, locked)
    over = now + long
    while (left = over - now).positive?
      sleep(locked ? [left, 0.01].min : left)
      Ledger.write(run.merge(e: "act")) if locked
    end
  end

  def self.now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  def self.finish(_job, run)
    Ledger.write(run.merge(e: "end"))
  end
end

# RunnerDie ends its process at its first attempt, RunnerPoison at each.
class RunnerDie < Runner
  def self.finish(job, run)
    return super if job.attempt > 1

    die(job, run)
  end

  def self.die(job, run)
    Ledger.write(run.merge(e: "die"))
    exit!(9) if job.payload["how"] == "exit"
    Process.kill(:KILL, Process.pid)
    sleep
  end
end

class RunnerPoison < RunnerDie
  def self.finish(job, run) = die(job, run)
end

# RunnerFail fails with an error of its own.
class RunnerFail < Runner
  def self.finish(_job, run)
    Ledger.write(run.merge(e: "fail"))
    raise ArgumentError, "as it should"
  end
end

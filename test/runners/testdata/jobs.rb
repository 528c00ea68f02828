# frozen_string_literal: true

# The classes of test/runners, in Ruby.

class Boom < StandardError; end

class Nop
  def self.perform(*); end
end

class Fail
  def self.perform(message)
    raise Boom, message
  end
end

class Two
  def self.perform(first, second); end
end

class Length
  def self.perform(text)
    Resqued.discard(text.length.to_s)
  end
end

class Again
  def self.perform(after)
    Resqued.requeue(after: after)
  end
end

class Hit
  def self.perform(limit, after)
    Resqued.limit_hit(limit, after: after)
  end
end

class Drop
  def self.perform(why)
    Resqued.discard(why)
  end
end

class Tell
  def self.perform
    Resqued.progress(3, 9, message: "half")
    Resqued.log("told")
    Resqued.refresh_lock
  end
end

class Sleep
  def self.perform(seconds)
    sleep(seconds)
  end
end

class Busy
  def self.perform(seconds)
    finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
    nil while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish
  end
end

class Exit
  def self.perform(code)
    exit(code)
  end
end

class Die
  def self.perform
    exit!(3)
  end
end

class Print
  def self.perform(text)
    puts text
    warn text
  end
end

class CloseAll
  def self.perform
    (3...64).each do |fd|
      IO.for_fd(fd, autoclose: false).close
    rescue SystemCallError, ArgumentError
      next
    end
  end
end

class Environment
  def self.perform(name)
    Resqued.discard(ENV.fetch(name, "(not set)"))
  end
end

class Recurse
  def self.perform(*)
    perform
  end
end

class ForkAndReturn
  def self.perform
    pid = fork
    Process.wait(pid) if pid
  end
end

class Meet
  LOCK = Mutex.new
  CHANGED = ConditionVariable.new
  @met = 0

  def self.perform(people)
    LOCK.synchronize do
      @met += 1
      CHANGED.broadcast
      CHANGED.wait(LOCK) while @met < people
    end
  end
end

class Steps
  extend Resqued::LongJob

  def self.long_job_perform(run, count)
    run.work_each(:steps, (1..count).to_a) { sleep(0.001) }
  end
end

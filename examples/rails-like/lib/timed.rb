# frozen_string_literal: true

# A plugin like those of applications: prints how long each job of a class took.
module Timed
  def around_perform_timed(*args)
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    yield
  ensure
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
    puts format("%s%p took %.1f ms", name, args, took * 1000)
  end
end

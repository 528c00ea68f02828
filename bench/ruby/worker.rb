# Resque's own worker, which forks for each job unless FORK_PER_JOB is false.
require_relative "app"
Resque::Worker.new(ENV.fetch("QUEUE")).work(0.1)

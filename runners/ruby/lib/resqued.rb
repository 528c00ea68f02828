# frozen_string_literal: true

# Methods by which a running job talks to resqued. Outside of a runner they do nothing, so
# a class also works under `rake resque:work` and in tests. requeue and discard, which have to
# end the job, raise there.
module Resqued
  # requeue and discard throw this. Resque::Job#perform does not rescue a throw, so on_failure
  # hooks do not take it for a failure.
  OUTCOME = :resqued_outcome
  CURRENT = :resqued_job

  # Raised by requeue and discard outside a job.
  class NoJob < StandardError; end

  class << self
    # The job that this thread performs, a Resqued::Runner::Job, or nil.
    def job
      Thread.current.thread_variable_get(CURRENT)
    end

    # Shows people how far the job is.
    def progress(done, total = nil, step: nil, message: nil)
      job&.progress(done, total, step: step, message: message)
      nil
    end

    # Whether the job should make room: save what it has done, enqueue the rest and end.
    def leaving?
      job&.leaving ? true : false
    end

    # Counts the job as interrupted if it succeeds: it saved what it did and enqueued the rest.
    def interrupted!
      job&.interrupted = true
      nil
    end

    # Restarts the time limit of the job's class lock.
    def refresh_lock
      job&.refresh_lock
      nil
    end

    # Writes a line to the log of the daemon, with the job's class and id.
    def log(message, level: :info)
      job&.log(message, level: level)
      nil
    end

    # Ends the job and puts it back into its queue, as neither a failure nor a success.
    def requeue(after: 0)
      leave([:requeue, Float(after)], "requeue")
    end

    # Ends the job like requeue, and lets no job of the same key of a limit begin for some seconds: the service has
    # had too many requests.
    def limit_hit(limit, after:)
      leave([:limit_hit, [limit.to_s, Float(after)]], "limit_hit")
    end

    # Ends the job without success and without a failure.
    def discard(why)
      leave([:discard, why.to_s], "discard")
    end

    private

    def leave(outcome, verb)
      raise NoJob, "Resqued.#{verb} ends the job of the thread that calls it, and this one performs none" unless job

      throw OUTCOME, outcome
    end
  end
end

# frozen_string_literal: true

# Makes resque-locket take a lock in one step. The gem checks whether the lock is held and
# then sets it: a lock that another worker, of the gem or of resqued, takes between the two is
# overwritten, and both jobs run. Require it after resque-locket, in every Ruby worker.
require "resque-locket"

Resque.singleton_class.prepend(Module.new do
  private

  def obtain_job_lock(job)
    redis.set(job_lock_key(job), "", ex: job_lock_duration, nx: true)
  end
end)

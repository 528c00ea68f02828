# A worker that does to Redis what Resque's does for a job that succeeds: it takes the job from its
# queue, says what it works on, performs it, counts it and says that it is done. With FORK=1 each
# job has a process of its own, as Resque's has; THREADS is how many jobs run at a time.
require "json"
require "redis"

class Noop
  def self.perform(*); end
end

def work(redis, id, queue, forks)
  loop do
    text = redis.lpop("resque:queue:#{queue}") or (sleep 0.1; next)
    job = JSON.parse(text)
    redis.set("resque:worker:#{id}", JSON.generate(queue: queue, run_at: Time.now.to_s, payload: job))
    perform = -> { Object.const_get(job["class"]).perform(*job["args"]) }
    if forks
      pid = fork { perform.call; exit! }
      Process.wait(pid)
    else
      perform.call
    end
    redis.pipelined do |p|
      p.incr("resque:stat:processed")
      p.incr("resque:stat:processed:#{id}")
      p.del("resque:worker:#{id}")
    end
  end
end

threads = Array.new(ENV.fetch("THREADS", "1").to_i) do |n|
  Thread.new { work(Redis.new(url: ENV.fetch("REDIS_URL")), "#{Process.pid}-#{n}", ENV.fetch("QUEUE"), ENV["FORK"]) }
end
threads.each(&:join)

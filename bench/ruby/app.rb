# The classes of the jobs, for runners, Resque's workers and Sidekiq. APP is what the
# application loads, OBJECTS how many small objects it has, and BOOT how many seconds it boots.
apps = ENV.fetch("APP", "").split(",")
apps.each { |app| require app }
Resque.redis = ENV["REDIS_URL"] if defined?(Resque) && ENV["REDIS_URL"]
$objects = Array.new(ENV.fetch("OBJECTS", "0").to_i / 4) { |i| { "id" => i, "name" => "object number #{i} with a name", "list" => [i, "x#{i}"] } }
sleep(ENV.fetch("BOOT", "0").to_f)

class Noop
  if defined?(Sidekiq)
    include Sidekiq::Worker
    Sidekiq.logger.level = Logger::WARN
  end

  def perform(*); end

  def self.perform(*); end
end

if $objects.any? # garbage of jobs is collected three times in 500
  $jobs = 0
  def Noop.perform(*)
    GC.start if (($jobs += 1) % 150).zero?
  end
end

if defined?(ActiveJob)
  ActiveJob::Base.queue_adapter = apps.first.to_sym
  ActiveJob::Base.logger.level = Logger::WARN

  class NoopJob < ActiveJob::Base
    def perform(*); end
  end
end

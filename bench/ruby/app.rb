# The classes of the jobs, for runners, Resque's workers and Sidekiq. APP is what the
# application loads.
apps = ENV.fetch("APP", "").split(",")
apps.each { |app| require app }
Resque.redis = ENV["REDIS_URL"] if defined?(Resque) && ENV["REDIS_URL"]

class Noop
  if defined?(Sidekiq)
    include Sidekiq::Worker
    Sidekiq.logger.level = Logger::WARN
  end

  def perform(*); end

  def self.perform(*); end
end

if defined?(ActiveJob)
  ActiveJob::Base.queue_adapter = apps.first.to_sym
  ActiveJob::Base.logger.level = Logger::WARN

  class NoopJob < ActiveJob::Base
    def perform(*); end
  end
end

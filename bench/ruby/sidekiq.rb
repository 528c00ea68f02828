# What Sidekiq loads.
require "sidekiq"

class Noop
  include Sidekiq::Worker
  def perform(*); end
end

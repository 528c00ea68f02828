# frozen_string_literal: true

# Loads the application, like config/environment.rb of Rails. Everything that performs its jobs
# requires this one file: `rake resque:work`, resqued's runner, a console.

# In your application this is a line of the Gemfile: gem "resqued-runner"
$LOAD_PATH.unshift(File.expand_path("../../runners/ruby/lib", __dir__))

begin
  require "resque"
  Resque.redis = ENV["REDIS_URL"] if ENV["REDIS_URL"]
rescue LoadError
  # The jobs are classes with a method perform. Resque adds their hooks, and a way to enqueue.
  warn "app.rb: without the resque gem hooks and plugins do not run"
end
require "resqued/long_job"

require_relative "lib/timed"
require_relative "app/models/invoice"
require_relative "app/models/card"
require_relative "app/jobs/send_invoice"
require_relative "app/jobs/charge_card"
require_relative "app/jobs/images/resize"
require_relative "app/jobs/close_month"

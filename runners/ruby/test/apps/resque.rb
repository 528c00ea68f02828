# frozen_string_literal: true

require "json"
require_relative "standin"

Resque::HOOKS.each do |name|
  Resque.public_send(name) { |given = nil| puts "#{name} #{given.class}" }
end

# A failure backend like Sentry's.
class Reporter < Resque::Failure::Base
  def save
    puts "REPORTS #{exception.class} #{worker} #{queue} #{payload['class']}"
    puts "queues of its worker: #{worker&.queues.inspect}"
    raise "the reporter is down" if payload["args"] == ["reporter down"]
  end
end

# Like resque-retry's backend: a failure of a job that runs again does not count.
class Suppressing < Resque::Failure::Multiple
  def save
    super unless payload["args"] == ["again"]
  end
end
Suppressing.classes = [Resque::Failure::Redis, Reporter]
Resque::Failure.backend = Suppressing

# Like resque-retry, checks in its hook whether the job runs again.
module Resque
  module Plugins
    module Retry
      def retry_criteria_valid?(*)
        true
      end

      def on_failure_retry(exception, *args)
        puts "retries: #{retry_criteria_valid?(exception, *args)}"
      end
    end
  end
end

class Retried
  extend Resque::Plugins::Retry

  def self.perform(file)
    File.write(file, "there")
    sleep
  end
end

class Hooked
  class << self
    def before_perform_one(*args)
      puts "before"
      raise Resque::Job::DontPerform, "not on mondays" if args == ["dont"]
      raise Resque::Job::DontPerform if args == ["dont at all"]
    end

    def around_perform_one(*args)
      puts "around"
      yield unless args == ["locked"]
      puts "around over"
    end

    def after_perform_one(*)
      puts "after"
    end

    def on_failure_one(exception, *)
      puts "on_failure #{exception.class}"
    end

    def perform(*args)
      puts "perform"
      case args.first
      when "fail", "again", "reporter down" then raise IOError, "no disk"
      when "requeue" then Resqued.requeue
      when "wait"
        File.write(args[1], "there")
        sleep
      when "writes" then Resque::Failure.create(exception: IOError.new, payload: { "args" => ["by itself"] })
      end
    end
  end
end

# Lists its hooks on each call.
class Listing
  class << self
    def hooks
      [@hook || "before_perform_first"]
    end

    def before_perform_first(*)
      puts "first"
    end

    def before_perform_second(*)
      puts "second"
    end

    def perform
      @hook = "before_perform_second"
    end
  end
end

class Connected
  def self.perform
    raise "not connected anew" unless Resque.redis.reconnected?
  end
end

# frozen_string_literal: true

require "json"
require_relative "standin"

# Behaves like resque-locket: locks the job of a fork, or keeps this process from performing it.
module Resque
  class << self
    def locket!
      @locket_enabled = true
      after_fork { |job| perform_nothing(job) if locket_enabled? }
    end

    def locket_enabled?
      @locket_enabled
    end

    private

    def perform_nothing(_job)
      Object.define_singleton_method(:before_perform_raise_exception) { |*| raise Resque::Job::DontPerform }
    end
  end
end
Resque.locket!

class Mail
  def self.perform(*); end
end

# frozen_string_literal: true

# A stand-in for the interface of Resque that runners and plugins use: its jobs with their
# hooks, its failure backends, its hooks of a worker's life. No queues, no Redis.
module Resque
  class TermException < SignalException; end
  class DirtyExit < RuntimeError; end

  HOOKS = [:before_first_fork, :before_fork, :after_fork, :before_pause, :after_pause, :worker_exit, :shutdown].freeze

  class << self
    HOOKS.each do |name|
      define_method(name) do |&block|
        @hooks ||= Hash.new { |hash, key| hash[key] = [] }
        block ? @hooks[name] << block : @hooks[name]
      end
    end

    def redis
      @redis ||= Connection.new
    end

    def decode(text)
      JSON.parse(text)
    end

    def enqueue(klass, *args)
      (@enqueued ||= []) << [klass.to_s, args]
    end
    attr_reader :enqueued
  end

  class Connection
    def reconnect
      @reconnected = Process.pid
    end

    def reconnected?
      @reconnected == Process.pid
    end
  end

  module Failure
    class Base
      attr_reader :exception, :worker, :queue, :payload

      def initialize(exception, worker, queue, payload)
        @exception = exception
        @worker = worker
        @queue = queue
        @payload = payload
      end
    end

    class Redis < Base
      def save
        puts "WRITES #{payload}"
      end
    end

    class Multiple < Base
      class << self
        attr_accessor :classes
      end

      def save
        self.class.classes.each { |klass| klass.new(exception, worker, queue, payload).save }
      end
    end

    class << self
      attr_writer :backend

      def backend
        @backend ||= Redis
      end

      def create(options)
        backend.new(*options.values_at(:exception, :worker, :queue, :payload)).save
      end
    end
  end

  class Worker
    def initialize(*)
      raise "the environment is not this worker's"
    end

    def to_s
      "wrong"
    end
  end

  class Job
    DontPerform = Class.new(StandardError)
    attr_accessor :worker
    attr_reader :queue, :payload

    def initialize(queue, payload)
      @queue = queue
      @payload = payload
    end

    def args
      @payload["args"]
    end

    def payload_class
      @payload["class"].split("::").inject(Object) { |in_it, name| in_it.const_get(name) }
    end

    def perform
      performed = false
      begin
        hooks("before_perform").each { |name| payload_class.send(name, *args) }
      rescue DontPerform
        return false
      end
      inner = lambda do
        payload_class.perform(*args)
        performed = true
      end
      hooks("around_perform").reverse.inject(inner) { |chain, name| -> { payload_class.send(name, *args) { chain.call } } }.call
      hooks("after_perform").each { |name| payload_class.send(name, *args) }
      performed
    rescue Object => e # rubocop:disable Lint/RescueException
      run_failure_hooks(e)
      raise
    end

    def fail(exception)
      run_failure_hooks(exception)
    ensure
      Failure.create(payload: payload, exception: exception, worker: worker, queue: queue)
    end

    def failure_hooks
      hooks("on_failure")
    end

    def run_failure_hooks(exception)
      failure_hooks.each { |name| payload_class.send(name, exception, *args) }
    end

    def hooks(prefix)
      Plugin.get_hook_names(payload_class, prefix)
    end
  end

  module Plugin
    extend self

    def job_methods(job)
      (@job_methods ||= {})[job] ||= job.methods.map(&:to_s)
    end

    def get_hook_names(job, prefix)
      puts "looks for hooks" if job.name == "Hooked" && prefix == "before_perform"
      methods = (job.respond_to?(:hooks) && job.hooks) || job_methods(job)
      methods.select { |name| name.start_with?(prefix) }.sort
    end
  end
end

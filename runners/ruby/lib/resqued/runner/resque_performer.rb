# frozen_string_literal: true

module Resqued
  module Runner
    # Performs jobs through Resque::Job#perform, so hooks and plugins built on them work as
    # under `rake resque:work`.
    #
    # The daemon writes `failed`. Failure backends are still called, but those that write to
    # Redis are silenced (see Quiet): others report to Sentry, for example, and resque-retry's
    # decides whether a failure counts.
    class ResquePerformer < Performer
      def initialize
        super
        @workers = {}
        require_failure_backends
        ::Resque::Job::DontPerform.prepend(Noted)
        ::Resque::Plugin.singleton_class.prepend(HookNames) if ::Resque.const_defined?(:Plugin) && ::Resque::Plugin.respond_to?(:job_methods)
        keep_killed(::Resque::Plugins::Retry) if defined?(::Resque::Plugins::Retry)
        [:Redis, :RedisMultiQueue].each do |name|
          ::Resque::Failure.const_get(name).prepend(Quiet) if ::Resque::Failure.const_defined?(name)
        end
      end

      # Runs the hooks of a name. Hooks before a fork may expect a job, so they get an empty
      # one.
      def hook(name, with = nil)
        return unless ::Resque.respond_to?(name)

        Array(::Resque.public_send(name)).each do |proc|
          case with
          when nil then proc.call
          when :job then proc.call(::Resque::Job.new("", "class" => "", "args" => []))
          when :worker then proc.call(worker(@last.to_s))
          end
        end
      end

      def failure_hooks?
        ::Resque::Job.method_defined?(:failure_hooks)
      end

      # Remembers the message of DontPerform, which Resque::Job#perform swallows.
      module Noted
        def initialize(*)
          super
          Thread.current.thread_variable_set(NOTED, self)
        end
      end

      # Keeps a failure backend from writing to `failed` while all backends are called for a
      # failure of a runner's job, and records that it would have written.
      module Quiet
        def save
          reached = Thread.current.thread_variable_get(REACHED)
          return super unless reached

          reached << self
          nil
        end
      end

      # Resque caches the methods of each class, but searches them for each kind of hook of each
      # job. This caches the names as well.
      module HookNames
        def get_hook_names(job, prefix)
          return super if job.respond_to?(:hooks)

          (((@resqued_names ||= {})[job] ||= {})[prefix] ||= super).dup
        end
      end

      NOTED = :resqued_dont_perform
      REACHED = :resqued_failure_reached

      private

      # Keeps resque-retry from running a job again that a person has killed. Before Ruby 3.0 a
      # prepended module would not reach classes that have the plugin already.
      def keep_killed(plugin)
        plugin.class_eval do
          alias_method :resqued_retry_criteria_valid?, :retry_criteria_valid?
          define_method(:retry_criteria_valid?) do |*args|
            !Thread.current.thread_variable_get(CURRENT)&.final? && resqued_retry_criteria_valid?(*args)
          end
        end
      end

      def perform(job)
        here = Thread.current
        here.thread_variable_set(NOTED, nil)
        resque_job = resque_job(job)
        Constants.find(job.payload["class"])
        return :done if resque_job.perform

        [:discard, why_not(here.thread_variable_get(NOTED))]
      end

      def resque_job(job)
        ::Resque::Job.new(job.queue, job.payload).tap { |made| made.worker = worker(job.worker.to_s, job) }
      end

      # In hooks that Resque's worker calls when its child has died, plugins release their locks
      # and requeue the job. Without hooks, none is called, and the job may run again.
      def death(job)
        dead = resque_job(job)
        return super if hooks_of(dead).empty?

        exception = ::Resque::DirtyExit.new(job.died)
        failed = told(job, "a failure hook, or the failure backend,") { dead.fail(exception) }
        failed ? Performer.failed(job, exception) : ended(job, [:discard, suppressed(exception)])
      end

      def hooks_of(resque_job)
        Constants.find(resque_job.payload["class"])
        resque_job.failure_hooks
      rescue StandardError, ScriptError # it cannot have been performed
        []
      end

      def why_not(dont_perform)
        return "an around_perform hook did not run it" unless dont_perform

        said = Text.message(dont_perform)
        said == dont_perform.class.to_s ? "a before_perform hook raised #{said}" : "#{dont_perform.class}: #{said}"
      end

      def failure(job, exception)
        return super if job.slice?

        line = super
        failed = told(job, "the failure backend") do
          ::Resque::Failure.create(exception: exception, worker: worker(job.worker.to_s, job),
                                   queue: job.queue, payload: payload_of(job))
        end
        failed ? line : ended(job, [:discard, suppressed(exception)])
      end

      def suppressed(exception)
        "#{::Resque::Failure.backend} suppressed #{Text.class_name(exception)}: #{Text.utf8(Text.message(exception), 300)}"
      end

      # Reports whether the failure counts after the failure backends were called in the block.
      def told(job, what)
        reached = []
        Thread.current.thread_variable_set(REACHED, reached)
        backend = ::Resque::Failure.backend
        yield
        reached.any? || !writes_to_redis?(backend)
      rescue Exception => e # rubocop:disable Lint/RescueException
        job.log("#{what} #{backend} raised #{Text.class_name(e)}: #{Text.message(e)}", level: :error)
        true
      ensure
        Thread.current.thread_variable_set(REACHED, nil)
      end

      def payload_of(job)
        job.payload
      rescue StandardError
        {}
      end

      def writes_to_redis?(backend)
        return true if backend.include?(Quiet)

        backend.respond_to?(:classes) && Array(backend.classes).any? { |one| writes_to_redis?(one) }
      end

      # Resque autoloads them, which would be too late to silence them.
      def require_failure_backends
        require "resque/failure/redis"
        require "resque/failure/redis_multi_queue"
      rescue LoadError
        nil
      end

      def worker(id, job = nil)
        @worker_class ||= ResqueWorker.build
        worker = (@workers[Thread.current] ||= {})[id] ||= @worker_class.new(id)
        @last = id if job
        $resque_worker = worker if job # rubocop:disable Style/GlobalVars -- where job-iteration looks for it
        worker.job = job && { "queue" => job.queue, "payload" => job.payload }
        worker
      end
    end

    # The job.worker of plugins and failure backends: a Resque::Worker that represents the
    # daemon's thread, and cannot register, fork or poll.
    module ResqueWorker
      def self.build
        parent = ::Resque::Worker if defined?(::Resque::Worker)
        Class.new(parent || Object) { include Answers }
      end

      # Overrides methods of Resque::Worker, whose initialize reads the environment.
      module Answers
        def initialize(id) # rubocop:disable Lint/MissingSuper
          @to_s = id
          @hostname, _, names = id.split(":", 3)
          # resqued's id repeats the last queue, and has ** for Ruby's *.
          @queues = names.to_s.sub(/:,[^,]*\z/, "").split(",").map { |queue| queue == "**" ? "*" : queue }
        end

        attr_reader :to_s, :hostname, :queues
        attr_writer :job

        def id
          @to_s
        end

        def pid
          Process.pid
        end

        def job(_reload = true)
          @job || {}
        end
        alias processing job

        def working?
          !@job.nil?
        end

        def idle?
          @job.nil?
        end

        def state
          @job ? :working : :idle
        end

        def paused?
          false
        end

        def shutdown?
          Resqued.leaving?
        end

        # A thread is idle as soon as its job is over, so a runner cannot exit by itself.
        def shutdown
          Worker.current&.log("a job has called shutdown of its worker, which has no effect: " \
                              "jobs_per_runner says when runners are replaced", "warn")
          true
        end
        alias shutdown! shutdown

        def fork_per_job?
          false
        end

        def reconnect
          ::Resque.redis.reconnect
        end

        def log(message)
          Resqued.log(message)
        end

        def log!(message)
          Resqued.log(message, level: :debug)
        end

        def inspect
          "#<Worker #{@to_s}>"
        end

        def ==(other)
          to_s == other.to_s
        end

        # These would write to keys of the daemon's worker, or end it.
        [:work, :register_worker, :unregister_worker, :prune_dead_workers, :done_working, :working_on,
         :start_heartbeat, :pause_processing, :unpause_processing, :startup].each do |name|
          define_method(name) do |*|
            raise NotImplementedError, "Worker##{name} is not for jobs: resqued has the worker #{self}"
          end
        end
      end
    end
  end
end

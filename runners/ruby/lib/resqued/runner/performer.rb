# frozen_string_literal: true

module Resqued
  module Runner
    # Performs jobs without Resque: Class.perform(*args). Returns the line that ends the job.
    class Performer
      def self.for_application
        Interruptions.note
        if defined?(::Resque::Job) && ::Resque::Job.method_defined?(:perform)
          Locket.leave_to_daemon
          Stopping.provide
          ResquePerformer.new
        else
          new
        end
      end

      def call(job)
        Thread.current.thread_variable_set(CURRENT, job)
        return death(job) if job.died

        outcome = catch(OUTCOME) do
          job.slice? ? LongJob::Run.new(job).perform(Constants.find(job.class_name)) : perform(job)
        end
        outcome.equal?(:done) ? done(job) : ended(job, outcome)
      rescue Exception => e # rubocop:disable Lint/RescueException
        begin
          failure(job, e)
        rescue Exception => another # rubocop:disable Lint/RescueException
          Performer.failed(job, another)
        end
      ensure
        Thread.current.thread_variable_set(CURRENT, nil)
      end

      def self.failed(job, exception)
        JSON.generate(
          failed: job.number, exception: Text.class_name(exception),
          message: Text.message(exception), backtrace: Text.backtrace(exception)
        )
      end

      # Hooks of a runner's life exist only with Resque.
      def hook(_name, *_args); end

      # Whether classes may have failure hooks.
      def failure_hooks?
        false
      end

      private

      def perform(job)
        Constants.find(job.payload["class"]).perform(*job.args)
        :done
      end

      # The line for a job whose process has died. done: no hook was called.
      def death(job)
        "{\"done\":#{job.number}}"
      end

      def done(job)
        job.interrupted ? "{\"done\":#{job.number},\"interrupted\":true}" : "{\"done\":#{job.number}}"
      end

      def failure(job, exception)
        Performer.failed(job, exception)
      end

      def ended(job, outcome)
        verb, detail = outcome
        case verb
        when :requeue then JSON.generate(requeue: job.number, after: detail)
        when :limit_hit then JSON.generate(limit_hit: job.number, limit: Text.utf8(detail.first, 1000), after: detail.last)
        when :discard then JSON.generate(discard: job.number, why: Text.utf8(detail, 1000))
        end
      end
    end

    # Interrupts continuations of Active Job at their next checkpoint.
    module Stopping
      # Active Job may be loaded later, and each class may have its own adapter.
      def self.provide
        return unless defined?(::ActiveSupport) && ::ActiveSupport.respond_to?(:on_load)

        ::ActiveSupport.on_load(:active_job_continuable) { prepend Checkpoint }
      end

      # Prepended to ActiveJob::Continuable.
      module Checkpoint
        def checkpoint!
          Resqued.leaving? ? interrupt!(reason: :stopping) : super
        end
      end
    end

    # Marks jobs that have enqueued the rest of their work, which continuations of Active Job
    # and job-iteration announce.
    module Interruptions
      EVENTS = ["interrupt.active_job", "interrupted.iteration"].freeze

      def self.note
        return unless defined?(::ActiveSupport::Notifications)

        EVENTS.each { |event| ::ActiveSupport::Notifications.subscribe(event) { Resqued.interrupted! } }
      end
    end

    # resque-locket takes a job's lock in after_fork, for the job of that fork. A runner is
    # forked before it has a job: its second job would find the lock of the first, count as
    # locked, and give all classes a hook that performs nothing. The daemon has these locks.
    module Locket
      module_function

      def leave_to_daemon
        return unless ::Resque.respond_to?(:locket_enabled?) && ::Resque.locket_enabled?

        ::Resque.instance_variable_set(:@locket_enabled, false)
        $stderr.puts "resqued-runner: resque-locket is off in runners; resqued has its locks, see locketed_queues and job_lock_key"
      end
    end
  end
end

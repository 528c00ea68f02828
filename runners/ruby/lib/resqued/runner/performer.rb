# frozen_string_literal: true

module Resqued
  module Runner
    # Performs jobs without Resque: Class.perform(*args). What it returns is the line that
    # ends the job.
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

      # The line that says that the job has failed.
      def self.failed(job, exception)
        JSON.generate(
          failed: job.number, exception: Text.class_name(exception),
          message: Text.message(exception), backtrace: Text.backtrace(exception)
        )
      end

      # Hooks of a runner's life, which only Resque has.
      def hook(_name, *_args); end

      # Whether classes may have hooks that are told of a failure.
      def failure_hooks?
        false
      end

      private

      def perform(job)
        Constants.find(job.payload["class"]).perform(*job.args)
        :done
      end

      # The line for a job whose process has died. done: nothing was told of it.
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
        when :discard then JSON.generate(discard: job.number, why: Text.utf8(detail, 1000))
        end
      end
    end

    # Interrupts continuations of Active Job at their next checkpoint.
    module Stopping
      # Active Job may be loaded later, and each class may have an adapter of its own.
      def self.provide
        return unless defined?(::ActiveSupport) && ::ActiveSupport.respond_to?(:on_load)

        ::ActiveSupport.on_load(:active_job_continuable) { prepend Checkpoint }
      end

      # In front of ActiveJob::Continuable.
      module Checkpoint
        def checkpoint!
          Resqued.leaving? ? interrupt!(reason: :stopping) : super
        end
      end
    end

    # Notes which jobs have enqueued the rest of their work: continuations of Active Job and
    # job-iteration announce that.
    module Interruptions
      EVENTS = ["interrupt.active_job", "interrupted.iteration"].freeze

      def self.note
        return unless defined?(::ActiveSupport::Notifications)

        EVENTS.each { |event| ::ActiveSupport::Notifications.subscribe(event) { Resqued.interrupted! } }
      end
    end

    # resque-locket takes a job's lock in after_fork, for the job of that fork. A runner is forked
    # before there is a job: the second one would find the lock of the first, take its own job for
    # a locked one, and give all classes a hook that performs nothing. The daemon has these locks.
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

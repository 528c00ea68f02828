# frozen_string_literal: true

module Resqued
  module Runner
    # One job, as resqued describes it, and what it can tell resqued while it runs.
    class Job
      attr_reader :number, :queue
      # Kept by Jobs: the thread that performs it; why it must stop, if so; whether it has
      # ended.
      attr_accessor :thread, :cancelled, :over
      # Whether it should make room: its worker process exits, or it has run for its max_run.
      attr_accessor :leaving
      # Whether it has enqueued the rest of its work.
      attr_accessor :interrupted
      # Set if a person has killed it.
      attr_writer :final
      # For a slice of a long job: how many reports are saved, and whether the slice is over.
      attr_accessor :saved, :slice_over
      # Whether it got the lock that it asked for; nil = no reply yet.
      attr_accessor :locked

      def initialize(described, jobs)
        @described = described
        @jobs = jobs
        @number = described["number"]
        @queue = described["queue"]
      end

      def id
        @described["id"]
      end

      def class_name
        @described["class"]
      end

      def attempt
        @described["attempt"]
      end

      def max_attempts
        @described["max_attempts"]
      end

      def enqueued_at
        @described["enqueued_at"]
      end

      def deadline
        @described["deadline"]
      end

      def deaths
        @described["deaths"]
      end

      def worker
        @described["worker"]
      end

      def lock_key
        @described["lock_key"]
      end

      def fence
        @described["fence"]
      end

      # How the process that performed it died; nil = it is to be performed.
      def died
        @described["how"]
      end

      def final?
        (@final || @described["final"]) == true
      end

      def slice?
        @described.key?("run")
      end

      def [](key)
        @described[key]
      end

      def payload
        @payload ||= begin
          payload = @described["payload"] || decoded(@described["payload_base64"])
          raise TypeError, "the payload of a job has to be an object, and is #{payload.class}" unless payload.is_a?(Hash)

          payload
        end
      end

      def args
        payload["args"] || []
      end

      def progress(done, total = nil, step: nil, message: nil)
        told = { job: number, done: done, total: total, step: step, message: message&.to_s }.compact
        @jobs.tell(progress: told)
      end

      def refresh_lock
        @jobs.tell(refresh_lock: number)
      end

      def log(message, level: :info)
        @jobs.tell(log: { job: number, level: level.to_s, message: Text.utf8(message, 8 * 1024) })
      end

      # For a slice: reports a line, as commands do on descriptor 3.
      def report(line)
        @jobs.tell(report: { job: number, line: line })
      end

      # For a slice: tries to take a lock that all long jobs share, and returns whether it
      # succeeded.
      def lock(name)
        self.locked = nil
        report(lock: name)
        @jobs.wait_locked(self)
      end

      # For a slice: waits until count reports with a state are saved.
      def wait_saved(count)
        @jobs.wait_saved(self, count)
      end

      private

      def decoded(base64)
        bytes = base64.to_s.unpack1("m")
        return ::Resque.decode(bytes) if defined?(::Resque) && ::Resque.respond_to?(:decode)

        JSON.parse(bytes.force_encoding(Encoding::UTF_8))
      end
    end
  end
end

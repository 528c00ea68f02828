# frozen_string_literal: true

module Resqued
  module LongJob
    # A recurring long job: runs of a class for each of many subjects, spread evenly over an
    # interval. Each tick is a job of Resqued::LongJob::Tick, which a schedule enqueues every
    # few minutes. resqued computes which runs are due.
    class Recurring
      attr_reader :name

      # interval is in seconds. each is a callable that returns the first arguments of the runs,
      # and each_with_interval one that returns pairs of interval and argument. args follow that
      # argument. If the callable if returns false, the tick does nothing.
      def initialize(name, interval: nil, each: nil, each_with_interval: nil, if: nil, args: nil, max_backlog: nil)
        @name = name.to_s
        @interval = interval
        @each = each
        @each_with_interval = each_with_interval
        @if = binding.local_variable_get(:if)
        @args = args.is_a?(Array) ? args : [args].compact
        @max_backlog = max_backlog
        check
      end

      def tick(every)
        return if @if && !@if.call

        line = ["longjobs", "recurring", "tick", @name, "--interval", "#{(@interval || 86_400).to_i}s", "--every", "#{every.to_i}s", "--subjects"]
        line.push("--backlog", @max_backlog.to_i.to_s) if @max_backlog
        queue = Object.const_get(@name).instance_variable_get(:@queue)
        line.push("--queue", queue.to_s) if queue
        Command.call(*line, input: subjects.map { |subject| JSON.generate(subject) }.join("\n"))
      end

      private

      def check
        callables = [@each, @each_with_interval].compact
        raise ArgumentError, "#{@name}: give either each: or each_with_interval:" if callables.size > 1
        unless callables.all? { |one| one.respond_to?(:call) }
          raise ArgumentError, "#{@name}: each: has to be something to call, which returns the first arguments of the runs"
        end
        raise ArgumentError, "#{@name}: interval: is missing" unless @interval || @each_with_interval
      end

      def subjects
        return @each_with_interval.call.map { |interval, id| { args: [id, *@args], interval_s: interval.to_f } } if @each_with_interval
        return @each.call.map { |id| { args: [id, *@args] } } if @each

        [{ args: @args }]
      end
    end

    # The job of a schedule that performs the ticks of all recurring long jobs, or of the named
    # one.
    class Tick
      @queue = :medium

      class << self
        # The interval of the schedule, in seconds.
        attr_accessor :every

        def perform(name = nil)
          failed = LongJob.jobs.select { |job| name.nil? || job.name == name }.map { |job| attempt(job) }.compact
          raise failed.first if failed.any? # after each has had its turn
        end

        private

        def attempt(job)
          job.tick(every)
          nil
        rescue StandardError => e
          e
        end
      end
      self.every = 300
    end

    class << self
      # Declares a recurring long job; see Recurring.
      def job(name, **options)
        jobs << Recurring.new(name, **options)
      end

      def jobs
        @jobs ||= []
      end
    end

    # For classes written as `class Invoices < LongJob`, as in the Files.com fork of Resque:
    # `LongJob = Resqued::LongJob::Base`.
    class Base
      extend LongJob

      class << self
        def inherited(job)
          super
          queue = @queue
          job.instance_eval { @queue ||= queue }
        end

        def job(name, **options)
          LongJob.job(name, **options)
        end

        # LongJob.enqueue(Invoices, "north") is Invoices.enqueue("north").
        %i[enqueue enqueue_unique enqueue_debounce].each do |form|
          define_method(form) do |*args|
            return super(*args) unless equal?(Base)

            job = args.shift
            job = Object.const_get(job) unless job.respond_to?(form)
            job.public_send(form, *args)
          end
        end
      end
    end
  end
end

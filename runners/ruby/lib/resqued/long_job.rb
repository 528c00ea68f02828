# frozen_string_literal: true

require "digest"
require "json"

module Resqued
  # Long jobs: extend a class with this module, and set `long_job: true` for it in the
  # configuration.
  #
  #   class Invoices
  #     extend Resqued::LongJob
  #     @queue = :medium
  #
  #     def self.long_job_perform(run, shop)
  #       run.work_once(:customers) { run.state(:customers, customers_of(shop)) }
  #       run.work_each(:send, run.state(:customers)) { |customer| send_to(customer) }
  #     end
  #   end
  #
  # The method runs from its beginning in each slice and skips what is done.
  module LongJob
    # The list or the state of a run is too large to be kept.
    class TooLarge < StandardError; end
    # A producer could not reach the daemon's command line.
    class EnqueueError < StandardError; end

    class << self
      # The maximum number of units of a slice, for tests; nil = no limit.
      attr_accessor :max_units

      # The run whose slice this thread performs, or nil.
      def current
        Thread.current.thread_variable_get(:resqued_long_run)
      end
    end

    # Enqueues a new run and returns its UUID. An older run with the same arguments that waits
    # or runs is superseded: it saves nothing more and does not continue. Like enqueue_debounce
    # it needs resqued's command line (RESQUED_COMMAND, or resqued on the PATH) with its
    # configuration, because this must be one step in Redis.
    def enqueue(*args)
      start_long_job(args, "--always")
    end

    # Enqueues a run, unless one with the same arguments waits or runs. With Resque it enqueues
    # an ordinary job of the class, which a worker process makes a run.
    def enqueue_unique(*args)
      return ::Resque.enqueue(self, *args) if defined?(::Resque) && ::Resque.respond_to?(:enqueue) && !respond_to?(:long_job_tenant)

      start_long_job(args)
    end

    # Like enqueue_unique, but if a run has begun, one more follows it.
    def enqueue_debounce(*args)
      start_long_job(args, "--debounce")
    end

    # An ordinary job: the class is not configured as a long job.
    def perform(*)
      raise NotImplementedError, "#{self} works in slices: say `long_job: true` at its handler in resqued's configuration"
    end

    private

    # A class may define long_job_tenant, which gets the arguments of a run and returns its
    # tenant.
    def start_long_job(args, *flags)
      flags += ["--queue", @queue.to_s] if @queue
      flags += ["--tenant", long_job_tenant(*args).to_s] if respond_to?(:long_job_tenant)
      Command.call("longjobs", "start", name, *flags, "--json", "-", "-o", "name", input: JSON.generate(args)).strip
    end

    module Command
      module_function

      def call(*words, input: "")
        line = [ENV.fetch("RESQUED_COMMAND", "resqued"), *words]
        output = IO.popen(line, "r+") do |io|
          io.write(input)
          io.close_write
          io.read
        end
        return output if $?.success?

        raise EnqueueError, "#{line.join(' ')}: exit code #{$?.exitstatus.inspect}"
      rescue SystemCallError => e
        raise EnqueueError, "#{line.join(' ')}: #{e.message}"
      end
    end

    # One slice of a run.
    class Run
      # Thrown when the slice is over.
      OVER = :resqued_slice_over
      # Prefix of the steps' own keys in the state.
      STEP = "~"
      # The done items of work_each are kept in blocks, so that each save is small.
      BLOCK = 100
      ITEMS = 20_000
      # Seconds between two reports that only count units.
      REPORT_EVERY = 1

      def initialize(job)
        @job = job
        @state = (job["state"] || {}).dup
        @changes = {}
        @path = []
        @used = {} # the done steps of the current unit
        @units = 0
        @worked = @told = 0
        @told_at = now
        @reports = 0
        @locks = []
        @blocks = []
      end

      attr_reader :job

      # The id of the run; the number of the slice; a number that grows with each slice.
      def uuid
        @job["run"]
      end

      def slice
        @job["slice"]
      end

      def fence
        @job.fence
      end

      # The text that is shown for the run.
      def message
        @message || @job["message"]
      end

      def message=(text)
        @message = text.to_s
        @job.report(progress: { message: @message })
      end

      # Performs the slice. Returns :done if it ends well, even if the run continues.
      def perform(klass)
        args = Array(@job["args"])
        finished = false
        Thread.current.thread_variable_set(:resqued_long_run, self)
        catch(OVER) do
          klass.respond_to?(:long_job_perform) ? klass.long_job_perform(self, *args) : klass.perform(*args)
          finished = true
        end
        @blocks.each { |block| block[:call].call }
        report(finished ? { done: true } : { yield: true })
        :done
      ensure
        Thread.current.thread_variable_set(:resqued_long_run, nil)
      end

      NONE = Object.new.freeze
      private_constant :NONE

      # state(key) reads, state(key, value) sets, state(key) { value } sets a key that was never
      # set. A value is what its JSON says, even in the slice that sets it.
      def state(key, value = NONE)
        key = own(key)
        return set(key, Values.plain(value)) unless value.equal?(NONE)
        return get(key) if !block_given? || has?(key)

        set(key, Values.plain(yield))
      end

      def clear_state(key)
        set(own(key), nil)
        nil
      end

      # A unit of work, before which the slice may end. The program must know itself what is
      # done.
      def work_unit
        begin_unit
        kept = @changes.dup
        reports = @reports
        units = @units
        begin
          result = block_given? ? yield : nil
        rescue Exception # rubocop:disable Lint/RescueException -- a unit that fails has set nothing
          @changes = reports == @reports ? kept : {}
          raise
        end
        finish_unit(units)
        result
      end

      # A unit under a lock that all long jobs share, in any language. While another run has the
      # lock, each try is a unit, so the slice may end.
      def critical_work_unit(lock, &block)
        lock = lock.to_s
        return work_unit(&block) if @locks.include?(lock)

        until take_lock(lock)
          @units += 1
          rest
        end
        begin
          @locks << lock
          work_unit(&block)
        ensure
          @locks.delete(lock)
          report(unlock: lock) # changes of the unit are saved first
        end
      end

      # Calls the block at the end of each slice, before it is saved.
      def work_each_run(&block)
        @blocks << { call: block }
      end

      # Calls the block after every n units of a slice, and at its end.
      def work_every_n_chunks(n, &block)
        @blocks << { n: n, call: block }
      end

      # A unit that runs once per run.
      def work_once(key)
        step = step(key)
        return if done?(step)

        unit(step) { yield if block_given? }
        finish_step(step)
        nil
      end

      # A unit for each item of the list that this run has not done yet. Records are identified
      # by class and id, other items by their JSON, so the list may change between slices. Lists
      # without a key are numbered in the order of their calls.
      def work_each(key, values = NONE)
        key, values = free_key("each"), key if values.equal?(NONE)
        step = step(key)
        return if done?(step)

        list = Values.of(values)
        raise TooLarge, "work_each(#{key.inspect}) has #{list.size} items and keeps at most #{ITEMS}; " \
                        "work parts of a sorted list, with the last key in the state" if list.size > ITEMS
        done = done_items(step)
        digests = list.identities.map { |identity| digest(identity) }
        rest = digests.each_index.reject { |index| done[digests[index]].positive? && (done[digests[index]] -= 1) }
        list.at(rest) do |index, value|
          unit("#{step}/#{digests[index]}") { yield(value) }
          finish_item(step, digests[index])
        end
        finish_step(step)
        nil
      end

      # A unit for each page. The block gets nil for the first page, then what it returned for
      # the previous one. It returns nil for the last page.
      def work_pages(key)
        step = step(key)
        return if done?(step)

        place = "#{step}/~place"
        while (following = unit(step) { yield(get(place)) })
          forget("#{step}/")
          set(place, Values.plain(following))
          save
        end
        finish_step(step)
        nil
      end

      # A key for a step without one. Steps are numbered in the order of their calls.
      def free_key(kind)
        number = 1
        number += 1 while @used[name("#{kind} #{number}")]
        "#{kind} #{number}"
      end

      # A unit for each key of a hash, which gets the value. Nested calls process a tree in the
      # order of its paths, and continue where they were.
      def work_recursive_sorted_hash(key, objects)
        raise ArgumentError, "#{key.inspect}: a Hash is needed, not #{objects.class}" unless objects.is_a?(Hash)

        work_each(key, objects.keys) { |path| yield(objects[path]) }
      end

      # Shows people how far the run is.
      def progress(done, total = nil, step: nil, message: nil)
        @job.report(progress: { done: done, total: total, step: step, message: message }.compact)
      end

      private

      # At least one unit runs in each slice, however long it takes to get there.
      def begin_unit
        throw OVER if @units.positive? && (@job.slice_over || LongJob.max_units && @worked >= LongJob.max_units)
      end

      # Of nested units only the innermost count for callbacks.
      def finish_unit(before)
        innermost = @units == before
        @worked += 1 if innermost
        # Report early, because a slice without a report gets more time for its first unit.
        @job.report(with_units({})) if @units.zero? || now - @told_at >= REPORT_EVERY
        @units += 1
        return unless innermost

        @blocks.each { |block| block[:call].call if block[:n] && (@worked % block[:n]).zero? }
      end

      # The line with the number of units since the last one. A resqued that does not send the
      # earlier number does not know that key.
      def with_units(line)
        return line unless @job["units"]

        units = @worked - @told
        @told = @worked
        @told_at = now
        line.merge(units: units)
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end

      def take_lock(lock)
        begin_unit
        report({}) unless @changes.empty?
        @job.lock(lock)
      end

      # Waits before the next try, at most until the slice is over. The time is random to spread
      # the tries.
      def rest
        steps = rand(10..30)
        steps.times { sleep 0.05 unless @job.slice_over }
      end

      def unit(step, &block)
        used = @used
        @used = {}
        @path.push(step)
        work_unit(&block)
      ensure
        @path.pop
        @used = used
      end

      def step(key)
        step = name(key)
        # The step would be skipped, because another one has done it.
        raise ArgumentError, "step #{key.inspect} was used before: each step needs a key of its own" if @used[step]

        step
      end

      def name(key)
        "#{@path.empty? ? STEP : "#{@path.last}/"}#{key}"
      end

      def done?(step)
        @used[step] = true if get(step)
      end


      def own(key)
        key = key.to_s
        raise ArgumentError, "#{key.inspect}: keys that begin with #{STEP} are those of the steps" if key.start_with?(STEP)

        key
      end

      # Marks the step done and forgets the steps within it, in one save.
      def finish_step(step)
        forget("#{step}/")
        set(step, true)
        @used[step] = true
        save
      end

      def finish_item(step, digest)
        forget("#{step}/#{digest}/")
        number = 0
        number += 1 while (get(block(step, number)) || []).size >= BLOCK
        set(block(step, number), (get(block(step, number)) || []) + [digest])
        save
      end

      def block(step, number)
        "#{step}/~#{number}"
      end

      def done_items(step)
        done = Hash.new(0)
        number = 0
        while (digests = get(block(step, number)))
          digests.each { |digest| done[digest] += 1 }
          number += 1
        end
        done
      end

      def digest(identity)
        [Digest::SHA256.digest(JSON.generate(identity))[0, 6]].pack("m0")
      end

      def forget(prefix)
        (@state.keys + @changes.keys).uniq.each { |key| set(key, nil) if key.start_with?(prefix) && has?(key) }
      end

      def has?(key)
        @changes.key?(key) ? !@changes[key].nil? : @state.key?(key)
      end

      def get(key)
        @changes.fetch(key) { @state[key] }
      end

      def set(key, value)
        @changes[key] = value
      end

      # Saves the changes, and waits until they are saved: the next unit begins after that.
      def save
        return if @changes.empty?

        report({})
        @job.wait_saved(@reports)
      end

      def report(line)
        line = with_units(line)
        unless @changes.empty?
          line = { state: @changes }.merge(line)
          @reports += 1
        end
        @job.report(line)
        @state.merge!(@changes)
        @state.delete_if { |_, value| value.nil? }
        @changes = {}
      end
    end
  end
end

require_relative "long_job/values"
require_relative "long_job/recurring"

# frozen_string_literal: true

require "set"

module Resqued
  module Runner
    # The jobs of a runner, and the lines from its socket. One waiting thread at a time reads.
    # So a runner of one job at a time reads in the thread that performs it, and short jobs need
    # no other thread. Once all threads have performed their jobs for a while (TICK), a watcher
    # reads, to see `cancel` and the end of the socket.
    class Jobs
      TICK = 0.05
      # The longest line that resqued reads.
      LONGEST = 8 * 1024 * 1024

      attr_accessor :on_pause, :on_resume, :on_leaving, :on_long, :on_full

      def initialize(channel, term)
        @channel = channel
        @term = term # the class of the exception that a cancelled job gets
        @mutex = Mutex.new
        @changed = ConditionVariable.new
        @parked = ConditionVariable.new
        @waiting_jobs = []
        @running = {}
        @later = []
        @idle = 0
        @waiting = 0
        @taken = 0
        @reading = @leaving = @watcher_parked = @woken = false
      end

      # Waits for a job; nil when the runner is to exit. The caller performs it in its own
      # thread, calls over, answers, and passes the job to its next call.
      def take(answered = nil)
        @mutex.synchronize do
          @running.delete(answered.number) if answered
          @idle += 1
          await { @waiting_jobs.first || @leaving }
          @idle -= 1
          job = @waiting_jobs.shift
          unless job
            hand_over
            return nil
          end
          @taken += 1
          job.thread = Thread.current
          interrupt(job) if job.cancelled # before a thread had it
          wake_watcher if @watcher_parked
          hand_over
          job
        end
      end

      # The job is over: no exception can be raised in its thread from now on.
      def over(job)
        @mutex.synchronize do
          job.over = true
          @leaving = true if job.cancelled # the interrupted code may have left anything behind
        end
      end

      # The thread has ended in its job.
      def ended(thread)
        @mutex.synchronize { @running.delete_if { |_, job| job.over && job.thread.equal?(thread) } }
      end

      # Whether the runner is to exit and has answered all its jobs.
      def left?
        @mutex.synchronize { @leaving && @running.empty? }
      end

      def wait_saved(job, count)
        @mutex.synchronize do
          await { job.saved >= count }
        ensure
          hand_over
        end
      end

      def wait_locked(job)
        @mutex.synchronize do
          await { !job.locked.nil? }
        ensure
          hand_over
        end
        job.locked
      end

      def leave
        @mutex.synchronize do
          @leaving = true
          @changed.broadcast
        end
      end

      def leaving?
        @leaving
      end

      # Whether no thread is free to take a job or to read.
      def short_of_threads?
        @mutex.synchronize { @idle.zero? }
      end

      # If resqued would not read the line, raises and writes nothing.
      def tell(message)
        line = JSON.generate(message)
        if line.bytesize >= LONGEST
          raise ArgumentError, "a line of #{line.bytesize} bytes is longer than resqued reads (#{LONGEST})"
        end
        @channel.send(line)
      end

      # Reads while all threads perform jobs. It never returns and has a thread of its own.
      # While jobs are short it only compares a number from time to time: waiting for a job or
      # the mutex would take processor time from the performing threads.
      def watch
        loop do
          seen = @taken
          sleep TICK
          next unless @taken == seen

          busy = @mutex.synchronize { @taken == seen && @idle.zero? && !@reading && @running.any? }
          busy ? read_until(seen) : park
        end
      end

      private

      # Reads until another job was taken or a thread waits for one.
      def read_until(taken)
        on_long&.call(@running.values)
        @mutex.synchronize do
          await { @taken != taken || @idle.positive? }
          hand_over
        end
        on_long&.call([])
      end

      # Sleeps while there is nothing to watch. A thread that takes a job wakes it. The job may
      # be over by then.
      def park
        @mutex.synchronize do
          next unless @running.empty?

          @watcher_parked = true
          @parked.wait(@mutex)
          @watcher_parked = false
        end
      end

      def wake_watcher
        @watcher_parked = false
        @parked.signal
      end

      # Waits until the block is true, and reads if no other thread does. The mutex must be
      # held.
      def await
        until yield
          if @reading
            @waiting += 1
            begin
              @changed.wait(@mutex)
            ensure
              @waiting -= 1
              @woken = false
            end
          else
            read
            @changed.broadcast if @waiting.positive? && !yield
          end
        end
      end

      # A thread that stops reading wakes another one to read. One is enough until it runs: with
      # short jobs that is when the first one waits again.
      def hand_over
        return if @reading || @woken || @waiting.zero?

        @woken = true
        @changed.signal
      end

      def read
        @reading = true
        message = error = nil
        @mutex.unlock
        begin
          message = @channel.receive
        rescue EOFError
          gone
        rescue Channel::BadLine => e
          error = e
        ensure
          @mutex.lock
          @reading = false
        end
        error ? refuse(error) : dispatch(message)
        later
      end

      # The worker process is gone, and its jobs will run elsewhere: the runner must not
      # continue, whatever it is doing.
      def gone
        Process.exit!(@running.empty? ? 0 : 1)
      end

      def refuse(error)
        if error.number
          failed = Performer.failed(Job.new({ "number" => error.number }, self), error)
          @later << -> { @channel.send(failed) }
        else
          @later << -> { tell(error: error.message) }
        end
      end

      def dispatch(message)
        if (described = message["job"] || message["died"])
          unless described.is_a?(Hash) && described["number"].is_a?(Integer)
            @later << -> { tell(error: "a job without a number") }
            return
          end
          if @leaving # it crossed the end of a cancelled job; nothing of it has run
            @later << -> { tell(requeue: described["number"], after: 0) }
            return
          end
          job = Job.new(described, self)
          job.saved = 0
          @running[job.number] = job
          @waiting_jobs << job
          on_full&.call if @waiting_jobs.size > @idle
        elsif (number = message["cancel"])
          cancel(@running[number], message)
        elsif (reply = message["reply"])
          job = @running[reply["job"]] if reply.is_a?(Hash)
          line = reply["line"] if job && reply["line"].is_a?(Hash)
          job.saved = [job.saved, line["saved"]].max if line && line["saved"].is_a?(Integer)
          job.locked = line["held"] if line && line.key?("lock")
        elsif (number = message["leaving"])
          job = @running[number]
          job.leaving = true if job
          @later << -> { on_leaving&.call } if job
        elsif (number = message["slice_over"])
          @running[number]&.slice_over = true
        elsif message["leave"]
          @leaving = true
        elsif message["pause"]
          @later << -> { on_pause&.call }
        elsif message["resume"]
          @later << -> { on_resume&.call }
        else
          @later << -> { tell(error: "kind of line not known: #{message.keys.join(', ')[0, 200]}") }
        end
      end

      # Writing, and running the application's code, must not happen with the mutex held.
      def later
        until @later.empty?
          what = @later.shift
          @mutex.unlock
          begin
            what.call
          ensure
            @mutex.lock
          end
        end
      end

      # If the job has ended, its answer has crossed the cancel.
      def cancel(job, message)
        return if job.nil? || job.cancelled || job.over

        job.cancelled = message["why"] || "killed"
        job.final = message["final"]
        interrupt(job) if job.thread
      end

      def interrupt(job)
        job.thread.raise(@term.new("SIGTERM"))
      end
    end
  end
end

# frozen_string_literal: true

module Resqued
  module Runner
    # A runner: says hello, performs jobs until it is to exit, and exits.
    class Worker
      class << self
        # The runner that this process is, or nil.
        attr_accessor :current
      end

      def initialize(channel, name:, app:, concurrency:, performer:, forked: false)
        @channel = channel
        @name = name
        @app = app
        @concurrency = [concurrency.to_i, 1].max
        @forked = forked
        @performer = performer
        @term = Runner.term_exception
        @jobs = Jobs.new(channel, @term)
        @threads = []
        @starting = Mutex.new
        @surroundings = Surroundings.new
      end

      attr_reader :performer

      def run
        Worker.current = self
        Runner.guard_daemon
        die_of_term
        @jobs.on_pause = -> { hook(:before_pause) }
        @jobs.on_resume = -> { hook(:after_pause) }
        @jobs.on_leaving = -> { shut_down }
        @jobs.on_long = method(:title)
        title([])
        @channel.for_threads if @concurrency > 1
        @channel.send(JSON.generate(hello: hello))
        @watcher = start_watcher
        @concurrency == 1 ? work : work_in_threads
        finish
      end

      # Writes to the daemon's log as the runner.
      def log(message, level)
        @jobs.tell(log: { level: level, message: message })
      end

      def self.hello(app, concurrency, more = {})
        { protocol: PROTOCOL, concurrency: concurrency, language: "ruby #{RUBY_VERSION}",
          app: app, classes: nil }.merge(more)
      end

      private

      # By default TERM raises an exception in the main thread, which a job may take for its
      # failure. TERM must end the process.
      def die_of_term
        application = trap("TERM", "SYSTEM_DEFAULT")
        trap("TERM", application) unless application.nil? || application == "DEFAULT"
      end

      def hello
        Worker.hello(@app, @concurrency, { failure_hooks: @performer.failure_hooks? || nil, leaving: true }.compact)
      end

      # Takes jobs and performs them. TermException only interrupts the code of a job.
      def work
        Thread.handle_interrupt(@term => :never) do
          job = nil
          while (job = @jobs.take(job))
            started
            perform(job)
          end
        end
      end

      def perform(job)
        answer = nil
        begin
          Thread.handle_interrupt(@term => :immediate) { answer = @performer.call(job) }
        rescue Exception => e # rubocop:disable Lint/RescueException -- a late cancel
          answer = Performer.failed(job, e)
        end
      ensure
        leave_forked_child(answer) unless @channel.own?
        answer ||= Performer.failed(job, ThreadError.new("the job has ended its thread (Thread.exit)"))
        @jobs.over(job)
        absorb if job.cancelled
        @surroundings.restore if @concurrency == 1
        @channel.write(answer)
      end

      # Takes a cancel that was raised after the job had ended: it must not hit the next one.
      def absorb
        Thread.handle_interrupt(@term => :immediate) { Thread.pass }
      rescue @term
        nil
      end

      # A job that forks without a block may return here twice. The child is not a runner.
      def leave_forked_child(answer)
        $stderr.puts "resqued-runner: a process that a job forked came to the job's end: #{answer}" unless answer.to_s.start_with?('{"done"')
        Process.exit!(0)
      end

      def work_in_threads
        done = Queue.new
        @jobs.on_full = -> { start_thread(done) }
        start_thread(done)
        # An idle thread need not end; it may be reading.
        done.pop until @jobs.left?
      end

      def start_thread(done)
        @starting.synchronize do
          @threads.select!(&:alive?)
          return if @threads.size >= @concurrency

          @threads << Thread.new do
            Thread.current.name = "resqued job #{@threads.size + 1}"
            Thread.current.report_on_exception = false
            begin
              work
            ensure
              # Thread.exit in a job ends the thread, not the runner.
              @jobs.ended(Thread.current)
              @jobs.leaving? ? done << true : start_again(done)
            end
          end
        end
      end

      def start_again(done)
        @threads.delete(Thread.current)
        start_thread(done)
      end

      # Called by each thread that has taken a job: another thread must read.
      def started
        @watcher = start_watcher unless @watcher.alive?
        @jobs.on_full&.call if @concurrency > 1 && @threads.size < @concurrency && @jobs.short_of_threads?
      end

      def start_watcher
        Thread.new do
          Thread.current.name = "resqued watcher"
          Thread.current.report_on_exception = false
          @jobs.watch
        end
      end

      # Shows long-running jobs in the list of processes. For short jobs it would only cost
      # time.
      def title(jobs)
        what = jobs.map { |job| job.class_name.to_s }.uniq.join(", ")
        Process.setproctitle("resqued-runner #{@name}: #{what.empty? ? 'ready' : Text.utf8(what, 200)}")
      end

      def hook(name)
        @performer.hook(name, :worker)
      rescue Exception => e # rubocop:disable Lint/RescueException
        log("hook #{name}: #{Text.class_name(e)}: #{Text.message(e)}", "error")
      end

      # Children of Resque run at_exit blocks only on request: a forked runner's blocks were
      # registered in the template, and concern that.
      def finish
        shut_down
        hook_quietly(:worker_exit)
        $stdout.flush
        $stderr.flush
        Process.exit!(0) if @forked && !ENV["RUN_AT_EXIT_HOOKS"]
        0
      rescue IOError, SystemCallError
        0
      end

      # Calls the Resque.shutdown hooks once: they may set flags that jobs check. The first job
      # that should make room has its flag by then.
      def shut_down
        return if @shut_down

        @shut_down = true
        hook_quietly(:shutdown)
      end

      def hook_quietly(name)
        @performer.hook(name)
      rescue Exception => e # rubocop:disable Lint/RescueException
        $stderr.puts "resqued-runner: hook #{name}: #{Text.class_name(e)}: #{Text.message(e)}"
      end
    end

    # The exception for a cancelled job: Resque's, or one like it.
    def self.term_exception
      unless defined?(::Resque::TermException)
        resque = defined?(::Resque) ? ::Resque : Object.const_set(:Resque, Module.new)
        resque.const_set(:TermException, Class.new(SignalException))
      end
      ::Resque::TermException
    end

    # Process.daemon ends the process that calls it. A job that did so would end its runner
    # without an explanation, so the job fails with one.
    module GuardDaemon
      def daemon(*)
        if Process.pid == Worker.current&.pid
          raise NotImplementedError, "Process.daemon would end the runner; fork, or ask the machine's service manager"
        end

        super
      end
    end

    def self.guard_daemon
      Worker.current.pid = Process.pid
      Process.singleton_class.prepend(GuardDaemon)
    end

    class Worker
      attr_accessor :pid
    end
  end
end

# frozen_string_literal: true

require "socket"

module Resqued
  module Runner
    # A process with the application loaded that forks runners. It performs no jobs.
    class Template
      MOST = 64 * 1024
      # Signals whose handlers the application may have changed in the template.
      SIGNALS = %w[HUP INT QUIT TERM USR1 USR2 CHLD CONT PIPE ALRM TTIN TTOU WINCH].freeze
      # A request to fork brings the socket of the runner, its standard output and error, and a
      # pipe for its exit status.
      DESCRIPTORS = 4
      # The exit code of a template without free descriptors (EX_OSERR of sysexits.h).
      FULL = 71
      # Threads that restart by themselves, or are not needed: of timeout, the reaper of
      # ActiveRecord's pools, and the one that frees variables of concurrent-ruby.
      HARMLESS = %r{\ATimeout|/active_record/connection_adapters/|/concurrent/atomic/ruby_thread_local_var}.freeze

      def initialize(channel, descriptor, name:, app:, concurrency:, compact: true)
        @channel = channel
        @requests = Socket.for_fd(descriptor)
        @requests.close_on_exec = true
        @name = name
        @app = app
        @concurrency = concurrency
        @compact = compact
        @children = {}
        @forked = false
      end

      def run
        performer = Performer.for_application
        performer.hook(:before_first_fork)
        Connections.close(true)
        settle
        Process.setproctitle("resqued-runner #{@name}: template")
        trap("CHLD") { reap }
        @channel.send(JSON.generate(hello: Worker.hello(@app, @concurrency, template: true)))
        say_threads
        @performer = performer
        while (packet = receive)
          fork_for(*packet)
        end
        0
      end

      private

      # The next request, or nil at the end. An empty packet looks like the end, which repeats.
      def receive
        empty = 0
        loop do
          data, _from, flags, *controls = @requests.recvmsg(MOST, 0, 4096, scm_rights: true)
          given = controls.flat_map { |control| control.cmsg_is?(:SOCKET, :RIGHTS) ? control.unix_rights : [] }
          # The kernel dropped descriptors that did not fit.
          full("#{given.size} of #{DESCRIPTORS} descriptors of a request to fork could be received") if
            (flags & Socket::MSG_CTRUNC) != 0 && given.size < DESCRIPTORS

          return [data, given] unless data.nil? || (data.empty? && given.empty?)
          return nil if data.nil? || (empty += 1) > 50
        end
      rescue Errno::EINTR
        retry
      rescue Errno::ECONNRESET, EOFError
        nil
      end

      def fork_for(data, given)
        request = JSON.parse(data.force_encoding(Encoding::UTF_8))
        asked = request.is_a?(Hash) && request["fork"]
        raise TypeError, "no fork in it" unless asked.is_a?(Hash)
        raise TypeError, "#{given.size} descriptors and not #{DESCRIPTORS}" unless given.size == DESCRIPTORS

        @performer.hook(:before_fork, :job)
        Connections.close(false)
        pid = fork { child(asked, given) }
        @children[pid] = given.pop
        reap # it may have ended before it was in the list
      rescue Errno::EMFILE => e # of a hook
        full("cannot fork: #{Text.message(e)}")
      rescue JSON::ParserError, TypeError, EncodingError => e
        say("a request to fork that cannot be followed: #{e.message} (#{Text.utf8(data, 200)})")
      rescue StandardError, NotImplementedError => e
        say("cannot fork: #{Text.class_name(e)}: #{Text.message(e)}")
      ensure
        given.each { |io| io.close unless io.closed? }
      end

      # Ends a process without free descriptors: it would fail at each request, and its master
      # starts another one. at_exit might need a file too.
      def full(why)
        $stderr.puts "resqued-runner: #{why}: the limit of open files is #{Process.getrlimit(:NOFILE).first} " \
             "(LimitNOFILE= of the service, ulimit -n); this template ends, and another one is started in its place"
        Process.exit!(FULL)
      end

      def child(asked, given)
        socket, out, err, status = given
        begin
          [status, *@children.values].each(&:close)
          asked.fetch("env", {}).each { |name, value| ENV[name.to_s] = value&.to_s }
          Process.setsid
          STDOUT.reopen(out)
          STDERR.reopen(err)
          STDOUT.sync = STDERR.sync = true
          @channel.close
          @requests.close
          SIGNALS.each { |signal| default(signal) }
          descriptor = socket.fileno
          socket.autoclose = false
          [out, err].each(&:close)
          Random.srand
          Connections.renew
          @performer.hook(:after_fork, :job)
          worker = Worker.new(Channel.new(descriptor), name: @name, app: @app, forked: true,
                              concurrency: asked["concurrency"] || @concurrency, performer: @performer)
          code = worker.run
        rescue SystemExit => e
          code = e.status
        rescue Exception => e # rubocop:disable Lint/RescueException
          $stderr.puts e.full_message(highlight: false)
          code = 1
        end
      ensure
        Process.exit!(code || 1) unless ENV["RUN_AT_EXIT_HOOKS"]
        exit(code || 1)
      end

      def default(signal)
        trap(signal, "DEFAULT")
      rescue ArgumentError # reserved, or it does not exist
        nil
      end

      # Reaps only its own children: the application may wait for others. A signal may call it
      # recursively, so the call that gets the status writes it.
      def reap
        @children.to_a.each do |pid, pipe|
          _, status = Process.waitpid2(pid, Process::WNOHANG)
          next unless status

          @children.delete(pid)
          pipe.syswrite("#{status.to_i}\n")
          pipe.close
        rescue Errno::ECHILD
          @children.delete(pid)
        rescue SystemCallError, IOError
          next # its worker process is gone
        end
      end

      # Makes what is loaded as shareable as Ruby can.
      def settle
        GC.start
        return unless @compact

        if Process.respond_to?(:warmup)
          Process.warmup
        elsif GC.respond_to?(:compact)
          GC.compact
        end
      rescue NotImplementedError
        nil
      end

      def say_threads
        threads = Thread.list - [Thread.main]
        threads.reject! { |thread| thread.name.to_s.match?(HARMLESS) || thread.inspect.match?(HARMLESS) }
        return if threads.empty?

        names = threads.map { |thread| thread.name || thread.inspect[/ (\S+:\d+)/, 1] || "one without a name" }
        say("the application has started threads (#{names.join(', ')}): runners that are forked do not have " \
            "them; start them in Resque.after_fork, or use fork: false", level: :warn)
      end

      def say(message, level: :error)
        line = JSON.generate(log: { level: level.to_s, message: Text.utf8(message, 8 * 1024) })
        # If its master is gone, runners may still be requested.
        @channel.try(line) || $stderr.puts("resqued-runner: #{message}")
      end
    end
  end
end

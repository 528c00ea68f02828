# frozen_string_literal: true

require "fcntl"
require "io/nonblock"
require "io/wait"

module Resqued
  module Runner
    # The socket of a runner: reads and writes lines of JSON, with one system call each where
    # possible.
    class Channel
      CHUNK = 64 * 1024
      # Where the descriptor is moved to: code that becomes a daemon or starts a program closes
      # low ones.
      HIGH = 100
      LINE_FEED = "\n"
      # Deeper payloads fail as jobs; unlimited ones would end the process.
      NESTING = 1000

      # A line from the daemon that cannot be read.
      class BadLine < StandardError
        # The number of the job that the line seems to be about, or nil.
        attr_reader :number

        def initialize(error, line)
          @number = line[/"number"\s*:\s*(\d+)/, 1]&.to_i if line.start_with?('{"job"')
          super("#{error.class}: #{Text.utf8(error.message, 300)}")
        end
      end

      def initialize(descriptor)
        @io = self.class.moved(descriptor)
        # Waiting in read itself takes one system call instead of three.
        @io.fcntl(Fcntl::F_SETFL, @io.fcntl(Fcntl::F_GETFL) & ~Fcntl::O_NONBLOCK)
        @pid = Process.pid
        @threads = false
        @chunk = String.new(capacity: CHUNK)
        @rest = String.new
        @searched = 0
        @writing = Mutex.new
      end

      # Prepares for several threads: a system call that blocks would let each other thread of the
      # process run in between, and all of them do with every line.
      def for_threads
        @threads = true
        @io.nonblock = true
      end

      def self.moved(descriptor)
        low = IO.for_fd(descriptor, "r+b")
        high = IO.for_fd(low.fcntl(Fcntl::F_DUPFD, HIGH), "r+b")
        high.close_on_exec = true
        low.close
        high
      rescue Errno::EINVAL # the limit of descriptors is lower
        low.close_on_exec = true
        low
      end

      # Waits for the next line and returns its object. Raises EOFError at the end, and BadLine.
      # Only one thread at a time may call it.
      def receive
        if @rest.empty?
          more
          return parse(@chunk) if @chunk.index(LINE_FEED) == @chunk.bytesize - 1

          @rest << @chunk
        end
        until (found = @rest.index(LINE_FEED, @searched))
          @searched = @rest.bytesize
          more
          @rest << @chunk
        end
        @searched = 0
        parse(@rest.slice!(0, found + 1))
      rescue Errno::ECONNRESET, Errno::ENOTCONN, Errno::EBADF, IOError
        raise EOFError
      end

      # Writes one line. Does nothing in a process forked by a job, which must not speak for it.
      def send(line)
        write(line) if own?
      end

      # Writes one line, for callers that know that this is the runner's own process. If the
      # socket is closed, the process ends: its jobs will run elsewhere.
      def write(line)
        # An exception in between would leave half a line. The daemon reads, or the process ends.
        Thread.handle_interrupt(Object => :never) do
          @writing.synchronize do
            line << LINE_FEED
            written = some(line)
            while written < line.bytesize
              line = line.byteslice(written..-1)
              written = some(line)
            end
          end
        end
      rescue SystemCallError, IOError
        Process.exit!(1)
      end

      # Writes a line that may get lost. Returns false if it was.
      def try(line)
        some("#{line}#{LINE_FEED}")
        true
      rescue SystemCallError, IOError
        false
      end

      def own?
        Process.pid == @pid
      end

      def close
        @io.close
      end

      private

      # SIGCHLD of a process left by a job interrupts the read, and the application may have
      # made the socket non-blocking.
      def more
        return @io.sysread(CHUNK, @chunk) unless @threads

        @io.wait_readable while (got = @io.read_nonblock(CHUNK, @chunk, exception: false)) == :wait_readable
        raise EOFError unless got
      rescue Errno::EINTR
        retry
      rescue IO::WaitReadable
        @io.wait_readable
        retry
      end

      def some(line)
        return @io.syswrite(line) unless @threads

        @io.wait_writable while (written = @io.write_nonblock(line, exception: false)) == :wait_writable
        written
      rescue Errno::EINTR
        retry
      rescue IO::WaitWritable
        @io.wait_writable
        retry
      end

      def parse(line)
        object = JSON.parse(line.force_encoding(Encoding::UTF_8), max_nesting: NESTING)
        raise TypeError, "a line has to be an object" unless object.is_a?(Hash)

        object
      rescue JSON::ParserError, TypeError, EncodingError, SystemStackError => e
        raise BadLine.new(e, line)
      end
    end
  end
end

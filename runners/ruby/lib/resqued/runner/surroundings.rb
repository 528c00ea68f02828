# frozen_string_literal: true

require "fcntl"

module Resqued
  module Runner
    # The state that a job may change for later jobs, because a runner does not fork for each job as
    # Resque does: the working directory, standard output and standard error.
    class Surroundings
      def initialize
        @home = Dir.pwd
        @outputs = [[STDOUT, copy(STDOUT)], [STDERR, copy(STDERR)]]
      end

      # Called after each job, so it costs next to nothing if nothing has changed.
      def restore
        Dir.chdir(@home) unless at_home?
        @outputs.each { |io, copy| repair(io, copy) unless open?(io) }
      rescue SystemCallError => e
        $stderr.puts "resqued-runner: what a job has changed cannot be put back: #{e.message}"
      end

      private

      def copy(io)
        io.fcntl(Fcntl::F_DUPFD, Channel::HIGH).then do |number|
          IO.for_fd(number, "w").tap { |copied| copied.close_on_exec = copied.sync = true }
        end
      rescue SystemCallError, IOError
        nil
      end

      def at_home?
        Dir.pwd == @home
      rescue SystemCallError # it was removed
        false
      end

      def open?(io)
        io.fcntl(Fcntl::F_GETFD)
        true
      rescue IOError, SystemCallError
        false
      end

      # The next opened file would get a missing descriptor, and printed text would go there.
      def repair(io, copy)
        return unless copy

        begin
          io.reopen(copy)
        rescue IOError
          reopened = IO.for_fd(copy.fcntl(Fcntl::F_DUPFD, io.equal?(STDOUT) ? 1 : 2), "w")
          reopened.sync = true
          $stdout = reopened if $stdout.equal?(io)
          $stderr = reopened if $stderr.equal?(io)
          @outputs = @outputs.map { |old, kept| [old.equal?(io) ? reopened : old, kept] }
        end
      end
    end
  end
end

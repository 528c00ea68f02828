# frozen_string_literal: true

require "optparse"

module Resqued
  module Runner
    class CommandLine
      BY_HAND = <<~TEXT
        resqued-runner is started by resqued, which gives it jobs on a socket (RESQUED_FD); there is none.
        Start it by:  resqued work --runner 'resqued-runner %<app>s'
        or name it in the configuration, see docs/runners.md:
            runners:
              app: {command: [bundle, exec, resqued-runner, %<app>s], fork: true}
            handlers:
              "*": {runner: app}
      TEXT

      def initialize(arguments, env = ENV)
        @arguments = arguments.dup
        @env = env
        @compact = true
      end

      def run
        files = options.parse(@arguments)
        return 0 if @shown

        runner(files)
      rescue OptionParser::ParseError, Application::Error => e
        $stderr.puts "resqued-runner: #{e.message}"
        64
      end

      private

      def options
        OptionParser.new do |o|
          o.banner = "usage: resqued-runner [options] [FILE…]"
          o.separator ""
          o.separator "Performs the jobs of a resqued daemon with the classes that FILE… load: Ruby files,"
          o.separator "libraries, or a Rakefile, whose task resque:setup is run. Without FILE it is"
          o.separator "config/environment.rb, or else the Rakefile, of the working directory."
          o.separator ""
          o.on("-I DIRECTORY", "look for libraries in DIRECTORY, too") { |dir| $LOAD_PATH.unshift(File.expand_path(dir)) }
          o.on("--[no-]compact", "compact the memory before the first fork (default: yes)") { |on| @compact = on }
          o.on("--version", "print the version") { show("resqued-runner #{VERSION} (protocol #{PROTOCOL}, ruby #{RUBY_VERSION})") }
          o.on("-h", "--help", "print this") { show(o.help) }
        end
      end

      def show(text)
        puts text
        @shown = true
      end

      def runner(files)
        descriptor = number("RESQUED_FD")
        unless descriptor
          $stderr.puts format(BY_HAND, app: files.empty? ? "config/environment" : files.join(" "))
          return 64
        end
        requests = number("RESQUED_FORK_FD")
        channel = Channel.new(descriptor)
        # Programs that jobs start must not take themselves for a runner.
        name = @env["RESQUED_RUNNER"] || "app"
        concurrency = [@env["RESQUED_CONCURRENCY"].to_i, 1].max
        %w[RESQUED_FD RESQUED_FORK_FD].each { |variable| @env.delete(variable) }

        $stdout.sync = $stderr.sync = true
        Process.setproctitle("resqued-runner #{name}: booting")
        application = Application.new(files)
        application.load
        start(channel, requests, name: name, app: application.name, concurrency: concurrency)
      end

      def start(channel, requests, **with)
        return Template.new(channel, requests, compact: @compact, **with).run if requests

        performer = Performer.for_application
        performer.hook(:before_first_fork)
        Worker.new(channel, performer: performer, **with).run
      end

      def number(variable)
        @env[variable] && Integer(@env[variable], 10)
      rescue ArgumentError
        raise Application::Error, "#{variable} has to be the number of a descriptor, and is #{@env[variable].inspect}"
      end
    end
  end
end

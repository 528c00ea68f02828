# frozen_string_literal: true

module Resqued
  module Runner
    # Loads the application: files, libraries, or a Rakefile with its task resque:setup.
    class Application
      # A mistake that the user has to correct.
      class Error < StandardError; end

      attr_reader :name

      def initialize(files)
        @files = files.empty? ? [default] : files
        @name = @files.join(" ")
      end

      def load
        @files.each { |file| load_one(file) }
      end

      private

      def default
        return "./config/environment.rb" if File.file?("config/environment.rb")

        rakefile = %w[Rakefile rakefile Rakefile.rb rakefile.rb].find { |name| File.file?(name) }
        return rakefile if rakefile

        raise Error, "#{Dir.pwd} has neither config/environment.rb nor a Rakefile; " \
                     "say what loads the classes of the jobs: resqued-runner FILE…"
      end

      def load_one(file)
        path = [file, "#{file}.rb"].map { |name| File.expand_path(name) }.find { |name| File.file?(name) }
        if path.nil?
          raise Error, "there is no #{file} and no #{file}.rb in #{Dir.pwd}" if file.start_with?(".", "/", "~")

          library(file)
        elsif rakefile?(path)
          load_rakefile(path)
        else
          require path
        end
      end

      def library(name)
        require name
      rescue LoadError => e
        raise unless e.path == name

        raise Error, "#{name} is neither a file in #{Dir.pwd} (nor is #{name}.rb) nor a library that Ruby finds"
      end

      def rakefile?(path)
        File.basename(path).match?(/\A[Rr]akefile(\.rb)?\z/) || path.end_with?(".rake")
      end

      # Runs the task that `rake resque:work` runs first, without the work.
      def load_rakefile(path)
        require "rake"
        Rake.application.init("resqued-runner", [])
        Dir.chdir(File.dirname(path)) do
          Rake.load_rakefile(path)
          Rake.application.load_imports if Rake.application.respond_to?(:load_imports)
        end
        task = %w[resque:preload resque:setup environment].find { |name| Rake::Task.task_defined?(name) }
        Rake::Task[task].invoke if task
        require_resque if Rake::Task.task_defined?("resque:work")
      end

      def require_resque
        require "resque"
      rescue LoadError
        nil
      end
    end
  end
end

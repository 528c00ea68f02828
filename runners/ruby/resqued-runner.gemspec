# frozen_string_literal: true

require_relative "lib/resqued/runner/version"

Gem::Specification.new do |spec|
  spec.name = "resqued-runner"
  spec.version = Resqued::Runner::VERSION
  spec.summary = "Performs Resque jobs in Ruby, for resqued"
  spec.description = "Loads an application once and performs the jobs of its classes, through Resque's hooks " \
                     "and plugins, for the resqued daemon, which fetches, locks, times, kills and counts them."
  spec.authors = ["The resqued authors"]
  spec.license = "MIT"
  spec.homepage = "https://github.com/resqued/resqued"
  spec.required_ruby_version = ">= 2.7"
  spec.files = Dir.chdir(__dir__) { Dir["exe/*", "lib/**/*.rb", "README.md", "LICENSE"] }
  spec.bindir = "exe"
  spec.executables = ["resqued-runner"]
  spec.require_paths = ["lib"]
end

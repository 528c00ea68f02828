# frozen_string_literal: true

# All tests: ruby runners/ruby/test/all.rb. They need Ruby with its bundled minitest; the tests of
# relations also the gems activerecord and sqlite3.
require_relative "helper"

Dir[File.join(__dir__, "*_test.rb")].sort.each { |file| require file }

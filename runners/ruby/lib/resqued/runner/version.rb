# frozen_string_literal: true

module Resqued
  module Runner
    VERSION = "0.1.0"
    # The version of docs/runner-protocol.md that this speaks.
    PROTOCOL = 1
  end
end

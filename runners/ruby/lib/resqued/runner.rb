# frozen_string_literal: true

# Messages go to $stderr.puts, because RUBYOPT=-W0 silences warn.

require "json"

require "resqued"
require "resqued/long_job"
require "resqued/runner/version"
require "resqued/runner/text"
require "resqued/runner/constants"
require "resqued/runner/application"
require "resqued/runner/channel"
require "resqued/runner/job"
require "resqued/runner/performer"
require "resqued/runner/resque_performer"
require "resqued/runner/connections"
require "resqued/runner/jobs"
require "resqued/runner/surroundings"
require "resqued/runner/worker"
require "resqued/runner/template"
require "resqued/runner/command_line"

# frozen_string_literal: true

require "json"
require "resqued/long_job"

class Steps
  extend Resqued::LongJob

  def self.long_job_perform(run, *items)
    run.work_once(:plan) do
      puts "plan"
      run.state("total", items.size)
    end
    run.work_each(:send, items) do |item|
      run.work_once(:inner) { puts "inner #{item}" }
      raise IOError, "no #{item}" if item == "bad" && run.slice == 1
      puts "send #{item}"
    end
    run.state(:once) { "computed" }
    run.clear_state(:total)
  end
end

class Units
  extend Resqued::LongJob

  def self.perform(file)
    run = Resqued::LongJob.current
    loop do
      run.work_unit do
        File.write(file, "there")
        sleep 0.01
      end
    end
  end
end

class Unconfigured
  extend Resqued::LongJob
end

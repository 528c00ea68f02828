# frozen_string_literal: true

require_relative "helper"

# A runner of an application that has turned resque-locket on.
class TestLocket < RunnerTest
  def test_a_forked_runner_performs_its_jobs
    template = start(Peer.app("locket"), template: true)
    assert_equal({ "done" => 1 }, template.fork_runner.job("Mail"))
    assert_includes template.output, "resque-locket is off in runners"
  end
end

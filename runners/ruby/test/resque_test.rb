# frozen_string_literal: true

require_relative "helper"

# A runner of an application with Resque, or rather a stand-in for its interface.
class TestResque < RunnerTest
  def setup
    super
    @peer = start(Peer.app("resque"))
  end

  def test_hooks_come_in_their_order
    assert_equal({ "done" => 1 }, @peer.job("Hooked"))
    assert_equal ["before", "around", "perform", "around over", "after"], @peer.output.lines(chomp: true).last(5)
  end

  def test_the_hooks_of_a_class_are_looked_for_once
    3.times { assert_includes @peer.job("Hooked"), "done" }
    assert_equal 1, @peer.output.scan("looks for hooks").size
    2.times { assert_includes @peer.job("Listing"), "done" }
    assert_equal %w[first second], @peer.output.lines(chomp: true).grep(/\A(first|second)\z/), "a class that lists its hooks may list others"
  end

  def test_a_job_that_its_hooks_do_not_perform_is_discarded
    assert_equal({ "discard" => 1, "why" => "Resque::Job::DontPerform: not on mondays" }, @peer.job("Hooked", "dont"))
    assert_equal "a before_perform hook raised Resque::Job::DontPerform", @peer.job("Hooked", "dont at all")["why"]
    assert_equal({ "discard" => 3, "why" => "an around_perform hook did not run it" }, @peer.job("Hooked", "locked"))
  end

  def test_a_failure_goes_to_all_backends_but_redis
    answer = @peer.job("Hooked", "fail")
    assert_equal ["IOError", "no disk"], answer.values_at("exception", "message")
    assert_includes @peer.output, "on_failure IOError\nREPORTS IOError host:77-1:mail,low mail Hooked"
    refute_includes @peer.output, "WRITES"
  end

  def test_a_failure_that_the_backend_suppresses_is_none
    answer = @peer.job("Hooked", "again")
    assert_match(/Suppressing suppressed IOError: no disk/, answer["discard"] ? answer["why"] : answer.to_s)
  end

  def test_a_backend_that_fails_does_not_hide_the_failure
    @peer.send_job("Hooked", "reporter down")
    assert_match(/RuntimeError: the reporter is down/, @peer.read["log"]["message"])
    assert_equal "no disk", @peer.read["message"]
  end

  def test_what_the_application_writes_to_failed_itself_is_written
    assert_equal ["done"], @peer.job("Hooked", "writes").keys
    assert_includes @peer.output, 'WRITES {"args"=>["by itself"]}'
  end

  # resqued's worker ids repeat the last queue (docs/decisions/worker-ids.md).
  def test_the_queues_of_a_worker
    { "h~resqued:7.0.1-abc:mail,low:,low" => %w[mail low], "h~resqued:7.0.1-abc:**,b:,b" => %w[* b],
      "h~resqued:7.0.1-abc:*:,**" => %w[*], "host:77-1:mail,low" => %w[mail low] }.each do |id, queues|
      @peer.send_job("Hooked", "fail", worker: id)
      @peer.read
      assert_equal "queues of its worker: #{queues.inspect}", @peer.output.lines(chomp: true).last
    end
  end

  def test_unknown_classes_are_reported_too
    answer = @peer.job("Nope")
    assert_equal ["NameError", "uninitialized constant Nope"], answer.values_at("exception", "message")
    assert_includes @peer.output, "REPORTS NameError host:77-1:mail,low mail Nope"
    assert_equal "NoMethodError", @peer.job("Kernel", "exit")["exception"]
  end

  def test_requeue_is_no_failure_to_hooks
    assert_equal({ "requeue" => 1, "after" => 0.0 }, @peer.job("Hooked", "requeue"))
    refute_includes @peer.output, "on_failure"
  end

  def test_cancel_is_seen_by_the_hooks
    Tempfile.create do |file|
      @peer.send_job("Hooked", "wait", file.path)
      eventually("begins") { !File.zero?(file.path) }
      @peer.write(cancel: 1, why: "killed")
      assert_equal "Resque::TermException", @peer.read["exception"]
      assert_includes @peer.output, "on_failure Resque::TermException"
    end
  end

  def test_resque_retry_gives_up_a_job_that_a_person_has_killed
    [false, true].each do |final|
      peer = start(Peer.app("resque"))
      Tempfile.create do |file|
        peer.send_job("Retried", file.path)
        eventually("begins") { !File.zero?(file.path) }
        peer.write({ cancel: 1, why: "killed", final: final })
        assert_equal "Resque::TermException", peer.read["exception"]
      end
      assert_includes peer.output, "retries: #{!final}\n"
    end
    death("Retried", "x", final: true)
    assert_includes @peer.output, "retries: false\n"
  end

  def test_hooks_and_backends_are_told_of_a_death_as_by_the_worker_of_resque
    assert_equal true, @peer.hello["failure_hooks"]
    answer = death("Hooked", "fail")
    assert_equal ["Resque::DirtyExit", "ended by SIGKILL"], answer.values_at("exception", "message")
    assert_equal ["on_failure Resque::DirtyExit", "REPORTS Resque::DirtyExit host:77-1:mail,low mail Hooked"],
                 @peer.output.lines(chomp: true)[-3, 2]
    refute_match(/WRITES|perform/, @peer.output)
    assert_match(/Suppressing suppressed Resque::DirtyExit: ended by SIGKILL/, death("Hooked", "again")["why"])
    ["Connected", "Nope", "Kernel"].each { |name| assert_equal ["done"], death(name).keys, "it has no hooks" }
    @peer.output.lines.count { |line| line.start_with?("REPORTS") }.then { |told| assert_equal 1, told }
    assert_equal ["done"], @peer.job("Hooked").keys
  end

  def death(name, *args, **more)
    number = @peer.next_number
    @peer.write(died: { number: number, how: "ended by SIGKILL", id: "id", class: name, queue: "mail",
                        worker: "host:77-1:mail,low", payload: { class: name, args: args } }.merge(more))
    @peer.read
  end

  def test_hooks_of_the_worker
    assert_equal ["done"], @peer.job("Hooked").keys
    @peer.write(pause: true)
    @peer.write(resume: true)
    @peer.write(leave: true)
    assert_nil @peer.read
    assert_equal 0, @peer.wait.exitstatus
    lines = @peer.output.lines(chomp: true)
    assert_equal "before_first_fork NilClass", lines.first
    assert_match(/before_pause #<Class/, lines[-4])
    assert_match(/after_pause #<Class/, lines[-3])
    assert_equal ["shutdown NilClass", "worker_exit NilClass"], lines.last(2)
    refute_includes @peer.output, "after_fork", "it was not forked"
  end

  def test_forked_runners_connect_anew_and_run_the_hooks_once
    template = start(Peer.app("resque"), template: true)
    assert template.hello["template"]
    runner = forked(template)
    assert_equal({ "done" => 1 }, runner.job("Connected"))
    assert_equal({ "done" => 2 }, runner.job("Connected"))
    assert_equal "before_first_fork NilClass\nbefore_fork Resque::Job\n", template.output
    assert_equal "after_fork Resque::Job\n", runner.output
    runner.write(leave: true)
    assert_nil runner.read
    assert_equal "after_fork Resque::Job\nshutdown NilClass\nworker_exit NilClass\n", runner.output
  end
end

# Continuations of Active Job ask at each checkpoint whether to continue.
class TestStopping < Minitest::Test
  def test_a_job_that_should_make_room_is_interrupted_at_its_checkpoint
    require "active_support"
    require "active_support/lazy_load_hooks"
    Resqued::Runner::Stopping.provide
    continuable = Module.new do
      def checkpoint!
        :goes_on
      end

      def interrupt!(reason:)
        reason
      end
    end
    ActiveSupport.run_load_hooks(:active_job_continuable, continuable)
    job = Class.new { include continuable }.new
    assert_equal :goes_on, job.checkpoint!
    performed = Struct.new(:leaving).new(true)
    Thread.current.thread_variable_set(Resqued::CURRENT, performed)
    assert_equal :stopping, job.checkpoint!
  rescue LoadError
    skip "Active Support is not installed"
  ensure
    Thread.current.thread_variable_set(Resqued::CURRENT, nil)
  end
end

# Libraries that interrupt jobs announce it.
class TestInterruptions < Minitest::Test
  def test_a_job_that_a_library_interrupts_is_noted
    require "active_support"
    require "active_support/notifications"
    Resqued::Runner::Interruptions.note
    ["interrupt.active_job", "interrupted.iteration"].each do |event|
      performed = Struct.new(:interrupted).new
      Thread.current.thread_variable_set(Resqued::CURRENT, performed)
      ActiveSupport::Notifications.instrument("perform.active_job")
      refute performed.interrupted
      ActiveSupport::Notifications.instrument(event, job_class: "Import")
      assert performed.interrupted
    end
  rescue LoadError
    skip "Active Support is not installed"
  ensure
    Thread.current.thread_variable_set(Resqued::CURRENT, nil)
  end
end

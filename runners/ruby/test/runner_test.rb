# frozen_string_literal: true

require_relative "helper"

# A runner without Resque, over its socket.
class TestRunner < RunnerTest
  def test_says_hello_performs_and_leaves
    peer = start
    assert_equal 1, peer.hello["protocol"]
    assert_equal 1, peer.hello["concurrency"]
    assert_nil peer.hello["classes"]
    assert_match(/\Aruby \d/, peer.hello["language"])
    assert_equal({ "done" => 1 }, peer.job("Echo", 1, "ä"))
    assert_equal({ "done" => 2 }, peer.job("Outer::Inner"))
    peer.write(leave: true)
    assert_nil peer.read
    assert_equal 0, peer.wait.exitstatus
    assert_includes peer.output, '[1,"ä"]'
  end

  def test_an_error_of_a_job_has_class_message_and_the_applications_lines
    answer = start.job("Boom", "no luck")
    assert_equal 1, answer["failed"]
    assert_equal "ArgumentError", answer["exception"]
    assert_equal "no luck", answer["message"]
    assert_equal 1, answer["backtrace"].size, answer["backtrace"]
    assert_match(%r{apps/plain.rb:\d+:in .*perform}, answer["backtrace"].first)
  end

  def test_names_that_are_no_class_of_a_job_fail
    peer = start
    { "Nope" => "uninitialized constant Nope", "Outer::Nope" => "uninitialized constant Outer::Nope",
      "Outer::Hidden" => "private constant Outer::Hidden referenced",
      "lower" => "wrong constant name lower", "A b" => "wrong constant name A b" }.each do |name, message|
      answer = peer.job(name)
      assert_equal "NameError", answer["exception"], name
      assert_equal message, answer["message"].lines.first.chomp, name
    end
    %w[Kernel Object IO File Process Class Module BasicObject GC ObjectSpace Thread Unready Shy Resqued JSON
       Resqued::Runner::Performer RUBY_VERSION ENV].each do |name|
      answer = peer.job(name, "id")
      assert_equal "NoMethodError", answer["exception"], answer
      assert_match(/undefined method `perform' for/, answer["message"])
    end
  end

  def test_arguments_that_do_not_fit
    answer = start.job("TwoArguments", 1)
    assert_equal "ArgumentError", answer["exception"]
    assert_equal "wrong number of arguments (given 1, expected 2)", answer["message"]
  end

  def test_odd_ends_are_failures_and_the_runner_goes_on
    peer = start
    { "exit" => "SystemExit", "abort" => "SystemExit", "throw" => "UncaughtThrowError", "memory" => "NoMemoryError",
      "interrupt" => "Interrupt", "signal" => "SignalException", "stack" => "SystemStackError",
      "speechless" => "Odd::Speechless", "daemon" => "NotImplementedError" }.each do |what, exception|
      answer = peer.job("Odd", what)
      assert_equal exception, answer["exception"], what
    end
    assert_match(/#<Class:/, peer.job("Odd", "anonymous")["exception"])
    assert_equal ["done"], peer.job("Echo").keys
  end

  def test_messages_of_any_encoding_and_length
    peer = start
    assert_equal "caf? ?", peer.job("Odd", "binary")["message"]
    assert_equal "café", peer.job("Odd", "latin1")["message"]
    assert_operator peer.job("Odd", "long")["message"].bytesize, :<=, Resqued::Runner::Text::MESSAGE
  end

  def test_a_job_that_ends_its_thread_fails
    peer = start # the main thread, for which it is exit
    2.times { assert_equal "SystemExit", peer.job("Odd", "thread_exit")["exception"] }
    peer = start(concurrency: 2)
    3.times { assert_equal "ThreadError", peer.job("Odd", "thread_exit")["exception"] }
    assert_equal ["done"], peer.job("Echo").keys
    peer.write(leave: true)
    assert_nil peer.read, "it leaves"
  end

  def test_a_job_cannot_break_the_socket_or_the_next_job
    peer = start(chdir: __dir__)
    ["mute", "close", "traps", "kill threads", "chdir", "fork exit"].each do |what|
      assert_equal ["done"], peer.job("Odd", what).keys, what
    end
    Tempfile.create do |file|
      assert_equal ["done"], peer.job("Says", file.path).keys
      assert_equal __dir__, File.read(file.path).split("|")[1], "the working directory is put back"
    end
  end

  def test_a_forked_child_that_comes_back_does_not_answer
    peer = start
    assert_equal({ "done" => 1 }, peer.job("Odd", "fork"))
    assert_equal({ "done" => 2 }, peer.job("Echo"))
  end

  def test_exit_bang_is_a_death
    peer = start
    peer.send_job("Odd", "exit!")
    assert_nil peer.read
  end

  def test_requeue_and_discard
    peer = start
    assert_equal({ "requeue" => 1, "after" => 2.5 }, peer.job("Leaves", "requeue"))
    assert_equal({ "discard" => 2, "why" => "not today" }, peer.job("Leaves", "discard"))
  end

  def test_what_a_job_says
    peer = start
    assert_equal({ "progress" => { "job" => 1, "done" => 3, "total" => 9, "message" => "copying" } }, peer.job("Talks"))
    assert_equal({ "refresh_lock" => 1 }, peer.read)
    assert_equal({ "log" => { "job" => 1, "level" => "warn", "message" => "caf?" } }, peer.read)
    assert_equal({ "done" => 1 }, peer.read)
  end

  def test_a_job_that_should_make_room_is_told
    [1, 2].each do |concurrency|
      peer = start(concurrency: concurrency)
      assert peer.hello["leaving"]
      number = peer.send_job("MakesRoom")
      assert peer.read["progress"]
      peer.write(leaving: number + 7) # one that has ended already
      peer.write(leaving: number)
      assert_equal({ "discard" => number, "why" => "made room" }, peer.read)
      assert_equal ["done"], peer.job("Echo").keys, "the runner may stay"
    end
  end

  def test_an_interrupted_job_says_so
    peer = start
    assert_equal({ "done" => 1, "interrupted" => true }, peer.job("Interrupted"))
    assert_equal({ "done" => 2 }, peer.job("Echo"))
  end

  def test_payloads_that_are_not_json
    peer = start
    good = ['{"class":"Echo","args":[1]}'].pack("m0")
    assert_equal ["done"], peer.job("Echo", payload_base64: good).keys
    bad = ['{"class":"Echo","args":[NaN]}'].pack("m0")
    assert_equal "JSON::ParserError", peer.job("Echo", payload_base64: bad)["exception"]
    odd = ["{\"class\":\"Echo\",\"args\":[\"\xFF\"]}".b].pack("m0")
    refute_nil peer.job("Echo", payload_base64: odd)
  end

  def test_lines_that_it_does_not_understand
    peer = start
    peer.write("garbage\n")
    assert_equal ["error"], peer.read.keys
    peer.write("[1]\n")
    assert_equal ["error"], peer.read.keys
    peer.write(dance: true)
    assert_match(/dance/, peer.read["error"])
    peer.write(cancel: 99, why: "killed")
    deep = "#{'[' * 5000}#{']' * 5000}"
    peer.write(%({"job":{"number":7,"class":"Echo","payload":{"class":"Echo","args":#{deep}}}}\n))
    answer = peer.read
    assert_equal 7, answer["failed"]
    assert_match(/Nesting/, answer["message"])
    assert_equal ["done"], peer.job("Echo").keys
  end

  def test_large_lines_in_pieces
    peer = start
    text = "ä" * 1_000_000
    line = JSON.generate(job: { number: 1, class: "Boom", payload: { class: "Boom", args: [text] } })
    line.bytes.each_slice(70_001) { |part| peer.socket.write(part.pack("C*")) }
    peer.socket.write("\n")
    assert_equal 1, peer.read["failed"]
  end

  ["sleep", "swallow", "loop"].each do |how|
    define_method("test_cancel_reaches_a_job_that_does_#{how}") do
      peer = start
      Tempfile.create do |file|
        peer.send_job("Busy", file.path, how)
        eventually("begins") { !File.zero?(file.path) }
        peer.write(cancel: 1, why: "killed")
        answer = peer.read
        assert_equal "Resque::TermException 15", File.read(file.path)
        if how == "swallow"
          assert_equal({ "done" => 1 }, answer)
        else
          assert_equal ["Resque::TermException", "SIGTERM"], answer.values_at("exception", "message")
        end
        assert_nil peer.read, "it leaves after a job that was cancelled"
        assert_equal 0, peer.wait.exitstatus
      end
    end
  end

  ["sleep", "loop"].each do |how|
    define_method("test_the_end_of_the_socket_ends_a_job_that_does_#{how}") do
      peer = start
      Tempfile.create do |file|
        peer.send_job("Busy", file.path, how)
        eventually("begins") { !File.zero?(file.path) }
        peer.socket.close
        assert_equal 1, peer.wait.exitstatus
      end
    end
  end

  def test_the_end_of_the_socket_ends_an_idle_runner
    peer = start
    peer.socket.close
    assert_equal 0, peer.wait.exitstatus
  end

  def test_cancel_after_a_long_job_and_short_jobs_in_between
    peer = start
    Tempfile.create do |file|
      2000.times { assert_equal ["done"], peer.job("Echo").keys }
      sleep 0.2 # the watcher parks; nothing depends on it
      100.times { assert_equal ["done"], peer.job("Echo").keys }
      number = peer.send_job("Busy", file.path, "sleep")
      eventually("begins") { !File.zero?(file.path) }
      peer.write(cancel: number, why: "timeout")
      assert_equal number, peer.read["failed"]
    end
  end

  def test_as_many_jobs_at_a_time_as_asked_for
    peer = start(concurrency: 4)
    assert_equal 4, peer.hello["concurrency"]
    4.times { peer.send_job("Together", 4) }
    assert_equal [1, 2, 3, 4], Array.new(4) { peer.read["done"] }.sort
    Tempfile.create do |file|
      3.times { peer.send_job("Together", 7) }
      peer.send_job("Busy", file.path, "sleep")
      eventually("begins") { !File.zero?(file.path) }
      assert_equal [5, 6, 7], Array.new(3) { peer.read["done"] }.sort
      peer.write(cancel: 8, why: "killed")
      assert_equal 8, peer.read["failed"]
      assert_nil peer.read, "it leaves when no job is left"
    end
  end

  # All threads were busy, so the watcher has read both lines.
  def test_a_cancel_before_a_thread_has_the_job
    term = Resqued::Runner.term_exception
    jobs = Resqued::Runner::Jobs.new(nil, term)
    jobs.send(:dispatch, "job" => { "number" => 1 })
    jobs.send(:dispatch, "cancel" => 1, "why" => "timeout")
    Thread.handle_interrupt(term => :never) do
      assert_equal 1, jobs.take.number
      assert_raises(term) { Thread.handle_interrupt(term => :immediate) { sleep } }
    end
  end

  # A cancel that comes after the job has ended, before resqued knows.
  def test_a_late_cancel_does_not_hit_what_comes_next
    ours, theirs = UNIXSocket.pair
    performer = Resqued::Runner::Performer.new
    performer.define_singleton_method(:call) { |job| "{\"done\":#{job.number}}" }
    worker = Resqued::Runner::Worker.new(Resqued::Runner::Channel.new(theirs.fileno), name: "app", app: "x",
                                                                                      concurrency: 2, performer: performer)
    theirs.autoclose = false
    worker.instance_variable_set(:@watcher, Thread.new { sleep })
    worker.instance_variable_get(:@jobs).define_singleton_method(:over) do |job|
      @mutex.synchronize do
        dispatch("job" => { "number" => 2 }) if job.number == 1
        cancel(job, "killed") if job.number == 1
      end
      super(job)
    end
    thread = Thread.new { worker.send(:work) }
    thread.report_on_exception = false
    ours.write("{\"job\":{\"number\":1}}\n")
    assert_equal [{ "done" => 1 }, { "done" => 2 }], Array.new(2) { ours.wait_readable(Peer::PATIENCE) && JSON.parse(ours.gets) }
    assert thread.join(Peer::PATIENCE), "it leaves"
  ensure
    ours.close
  end

  def test_a_job_that_crosses_the_end_of_a_cancelled_one_goes_back
    peer = start(concurrency: 2)
    Tempfile.create do |file|
      peer.send_job("Busy", file.path, "sleep")
      eventually("begins") { !File.zero?(file.path) }
      Tempfile.create do |other|
        peer.send_job("Busy", other.path, "sleep")
        eventually("begins") { !File.zero?(other.path) }
        peer.write(cancel: 1, why: "killed")
        assert_equal 1, peer.read["failed"]
        assert_equal({ "requeue" => 3, "after" => 0 }, peer.job("Echo"))
        peer.write(cancel: 2, why: "killed")
        assert_equal 2, peer.read["failed"]
      end
    end
  end

  def test_a_line_that_resqued_would_not_read_fails_the_job
    peer = start
    answer = peer.job("Shouts", 9)
    assert_equal [1, "ArgumentError"], answer.values_at("failed", "exception")
    assert_match(/longer than resqued reads/, answer["message"])
    assert_equal ["done"], peer.job("Echo").keys
  end

  def test_leave_waits_for_the_job
    [1, 3].each do |concurrency|
      peer = start(concurrency: concurrency)
      Tempfile.create do |file|
        peer.send_job("Busy", file.path, "sleep")
        eventually("begins") { !File.zero?(file.path) }
        peer.write(leave: true)
        peer.write(cancel: 1, why: "killed")
        assert_equal 1, peer.read["failed"]
        assert_nil peer.read
        assert_equal 0, peer.wait.exitstatus
      end
    end
  end

  def test_many_jobs_in_many_threads_each_once
    peer = start(concurrency: 4)
    sent = 0
    4.times { sent = peer.send_job("Echo", sent) }
    seen = []
    while seen.size < 3000
      seen << peer.read.fetch("done")
      sent = peer.send_job("Echo", sent) if sent < 3000
    end
    assert_equal (1..3000).to_a, seen.sort
  end
end

# frozen_string_literal: true

require_relative "helper"

class TestLongJob < RunnerTest
  def setup
    super
    @peer = start(Peer.app("long"))
    @state = {}
  end

  # Plays the worker process for one slice: keeps the state, answers each report. The block
  # sees each report. Returns the last report and the line that ended the slice.
  def slice(klass, args, number)
    job = @peer.send_job(klass, "uuid", run: "uuid", slice: number, args: args, state: @state, fence: number)
    saved = 0
    last = nil
    loop do
      line = @peer.read
      return [last, line] unless (report = line["report"])

      assert_equal job, report["job"]
      last = report["line"]
      if last["state"]
        last["state"].each { |key, value| value.nil? ? @state.delete(key) : @state[key] = value }
        @peer.write(reply: { job: job, line: { saved: saved += 1 } })
      end
      yield job, last if block_given?
    end
  end

  def test_a_run_in_one_slice
    last, ended = slice("Steps", %w[a b a], 1)
    assert_equal true, last["done"]
    assert_equal ["done"], ended.keys
    assert_equal ["plan", "inner a", "send a", "inner b", "send b", "inner a", "send a"], @peer.output.lines(chomp: true)
    assert_equal({ "~plan" => true, "~send" => true, "once" => "computed" }, @state)
  end

  def test_each_unit_once_in_slices_of_one_unit_with_a_list_that_changes
    done = nil
    1.upto(20) do |number|
      items = number < 2 ? %w[a b c] : %w[c x b a]
      last, ended = slice("Steps", items, number) do |job, _|
        @peer.write(slice_over: job)
      end
      assert_equal ["done"], ended.keys
      break done = number if last["done"]
      assert_equal true, last["yield"]
    end
    refute_nil done
    lines = @peer.output.lines(chomp: true)
    assert_equal ["plan", "send a", "send b", "send c", "send x"], lines.grep_v(/inner/).sort
    assert_equal 4, lines.grep(/inner/).size
  end

  def test_a_unit_that_fails_is_done_again_and_those_before_it_are_not
    _, ended = slice("Steps", %w[a bad c], 1)
    assert_equal ["IOError", "no bad"], ended.values_at("exception", "message")
    last, = slice("Steps", %w[a bad c], 2)
    assert_equal true, last["done"]
    assert_equal ["plan", "inner a", "send a", "inner bad", "send bad", "inner c", "send c"], @peer.output.lines(chomp: true)
  end

  def test_slice_over_is_seen_by_a_loop_of_units
    Tempfile.create do |file|
      job = @peer.send_job("Units", "uuid", run: "uuid", slice: 1, args: [file.path], state: {})
      eventually("begins") { !File.zero?(file.path) }
      @peer.write(slice_over: job)
      assert_equal({ "yield" => true }, @peer.read["report"]["line"])
      assert_equal ["done"], @peer.read.keys
    end
  end

  def test_a_job_that_is_no_slice_says_what_to_do
    assert_match(/long_job: true/, @peer.job("Unconfigured", 1)["message"])
  end

  def test_many_items_are_saved_in_small_pieces
    largest = 0
    last, = slice("Steps", (1..450).map(&:to_s), 1) do |_, line|
      largest = [largest, JSON.generate(line).bytesize].max
    end
    assert_equal true, last["done"]
    assert_operator largest, :<, 4000, "the last save forgets all blocks"
  end

  def test_in_threads
    @peer = start(Peer.app("long"), concurrency: 3)
    last, ended = slice("Steps", %w[a b], 1)
    assert_equal [true, ["done"]], [last["done"], ended.keys]
  end
end

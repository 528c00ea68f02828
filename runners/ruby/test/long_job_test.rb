# frozen_string_literal: true

require_relative "helper"

class TestLongJob < RunnerTest
  def setup
    super
    @peer = start(Peer.app("long"))
    @state = {}
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
      assert_equal({}, @peer.read["report"]["line"], "it has done a unit: the slice needs no more time")
      assert_equal({ "yield" => true }, @peer.read["report"]["line"])
      assert_equal ["done"], @peer.read.keys
    end
  end

  def test_units_are_counted
    units = 0
    slice("Steps", %w[a b], 1, units: 0) { |_, line| units += line.fetch("units") }
    assert_equal 3, units, "plan, and the innermost ones of two items"

    Tempfile.create do |file|
      job = @peer.send_job("Units", "uuid", run: "uuid", slice: 2, args: [file.path], state: {}, units: 3)
      lines = [@peer.read, @peer.read].map { |line| line["report"]["line"] }
      assert_equal [["units"]] * 2, lines.map(&:keys)
      assert_equal 1, lines.first["units"]
      assert_operator lines.last["units"], :>=, 1
      @peer.write(slice_over: job)
      lines << @peer.read["report"]["line"] until lines.last["yield"]
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

  # Goes through slices of one unit until the run is over; returns what it has put out in each.
  def slices(klass, args)
    seen = 0
    1.upto(50).map do |number|
      last, ended = slice(klass, args, number) { |job, _| @peer.write(slice_over: job) }
      assert_equal ["done"], ended.keys, ended.inspect
      lines = @peer.output.lines(chomp: true)
      said = lines[seen..-1]
      seen = lines.size
      return yield(said, number) if last["done"]

      said
    end
    flunk "it does not come to its end"
  end

  # A later slice runs in another process, where the records are other objects.
  def records(how)
    1.upto(20) do |number|
      @peer = start(Peer.app("long"))
      last, ended = slice("Rows", [how, 1, 2, 3], number) { |job, _| @peer.write(slice_over: job) }
      assert_equal ["done"], ended.keys, ended.inspect
      yield @peer.output.lines(chomp: true)
      return number if last["done"]
    end
    flunk "it does not come to its end"
  end

  def test_records_are_told_apart_by_class_and_id
    %w[records within relation].each do |how|
      @state = {}
      sent = []
      assert_operator records(how) { |lines| sent.concat(lines.grep(/sent/)) }, :>, 1
      assert_equal ["sent 1", "sent 2", "sent 3"], sent, how
    end
  end

  def test_a_relation_is_loaded_in_pages
    last, = slice("Rows", ["relation", *1..250], 1)
    assert_equal true, last["done"]
    lines = @peer.output.lines(chomp: true)
    assert_equal ["loads 100", "loads 100", "loads 50"], lines.grep(/loads/)
    assert_equal (1..250).map { |id| "sent #{id}" }, lines.grep(/sent/)
  end

  def test_items_that_a_later_slice_could_not_know_again_are_refused
    { "object" => /a Object has no JSON that is the same in each slice/, "unsaved" => /a Row without an id/ }.each do |how, message|
      _, ended = slice("Rows", [how], 1)
      assert_equal "ArgumentError", ended["exception"]
      assert_match message, ended["message"]
    end
    assert_empty @peer.output
  end

  def test_a_state_is_the_same_in_the_slice_that_sets_it
    _, ended = slice("State", [], 1)
    assert_match(/a Object has no JSON/, ended["message"])
    list = [{ "id" => 1, "on" => "1970-01-01 00:00:00 UTC" }]
    assert_equal ["returned #{list}", "read #{list} \"symbol\""], @peer.output.lines(chomp: true)
    assert_equal list, @state["list"]
  end

  def test_lists_without_a_key
    slices("Keys", ["none"]) { |_, number| assert_operator number, :>, 1 }
    assert_equal ["setup 1", "setup 2", "finalize 1", "finalize 2", "setup", "other"], @peer.output.lines(chomp: true)
  end

  def test_pages
    slices("Pages", []) { |_, number| assert_operator number, :>, 1 }
    pages = ["nil", '{"page"=>1}', '{"page"=>2}']
    assert_equal [0, 1].flat_map { |step| pages.map { |page| "#{step}: #{page}" } }, @peer.output.lines(chomp: true)
    assert_equal ["~pages 0", "~pages 1"], @state.keys
  end

  # The second step would be skipped.
  def test_a_key_that_is_used_twice
    %w[work_once work_each].each do |how|
      @state = {}
      _, ended = slice("Keys", [how], 1)
      assert_equal "ArgumentError", ended["exception"]
      assert_match(/step :a was used before/, ended["message"])
    end
    @state = {}
    last, = slice("Keys", ["again"], 1)
    assert_equal true, last["done"]
    assert_equal ["[1]", "[1]", "a"], @peer.output.lines(chomp: true)
  end

  def test_a_tree_goes_on_where_it_was
    tree = { "a" => { "a/b" => 1, "a/c" => { "a/c/d" => 2 } }, "e" => 3 }
    slices("Tree", [tree]) { |_, number| assert_operator number, :>, 1 }
    leaves = @peer.output.lines(chomp: true).grep(/leaf/)
    assert_equal ["leaf 1", "leaf 2", "leaf 3"], leaves
    assert_equal ["~walk"], @state.keys, "what the steps within it remembered is forgotten"
  end

  def test_blocks_are_called_at_the_end_of_a_slice_and_after_so_many_units
    seen = nil
    last, = slice("Tree", [{ "a" => 1, "b" => 2, "c" => 3 }], 1) { |_, line| seen ||= line.dig("progress", "message") }
    assert_equal true, last["done"]
    assert_equal "walking", seen
    assert_equal ["leaf 1", "leaf 2", "two", "leaf 3", "end", "two"], @peer.output.lines(chomp: true)
  end

  # A lock that others hold for a while; what the unit has set is saved before it is given back.
  def test_a_critical_unit
    job = @peer.send_job("Critical", "uuid", run: "uuid", slice: 1, args: [], state: {}, fence: 1)
    saved = tries = 0
    order = []
    loop do
      line = @peer.read
      break assert_equal(["done"], line.keys) unless (report = line["report"])

      report = report["line"]
      order << report
      saved += 1 if report["state"]
      answer = { saved: saved }
      answer = { saved: saved, lock: report["lock"], held: (tries += 1) > 1 } if report["lock"]
      @peer.write(reply: { job: job, line: answer })
    end
    assert_equal 2, tries
    unlock = order.index { |line| line["unlock"] }
    assert_equal({ "state" => { "n" => 1 }, "unlock" => "ledger" }, order[unlock])
    assert_equal ["within"], @peer.output.lines(chomp: true)
  end

  def test_the_slice_ends_while_it_waits_for_a_lock
    job = @peer.send_job("Critical", "uuid", run: "uuid", slice: 1, args: [], state: {}, fence: 1)
    loop do
      line = @peer.read
      break assert_equal(["done"], line.keys) unless (report = line["report"])

      report = report["line"]
      if report["lock"]
        @peer.write(reply: { job: job, line: { saved: 1, lock: "ledger", held: false } })
        @peer.write(slice_over: job)
      elsif report["state"]
        @peer.write(reply: { job: job, line: { saved: 1 } })
      elsif !report.empty?
        assert_equal({ "yield" => true }, report)
      end
    end
    assert_empty @peer.output
  end

  # Plays resqued's command line: says what it was called with.
  def producing(what)
    Tempfile.create("resqued") do |told|
      command = "#{told.path}.sh"
      File.write(command, "#!/bin/sh\n{ echo \"$@\"; cat; } > #{told.path}\necho some-uuid\n", perm: 0o700)
      @peer = start(Peer.app("long"), env: { "RESQUED_COMMAND" => command })
      number = @peer.send_job("Producer", what)
      said = []
      loop do
        line = @peer.read
        said << line["log"]["message"] if line["log"]
        next unless line.key?("done") || line.key?("failed")

        assert_equal({ "done" => number }, line)
        break
      end
      return [File.read(told.path).lines(chomp: true), said]
    ensure
      File.delete(command)
    end
  end

  def test_runs_are_enqueued_by_the_command_line
    told, said = producing("enqueue")
    assert_equal ["longjobs start Tree --always --queue low --json - -o name", '[{"a":1}]'], told
    assert_equal ["some-uuid"], said
    told, = producing("debounce")
    assert_equal ["longjobs start Tree --debounce --queue low --json - -o name", "[1]"], told
    told, = producing("unique")
    assert_equal ["longjobs start Critical --json - -o name", "[]"], told
  end

  def test_a_tick_of_a_recurring_one
    told, = producing("tick")
    assert_equal "longjobs recurring tick Tree --interval 3600s --every 300s --subjects --backlog 7 --queue low", told.first
    assert_equal [{ "args" => ["north", { "deep" => true }] }, { "args" => ["south", { "deep" => true }] }], told.drop(1).map { |line| JSON.parse(line) }
  end
end

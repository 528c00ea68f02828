# frozen_string_literal: true

require_relative "helper"

# Scans of ActiveRecord relations, on SQLite, or on the empty database that RESQUED_TEST_DATABASE names;
# N=1 keeps the tests from disturbing each other there.
class TestRecords < RunnerTest
  HERE = %w[activerecord sqlite3].all? { |name| Gem::Specification.find_all_by_name(name).any? }

  def setup
    super
    skip "without the gems activerecord and sqlite3" unless HERE
    @dir = Dir.mktmpdir
    @state = {}
    database = ENV["RESQUED_TEST_DATABASE"] || "sqlite3:#{@dir}/database"
    @peer = start(Peer.app("records"), env: { "DATABASE" => database, "RUBYOPT" => "-W0" })
  end

  def teardown
    super
    FileUtils.remove_entry(@dir) if @dir
  end

  def fill(rows)
    ended = @peer.job("Setup", rows)
    assert_equal ["done"], ended.keys, ended["message"]
  end

  def values(text)
    assert_equal ["done"], @peer.job("Sql", text).keys
    @peer.output.lines.last.split
  end

  def visited
    @peer.output.lines(chomp: true).grep(/visited/)
  end

  def ids(more = "")
    values("SELECT id FROM events #{more} ORDER BY id")
  end

  # Works a run; each slice ends as soon as it has saved something. The block sees each report. Returns
  # the number of slices, or the line of the failure.
  def work(*args)
    1.upto(100) do |number|
      last, ended = slice("Scanned", args, number, units: 0) do |job, line|
        @peer.write(slice_over: job) if line["state"]
        yield line if block_given?
      end
      return ended if ended["failed"]
      return number if last["done"]

      @between&.call
    end
    flunk "it does not come to its end"
  end

  def test_a_batch_is_a_unit
    fill((1..2500).map { |id| [id, id % 5 == 0 ? "new" : "old"] })
    units = 0
    done = []
    slices = work("delete") do |line|
      units += line["units"].to_i
      done << line["progress"]["done"] if line["progress"]
    end
    assert_equal [1000, 2000], done
    assert_equal [3, 3], [slices, units], "the last one finds nothing"
    assert_equal 500, ids.size
    assert_equal({ "~scan_delete 1" => true }, @state)
  end

  def test_rows_above_the_end_stay
    fill((1..1500).map { |id| [id, "old"] })
    @between = -> { @peer.job("Insert", 2000) }
    work("delete")
    assert_equal ["2000"], ids
    @between = nil
    @state = {}
    work("delete", 2)
    assert_empty ids
    assert_equal({ "~scan_delete 1" => true, "~scan_delete 2" => true }, @state)
  end

  def test_records_are_destroyed_once
    fill((1..1200).map { |id| [id, id % 400 == 0 ? "kept" : "old"] } << [1201, "new"])
    assert_operator work("destroy"), :>, 2
    assert_equal (1..1200).map { |id| "visited #{id}" }, visited
    assert_equal %w[400 800 1200 1201], ids
  end

  def test_a_unit_of_slow_calls_is_short
    fill((1..3).map { |id| [id, "slow"] })
    done = []
    work("destroy") { |line| done << line["progress"]["done"] if line["progress"] }
    assert_operator done.size, :>, 1
    assert_equal 3, done.last
    assert_empty ids
  end

  def test_conditions_of_other_tables
    fill([[1, "old", 1], [2, "old", 2], [3, "old", 2], [4, "old", nil]])
    work("association")
    assert_equal %w[1 4], ids
    fill([[1, "old", 1], [2, "old", 2], [3, "old", 2], [4, "old", nil]])
    work("joined")
    assert_equal %w[1 4], ids
    assert_equal true, @state["~north"]
  end

  def test_keys_that_are_texts
    fill([])
    work("texts")
    assert_empty values("SELECT name FROM logs")
  end

  def test_a_review_ends_when_nothing_matches
    fill((1..1500).map { |id| [id, id % 3 == 0 ? "new" : "old"] })
    @between = -> { @peer.job("Insert", 2000) }
    assert_operator work("review"), :>, 2
    assert_empty ids("WHERE name = 'old'")
    assert_equal ["2000"], ids("WHERE id > 1500"), "it is worked in the second round"
  end

  def test_a_review_calls_for_a_record_that_stays_a_few_times
    fill([[1, "old"], [2, "old"], [3, "old"]])
    ended = work("stuck")
    assert_equal "Resqued::LongJob::Stuck", ended["exception"]
    assert_equal "reviewing_select_loop 1: records still match after 3 rounds that have changed none, such as 1", ended["message"]
    assert_equal ["visited 1", "visited 2", "visited 3", *["visited 1"] * 3], visited
  end

  def test_what_is_refused
    fill([[1, "old"]])
    { "limit" => /a relation with limit cannot be divided/, "no key" => /Pair needs a primary key of one column/ }.each do |how, message|
      _, ended = slice("Scanned", [how], 1)
      assert_match message, ended["message"]
    end
    assert_match(/call it in a long job/, @peer.job("Outside")["message"])
    assert_equal ["1"], ids
  end
end

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

# Records as ActiveRecord has them: their JSON names the object, and units change them.
class Row
  attr_reader :id
  attr_accessor :sent

  def initialize(id)
    @id = id
  end

  def to_key
    [id] if id
  end
end

module ActiveRecord
  # A table of rows 1 to n. Sent rows leave the Relation.
  class Relation
    def initialize(ids)
      @ids = ids
    end

    attr_reader :ids

    def klass
      Struct.new(:name, :primary_key).new("Row", "id")
    end

    def loaded?
      false
    end

    def unscope(*)
      self
    end

    def where(condition)
      puts "loads #{condition['id'].size}"
      (@ids & condition["id"]).map { |id| Row.new(id) }
    end
  end
end

class Rows
  extend Resqued::LongJob

  def self.long_job_perform(run, how, *ids)
    list = case how
           when "relation" then ActiveRecord::Relation.new(ids)
           when "records" then ids.map { |id| Row.new(id) }
           when "within" then ids.map { |id| { "row" => Row.new(id) } }
           when "object" then [1, Object.new]
           when "unsaved" then [Row.new(nil)]
           end
    run.work_each(:send, list) do |row|
      row = row["row"] if row.is_a?(Hash)
      row.sent = true
      puts "sent #{row.id}"
    end
  end
end

class Keys
  extend Resqued::LongJob

  def self.long_job_perform(run, how)
    case how
    when "none" # the lists of the Files.com fork
      run.work_each(%w[setup finalize]) { |part| run.work_each([1, 2]) { |n| puts "#{part} #{n}" } }
      run.work_each(%w[setup other]) { |part| puts part }
    when "again"
      begin
        run.work_once(:a) { raise IOError }
      rescue IOError
        run.work_once(:a) { puts "a" }
      end
    else
      [[1], [2]].each do |list|
        run.public_send(how, :a, *(how == "work_each" ? [list] : [])) { puts list.inspect }
      end
    end
  end
end

class Pages
  extend Resqued::LongJob

  def self.long_job_perform(run)
    2.times do |step|
      run.work_pages("pages #{step}") do |from|
        run.work_once(:inner) { puts "#{step}: #{from.inspect}" }
        page = from ? from["page"] : 0
        { page: page + 1 } if page < 2
      end
    end
  end
end

class State
  extend Resqued::LongJob

  def self.long_job_perform(run)
    run.work_once(:set) do
      list = run.state(:list, [{ id: 1, on: Time.at(0).utc }])
      puts "returned #{list}"
      run.state(:list)
      run.state(:once) { :symbol }
    end
    puts "read #{run.state(:list)} #{run.state(:once).inspect}"
    run.work_once(:object) { run.state(:object, [Object.new]) }
  end
end

class Unconfigured
  extend Resqued::LongJob
end

# As it was written for the fork: under its name, and with its calls.
LongJob = Resqued::LongJob::Base

class Tree < LongJob
  @queue = :low

  def self.long_job_perform(run, top)
    run.work_each_run { puts "end" }
    run.work_every_n_chunks(2) { puts "two" }
    run.message = "walking"
    walk(run, top)
  end

  def self.walk(run, nodes)
    run.work_recursive_sorted_hash(:walk, nodes) do |node|
      node.is_a?(Hash) ? walk(run, node) : puts("leaf #{node}")
    end
  end
end

class Critical < LongJob
  def self.long_job_perform(run, *)
    run.work_once(:first) { nil }
    run.critical_work_unit("ledger") do
      run.critical_work_unit("ledger") { puts "within" }
      run.state(:n, run.state(:n).to_i + 1)
    end
  end
end

LongJob.job :Tree, interval: 3600, each: -> { %w[north south] }, args: { deep: true }, max_backlog: 7
LongJob.job :Critical, each_with_interval: -> { [[60, 1]] }, if: -> { ENV["TICKS"] }

class Producer
  def self.perform(what)
    case what
    when "tick" then Resqued::LongJob::Tick.perform("Tree")
    when "enqueue" then Resqued.log(LongJob.enqueue(Tree, { "a" => 1 }))
    when "debounce" then Resqued.log(Tree.enqueue_debounce(1))
    when "unique" then Resqued.log(LongJob.enqueue_unique("Critical"))
    end
  end
end

# frozen_string_literal: true

require "active_record"
require "resqued/long_job"

module Resqued
  module LongJob
    # Records still match after the block of reviewing_select_loop was called for them.
    class Stuck < StandardError; end

    # Long jobs over the rows of an ActiveRecord relation. Each call is a step of the run: a
    # later slice continues after the last done row. Calls without a key are numbered in their
    # order.
    module Relation
      # Deletes the matching rows, as delete_all does.
      def scan_delete(key = nil)
        Scan.new(self, "scan_delete", key).once do |scan, page|
          ids = page.pluck(scan.column).uniq
          scan.among(ids).delete_all
          ids
        end
      end

      # Destroys the matching records, as destroy_all does.
      def scan_destroy(key = nil)
        Scan.new(self, "scan_destroy", key).once { |scan, page| scan.call(page, &:destroy) }
      end

      # Calls the block for each matching record until none matches. The block is expected to
      # change the record.
      def reviewing_select_loop(key = nil, &block)
        Scan.new(self, "reviewing_select_loop", key).review(&block)
      end
    end

    # One call of a method of Relation.
    class Scan
      # The maximum rows of a unit, and the seconds after which it calls a block for no further
      # row.
      BATCH = 1000
      HOLD = 1
      # The maximum number of successive rounds of a review without a change.
      ROUNDS = 3
      # Parts of a query that prevent pages.
      UNFIT = %i[limit offset group having distinct].freeze

      attr_reader :column

      def initialize(relation, kind, key)
        @run = LongJob.current || raise(ArgumentError, "#{kind} works in units: call it in a long job")
        @relation = relation.unscope(:order)
        @klass = relation.klass
        raise ArgumentError, "#{kind}: #{@klass} needs a primary key of one column" unless @klass.primary_key.is_a?(String)

        unfit = @relation.values.keys & UNFIT
        raise ArgumentError, "#{kind}: a relation with #{unfit.join(' and ')} cannot be divided into pages" unless unfit.empty?

        @column = @klass.arel_table[@klass.primary_key]
        @key = key || @run.free_key(kind)
      end

      # Goes through the rows up to the highest key at the beginning. The block gets a page and
      # returns the ids of its done rows.
      def once
        @run.work_pages(@key) do |at|
          at ||= { "end" => highest, "done" => 0 }
          ids = at["end"].nil? ? [] : yield(self, page(at))
          following(at, ids, ids.size) unless ids.empty?
        end
      end

      # Goes through the rows in rounds, until a round finds nothing.
      def review(&block)
        @run.work_pages(@key) do |at|
          at ||= round(0)
          records = at["end"].nil? ? [] : @klass.uncached { page(at).to_a }
          next another_round(at) if records.empty?
          raise Stuck, "#{@key}: records still match after #{ROUNDS} rounds that have changed none, such as #{records.first.id.inspect}" if at["vain"] >= ROUNDS

          ids = call(records, &block)
          helped = ids.size - @klass.uncached { among(ids).pluck(@column).uniq.size }
          following(at, ids, helped).merge("called" => at["called"] + ids.size, "helped" => at["helped"] + helped)
        end
      end

      # Calls the block for records, and returns the ids of the ones that it had time for.
      def call(records)
        ends = now + HOLD
        records.to_a.uniq.each_with_object([]) do |record, ids|
          ids << record.id
          yield record
          break ids if now >= ends
        end
      end

      def among(ids)
        @relation.where(@klass.primary_key => ids)
      end

      private

      def page(at)
        rows = @relation.where(@column.lteq(at["end"]))
        rows = rows.where(@column.gt(at["last"])) if at.key?("last")
        rows.order(@column).limit(BATCH)
      end

      def following(at, ids, done)
        done += at["done"]
        @run.progress(done, step: @key)
        at.merge("last" => ids.last, "done" => done)
      end

      def round(done, vain = 0)
        { "end" => highest, "done" => done, "called" => 0, "helped" => 0, "vain" => vain }
      end

      def another_round(at)
        return if at["called"].zero?

        vain = at["helped"].zero? ? at["vain"] + 1 : 0
        sleep 1 if vain.positive?
        round(at["done"], vain)
      end

      # The state keeps the id as JSON.
      def highest
        id = @klass.unscoped.order(@column.desc).limit(1).pluck(@column).first
        return id if [NilClass, Integer, String].any? { |kind| id.is_a?(kind) }

        raise ArgumentError, "#{@key}: #{@klass}'s primary key has to be a number or a text, and is a #{id.class}"
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end

    ActiveSupport.on_load(:active_record) { ::ActiveRecord::Relation.include(Relation) }
  end
end

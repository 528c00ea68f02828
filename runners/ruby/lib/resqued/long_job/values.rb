# frozen_string_literal: true

require "json"
require "set"

module Resqued
  module LongJob
    # Values that a run remembers. Slices run in different processes, so a value must mean the
    # same in each.
    module Values
      # The number of records of a Relation that are loaded at a time.
      PAGE = 100

      class << self
        # The value as a later slice reads it.
        def plain(value)
          JSON.parse(JSON.generate(convert(value, false)), max_nesting: false)
        end

        # The identity of an item, which is the same in each process. A unit changes the
        # attributes of its record, so records are identified by class and id.
        def identity(value)
          convert(value, true)
        end

        def record(klass, id)
          raise ArgumentError, "a #{klass} without an id cannot be found again in the next slice" if id.empty?

          [(klass.respond_to?(:base_class) ? klass.base_class : klass).name, id]
        end

        private

        def convert(value, by_key)
          case value
          when nil, true, false, String, Symbol, Numeric, Range then value
          when Hash then value.to_h { |name, inner| [convert_name(name, by_key), convert(inner, by_key)] }
          when Array, Set then value.map { |inner| convert(inner, by_key) }
          else by_key && key(value) || (value.is_a?(Struct) ? convert(value.to_h, by_key) : stable(value))
          end
        end

        def convert_name(name, by_key)
          name = convert(name, by_key)
          name.is_a?(Array) || name.is_a?(Hash) ? JSON.generate(name) : name
        end

        # ActiveModel's key, or else the GlobalID.
        def key(object)
          return record(object.class, Array(object.to_key)) if object.respond_to?(:to_key)

          object.to_global_id.to_s if object.respond_to?(:to_global_id)
        end

        # Without to_json of its own, an object's JSON is its to_s, and Object#to_s contains its
        # address.
        def stable(object)
          own = object.method(:to_json).owner != Object.instance_method(:to_json).owner
          return object if own || !object.method(:to_s).owner.equal?(Kernel)

          raise ArgumentError, "a #{object.class} has no JSON that is the same in each slice: use its id, a String, a Hash or an Array"
        end
      end

      class List
        def initialize(values)
          @values = values.to_a
        end

        def size
          @values.size
        end

        def identities
          @values.map { |value| Values.identity(value) }
        end

        def at(indexes)
          indexes.each { |index| yield(index, @values[index]) }
        end
      end

      # The records of an ActiveRecord::Relation. All ids are read, in its order, but only one
      # page of records at a time.
      class Records
        def initialize(relation)
          @relation = relation
          @ids = relation.ids
        end

        def size
          @ids.size
        end

        def identities
          @ids.map { |id| Values.record(@relation.klass, Array(id)) }
        end

        # Records that have left the Relation are skipped. The ids fix limit and order.
        def at(indexes)
          page = @relation.unscope(:limit, :offset, :order)
          indexes.each_slice(PAGE) do |part|
            records = page.where(@relation.klass.primary_key => part.map { |index| @ids[index] }.uniq).to_h { |record| [record.id, record] }
            part.each { |index| yield(index, records[@ids[index]]) if records.key?(@ids[index]) }
          end
        end
      end

      def self.of(values)
        relation = defined?(::ActiveRecord::Relation) && values.is_a?(::ActiveRecord::Relation)
        relation && !values.loaded? ? Records.new(values) : List.new(values)
      end
    end
  end
end

# frozen_string_literal: true

module Resqued
  module Runner
    # A template and its forked runners must not share connections. The template closes the ones
    # that it knows before it forks, and the runner connects anew.
    module Connections
      module_function

      # In the template, before each fork. Searching all objects takes a while in a large
      # application, so it happens only before the first fork.
      def close(first)
        @redis_clients = objects(redis_client) if first
        (@redis_clients || []).each { |client| quietly { client.disconnect if client.connected? } }
        quietly { ::Resque.redis.close } if defined?(::Resque) && ::Resque.respond_to?(:redis) && closes?
        pools if first
        active_record
      end

      # In the runner, after the fork.
      def renew
        if defined?(::Resque) && ::Resque.respond_to?(:redis) && ::Resque.redis.respond_to?(:reconnect)
          ::Resque.redis.reconnect
        end
        return unless defined?(::ActiveRecord::Base) && !defined?(::ActiveSupport::ForkTracker)

        ::ActiveRecord::Base.establish_connection
      end

      # redis-rb up to 4: a client of the parent raises in the child. redis-rb 5 (redis-client)
      # checks the process id itself.
      def redis_client
        ::Redis::Client if defined?(::Redis::Client) && ::Redis::Client.method_defined?(:disconnect)
      end

      def closes?
        redis = ::Resque.redis
        redis.respond_to?(:close) && !redis_client
      end

      # connection_pool detects forks itself from 2.4 on.
      def pools
        return unless defined?(::ConnectionPool) && !::ConnectionPool.respond_to?(:after_fork)

        objects(::ConnectionPool).each do |pool|
          next unless pool.respond_to?(:reload)

          quietly { pool.reload { |connection| connection.close if connection.respond_to?(:close) } }
        end
      end

      def active_record
        return unless defined?(::ActiveRecord::Base)

        quietly do
          handler = ::ActiveRecord::Base.connection_handler
          if handler.method(:clear_all_connections!).arity.zero?
            handler.clear_all_connections!
          else
            handler.clear_all_connections!(:all)
          end
        end
      end

      def objects(kind)
        kind ? ObjectSpace.each_object(kind).to_a : []
      end

      # A connection that cannot be closed must not prevent the fork.
      def quietly
        yield
      rescue StandardError => e
        $stderr.puts "resqued-runner: closing a connection before a fork: #{Text.class_name(e)}: #{Text.message(e)}"
      end
    end
  end
end

# frozen_string_literal: true

module Resqued
  module Runner
    # Finds the class of a job by its name, as Resque.constantize does. Anyone who can write to
    # Redis chooses the name. So it must be a class or module that answers to `perform`
    # publicly, by a method of its own or of a parent in the application.
    module Constants
      @found = {}

      # A method that all objects have is not a job's perform, even if a program defined it.
      EVERYWHERE = [Kernel, Object, BasicObject, Module, Class].freeze
      # Rails' command line, whose commands run any code.
      REFUSED = /\A(Rails|Thor)(::|\z)/.freeze

      module_function

      def find(name)
        @found[name] ||= performing(constantize(name.to_s))
      end

      def forget
        @found.clear
      end

      def performing(constant)
        return constant if constant.is_a?(Module) && constant.respond_to?(:perform) && own?(constant)

        raise NoMethodError.new("undefined method `perform' for #{describe(constant)}", :perform)
      end

      def own?(constant)
        !EVERYWHERE.include?(constant.method(:perform).owner) && !constant.name.to_s.match?(REFUSED)
      rescue NameError # answers only by method_missing
        true
      end

      def describe(constant)
        case constant
        when Class then "#{constant}:Class"
        when Module then "#{constant}:Module"
        else "an instance of #{constant.class}"
        end
      end

      def constantize(name)
        name = name.split("-").map(&:capitalize).join if name.include?("-")
        names = name.split("::")
        names.shift if names.empty? || names.first.empty?
        names.inject(Object) { |parent, part| inner(parent, part) }
      end

      def inner(parent, part)
        unless parent.is_a?(Module)
          raise NameError.new("uninitialized constant #{part} of #{describe(parent)}", part.to_sym)
        end
        return parent.const_missing(part) unless parent.const_defined?(part, false)

        found = parent.const_get(part, false)
        return found if parent.constants(false).include?(part.to_sym)

        full = parent.equal?(Object) ? part : "#{parent}::#{part}"
        raise NameError.new("private constant #{full} referenced", part.to_sym)
      end
    end
  end
end

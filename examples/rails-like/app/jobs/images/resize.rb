# frozen_string_literal: true

module Images
  # A job in a module, whose arguments are not only numbers.
  class Resize
    @queue = :images

    def self.perform(name, options = {})
      width = options.fetch("width", 100)
      raise ArgumentError, "#{name}: a width of #{width}" unless width.positive?

      puts "#{name}: #{width} pixels wide"
    end
  end
end

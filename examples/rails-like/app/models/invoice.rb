# frozen_string_literal: true

require "pstore"
require "tmpdir"

# A model. Instead of a database it has a file, which several processes may use.
class Invoice
  FILE = ENV.fetch("RAILS_LIKE_DATA") { File.join(Dir.tmpdir, "rails-like-#{Process.uid}.pstore") }

  class NotFound < StandardError; end

  attr_reader :number, :month, :cents, :events

  def initialize(number, month: "2026-01", cents: 1000, events: [])
    @number = number
    @month = month
    @cents = cents
    @events = events
  end

  class << self
    def create(number, **attributes)
      save(new(number, **attributes))
    end

    def find(number)
      store.transaction(true) { |s| s[number] } or raise NotFound, "no invoice #{number}"
    end

    def of(month)
      store.transaction(true) { |s| s.roots.select { |number| s[number].month == month } }.sort
    end

    # Records an event of an invoice, in one step.
    def note(number, event)
      store.transaction do |s|
        raise NotFound, "no invoice #{number}" unless s[number]

        s[number].events << event
        s[number] = s[number]
      end
    end

    private

    # A new store for each use: a PStore is for one thread.
    def store
      PStore.new(FILE)
    end

    def save(invoice)
      store.transaction { |s| s[invoice.number] = invoice }
    end
  end

  def sent?
    events.include?("sent")
  end
end

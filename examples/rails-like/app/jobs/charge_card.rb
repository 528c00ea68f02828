# frozen_string_literal: true

# A job that fails: its exception and backtrace stand in the list of failures.
class ChargeCard
  extend Timed

  @queue = :payments

  def self.perform(number)
    invoice = Invoice.find(number)
    Card.charge(invoice.number, invoice.cents)
  end
end

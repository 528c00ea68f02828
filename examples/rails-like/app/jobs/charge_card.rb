# frozen_string_literal: true

# A job that fails. The list of failures shows its exception and backtrace.
class ChargeCard
  extend Timed

  @queue = :payments

  def self.perform(number)
    invoice = Invoice.find(number)
    Card.charge(invoice.number, invoice.cents)
  end
end

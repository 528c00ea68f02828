# frozen_string_literal: true

# A job with hooks. Resque calls them; see README.md for what happens without the gem.
class SendInvoice
  extend Timed

  @queue = :invoices

  # Nothing to do is not a failure.
  def self.before_perform_unless_sent(number)
    raise Resque::Job::DontPerform, "invoice #{number} was sent before" if Invoice.find(number).sent?
  end

  def self.around_perform_noted(number)
    Invoice.note(number, "sending")
    yield
    Invoice.note(number, "sent")
  end

  def self.on_failure_noted(error, number)
    Invoice.note(number, "not sent: #{error.class}")
  rescue Invoice::NotFound
    nil
  end

  def self.perform(number)
    invoice = Invoice.find(number)
    puts "to the customer: invoice #{invoice.number} of #{invoice.month}, #{invoice.cents} cents"
    Invoice.note(number, "mailed")
  end
end

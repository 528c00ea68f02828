# frozen_string_literal: true

# A long job: it works in slices, and continues where it was after a deploy, a crash or a
# reboot. This method starts over with each slice, and skips what is done.
class CloseMonth
  extend Resqued::LongJob

  @queue = :months

  def self.long_job_perform(run, month)
    run.work_once(:invoices) { run.state(:invoices, Invoice.of(month)) }
    run.work_each(:close, run.state(:invoices)) { |number| close(number) }
  end

  def self.close(number)
    sleep 0.05
    Invoice.note(number, "closed")
  end
end

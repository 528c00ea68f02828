# frozen_string_literal: true

# The bank. It takes no cards today.
module Card
  class Declined < StandardError; end

  def self.charge(number, cents)
    raise Declined, "invoice #{number}: the bank declines #{cents} cents"
  end
end

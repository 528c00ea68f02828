# frozen_string_literal: true

module Resqued
  module Runner
    # Makes text of any origin fit for a line of the protocol.
    module Text
      MESSAGE = 64 * 1024
      LINE = 2 * 1024
      LINES = 300

      module_function

      # The text as valid UTF-8 of at most limit bytes. Binary text is read as UTF-8, which it
      # mostly is; other encodings are converted.
      def utf8(text, limit = MESSAGE)
        text = text.to_s
        text = text.byteslice(0, limit * 4) if text.bytesize > limit * 4
        text = if [Encoding::UTF_8, Encoding::ASCII_8BIT, Encoding::US_ASCII].include?(text.encoding)
                 text.dup.force_encoding(Encoding::UTF_8).scrub("?")
               else
                 text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace, replace: "?")
               end
        text = "#{text.byteslice(0, limit - 3).scrub('')}…" if text.bytesize > limit
        text
      rescue EncodingError
        text.dup.force_encoding(Encoding::UTF_8).scrub("?").byteslice(0, limit).scrub("")
      end

      # The message of an exception, whose own methods may fail: that must not hide the failure
      # of the job. Ruby adds the line of code to some messages, which is useless if it is the
      # runner's.
      def message(exception)
        ours = exception.respond_to?(:original_message) && exception.backtrace&.first.to_s.include?(HERE)
        utf8(ours ? exception.original_message : exception.to_s)
      rescue Exception => e # rubocop:disable Lint/RescueException
        "its message could not be read: #{e.class}"
      end

      def class_name(exception)
        utf8(exception.class.to_s, 200)
      end

      # The lines of the application, without the caller's lines of Resque or the runner. Resque
      # filters in the same way.
      def backtrace(exception)
        lines = Array(exception.backtrace)
        cut = lines.index { |line| line.include?("/lib/resque/job.rb") } ||
              lines.index { |line| line.include?(HERE) }
        lines = lines.first(cut) if cut
        more = lines.size - LINES
        if more.positive? # deep recursion: its two ends are enough
          lines = lines.first(LINES - 50) + ["… #{more} more …"] + lines.last(50)
        end
        lines.map { |line| utf8(line, LINE) }
      rescue Exception # rubocop:disable Lint/RescueException
        []
      end

      HERE = "#{__dir__}/"
    end
  end
end

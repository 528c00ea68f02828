# frozen_string_literal: true

require "json"

# Jobs of an application without Resque, many of them badly behaved.

class Echo
  def self.perform(*args)
    puts JSON.generate(args)
  end
end

class MakesRoom
  def self.perform
    Resqued.progress(1)
    sleep 0.01 until Resqued.leaving?
    Resqued.discard("made room")
  end
end

class Interrupted
  def self.perform
    Resqued.interrupted!
  end
end

class Boom
  def self.perform(message = "boom")
    raise ArgumentError, message
  end
end

class Shouts
  def self.perform(mebibytes)
    Resqued.progress(1, 2, message: "x" * (mebibytes << 20))
  end
end

class TwoArguments
  def self.perform(one, two); end
end

class Odd
  class Speechless < StandardError
    def to_s
      raise "no"
    end
  end

  def self.perform(what)
    case what
    when "exit" then exit(3)
    when "abort" then abort("gone")
    when "throw" then throw(:nowhere)
    when "thread_exit" then Thread.exit
    when "memory" then raise NoMemoryError, "out of it"
    when "interrupt" then raise Interrupt
    when "signal" then raise SignalException, "USR1"
    when "stack" then perform(what)
    when "binary" then raise "caf\xE9 \xFF".b
    when "latin1" then raise "caf\xE9".dup.force_encoding(Encoding::ISO_8859_1)
    when "long" then raise "x" * 10_000_000
    when "speechless" then raise Speechless
    when "anonymous" then raise Class.new(StandardError), "who"
    when "daemon" then Process.daemon
    when "exit!" then exit!(0)
    when "mute" then [$stdout, $stderr].each(&:close)
    when "close" then 0.upto(20) { |n| IO.for_fd(n).close rescue nil } # rubocop:disable Style/RescueModifier
    when "traps" then %w[TERM INT QUIT HUP USR1 USR2].each { |name| trap(name, "IGNORE") }
    when "kill threads" then (Thread.list - [Thread.current]).each(&:kill)
    when "fork" then fork # the child continues this job too
    when "fork exit" then Process.wait(fork { exit(1) })
    when "chdir" then Dir.chdir("/")
    end
  end
end

class Says
  def self.perform(file, *)
    File.write(file, [Process.pid, Dir.pwd, ENV["RESQUED_PROC"], ENV["RESQUED_FD"], Process.getsid(0), rand].join("|"))
  end
end

class Busy
  def self.perform(file, how)
    File.write(file, Process.pid.to_s)
    how == "sleep" ? sleep : loop { 1 + 1 }
  rescue Resque::TermException => e
    File.write(file, "#{e.class} #{e.signo}")
    raise unless how == "swallow"
  end
end

# Jobs that wait for each other: they end only if all run at once.
class Together
  LOCK = Mutex.new
  CHANGED = ConditionVariable.new
  @there = 0

  def self.perform(count)
    LOCK.synchronize do
      @there += 1
      CHANGED.broadcast
      CHANGED.wait(LOCK) until @there >= count
    end
  end
end

class Talks
  def self.perform
    Resqued.progress(3, 9, message: "copying")
    Resqued.refresh_lock
    Resqued.log("caf\xE9".b, level: :warn)
    Resqued.job.attempt
  end
end

class Leaves
  def self.perform(how)
    how == "requeue" ? Resqued.requeue(after: 2.5) : Resqued.discard("not today")
  rescue StandardError
    raise "must not be seen as an error"
  end
end

class Inherits < Echo; end
module Outer
  class Inner < Echo; end
  class Hidden < Echo; end
  private_constant :Hidden
end
class Unready; end
class Shy
  def self.perform; end
  private_class_method :perform
end

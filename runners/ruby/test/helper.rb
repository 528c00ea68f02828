# frozen_string_literal: true

$VERBOSE = nil # of the bundled minitest
require "minitest/autorun"
require "socket"
require "json"
require "io/wait"
require "tempfile"
require "tmpdir"
$VERBOSE = true

$LOAD_PATH.unshift(File.expand_path("../lib", __dir__))
require "resqued/runner"

# A real runner, or template, at the other end of a socket: what a worker process is to it.
class Peer
  EXE = File.expand_path("../exe/resqued-runner", __dir__)
  # Longer than anything takes; a test that waits so long has failed.
  PATIENCE = 60

  attr_reader :pid, :socket, :hello, :requests

  def self.app(name)
    File.join(__dir__, "apps", "#{name}.rb")
  end

  def initialize(*arguments, concurrency: 1, template: false, env: {}, chdir: nil)
    @socket, theirs = UNIXSocket.pair
    @output = Tempfile.new("runner")
    @env = { "RESQUED_FD" => "3", "RESQUED_RUNNER" => "app", "RESQUED_CONCURRENCY" => concurrency.to_s }.merge(env)
    options = { 3 => theirs, :out => @output.path, :err => [@output.path, "a"], :in => File::NULL }
    options[:chdir] = chdir if chdir
    if template
      @requests, theirs4 = Socket.pair(:UNIX, :SEQPACKET)
      options[4] = theirs4
      @env["RESQUED_FORK_FD"] = "4"
    end
    @pid = spawn(@env, RbConfig.ruby, *("-w" unless env.key?("RUBYOPT")), EXE, *arguments, **options)
    theirs.close
    theirs4&.close
    @number = 0
    @hello = read&.fetch("hello")
  end

  # Asks a template for a runner, and returns it as a peer.
  def fork_runner(concurrency: 1, env: {})
    ours, theirs = UNIXSocket.pair
    output = Tempfile.new("forked")
    file = File.open(output.path, "a")
    ended = File.open(File::NULL, "w")
    request = JSON.generate(fork: { concurrency: concurrency, env: env })
    @requests.sendmsg(request, 0, nil, Socket::AncillaryData.unix_rights(theirs, file, file, ended))
    [theirs, file, ended].each(&:close)
    Forked.new(ours, output)
  end

  def job(klass, *args, **more)
    send_job(klass, *args, **more)
    read
  end

  def next_number
    @number = @number.to_i + 1
  end

  def send_job(klass, *args, **more)
    described = { number: next_number, id: "id-#{@number}", class: klass, queue: "mail", attempt: 1, deaths: 0,
                  worker: "host:77-1:mail,low", payload: { class: klass, args: args } }.merge(more)
    described.delete(:payload) if described.key?(:payload_base64)
    write(job: described)
    @number
  end

  def write(message)
    @socket.write(message.is_a?(String) ? message : "#{JSON.generate(message)}\n")
  end

  # The next line, or nil at the end.
  def read
    raise "no line came within #{PATIENCE} s; output: #{output}" unless @socket.wait_readable(PATIENCE)

    line = @socket.gets
    line && JSON.parse(line)
  rescue Errno::ECONNRESET
    nil
  end

  def output
    File.read(@output.path)
  end

  # Waits for its end and returns its status.
  def wait
    limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
    until (ended = Process.waitpid2(@pid, Process::WNOHANG))
      raise "does not end; output: #{output}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit

      sleep 0.005
    end
    @pid = nil
    ended.last
  end

  def stop
    @socket.close unless @socket.closed?
    @requests&.close unless @requests&.closed?
    return unless @pid

    Process.kill(:KILL, @pid)
    Process.wait(@pid)
  rescue Errno::ESRCH, Errno::ECHILD
    nil
  end

  # A runner that a template has forked: not our child.
  class Forked < Peer
    def initialize(socket, output) # rubocop:disable Lint/MissingSuper
      @socket = socket
      @output = output
      @number = 0
      @hello = read&.fetch("hello")
    end
  end
end

class RunnerTest < Minitest::Test
  parallelize_me!

  def setup
    @peers = []
  end

  def teardown
    @peers.each(&:stop)
  end

  def start(*arguments, **options)
    arguments = [Peer.app("plain")] if arguments.empty?
    @peers << Peer.new(*arguments, **options)
    @peers.last
  end

  def forked(template, **options)
    @peers << template.fork_runner(**options)
    @peers.last
  end

  # Plays the worker process for one slice: keeps the state, answers each report. The block
  # sees each report. Returns the last report and the line that ended the slice.
  def slice(klass, args, number, **more)
    job = @peer.send_job(klass, "uuid", run: "uuid", slice: number, args: args, state: @state, fence: number, **more)
    saved = 0
    last = nil
    loop do
      line = @peer.read
      return [last, line] unless (report = line["report"])

      assert_equal job, report["job"]
      last = report["line"]
      last["state"]&.each { |key, value| value.nil? ? @state.delete(key) : @state[key] = value }
      yield job, last if block_given?
      @peer.write(reply: { job: job, line: { saved: saved += 1 } }) if last["state"]
    end
  end

  # Waits until the block is true.
  def eventually(what)
    limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + Peer::PATIENCE
    until yield
      flunk "#{what}: not within #{Peer::PATIENCE} s" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
      sleep 0.005
    end
  end
end

# frozen_string_literal: true

require_relative "helper"

class TestTemplate < RunnerTest
  def says(runner)
    Tempfile.create do |file|
      assert_equal ["done"], runner.job("Says", file.path).keys
      pid, _dir, proc, descriptor, session, random = File.read(file.path).split("|", -1)
      return { pid: pid.to_i, proc: proc, descriptor: descriptor, session: session.to_i, random: random }
    end
  end

  def test_forks_runners_that_are_apart
    template = start(template: true)
    assert_equal true, template.hello["template"]
    runners = Array.new(3) { |n| forked(template, concurrency: n + 1, env: { "RESQUED_PROC" => "proc#{n}" }) }
    assert_equal [1, 2, 3], runners.map { |runner| runner.hello["concurrency"] }
    said = runners.map { |runner| says(runner) }
    assert_equal 3, said.map { |one| one[:random] }.uniq.size, "each has random numbers of its own"
    assert_equal %w[proc0 proc1 proc2], said.map { |one| one[:proc] }
    said.each do |one|
      assert_equal one[:pid], one[:session]
      assert_equal "", one[:descriptor]
    end
    runners[0].job("Echo", "to its own output")
    assert_includes runners[0].output, "to its own output"
    refute_includes runners[1].output + template.output, "to its own output"
  end

  def test_a_forked_runner_keeps_no_descriptor_of_the_template
    template = start(template: true)
    runner = forked(template)
    said = says(runner)
    links = Dir["/proc/#{said[:pid]}/fd/*"].map { |fd| File.readlink(fd) rescue nil }.compact # rubocop:disable Style/RescueModifier
    skip "no /proc" if links.empty?
    assert_equal 1, links.count { |link| link.start_with?("socket:") }, links.inspect
  end

  def test_garbage_does_not_end_it
    template = start(template: true)
    ["garbage", "", "[]", "{}", '{"fork":3}', '{"fork":{"concurrency":1}}', "\xFF\xFE"].each do |packet|
      template.requests.send(packet, 0)
    end
    ours, theirs = UNIXSocket.pair
    template.requests.sendmsg('{"fork":{}}', 0, nil, Socket::AncillaryData.unix_rights(theirs))
    theirs.close
    assert_nil ours.read(1), "what it was given is closed"
    4.times { assert_match(/cannot be followed/, template.read["log"]["message"]) }
    assert_equal ["done"], forked(template).job("Echo").keys
  end

  def test_it_reaps_its_children
    skip "no /proc" unless File.directory?("/proc/self/task")
    template = start(template: true)
    runner = forked(template)
    pid = says(runner)[:pid]
    Process.kill(:KILL, pid)
    eventually("reaped") { !File.exist?("/proc/#{pid}") }
    assert_equal ["done"], forked(template).job("Echo").keys
  end

  def test_the_end_of_requests_ends_it_and_not_its_runners
    template = start(template: true)
    runner = forked(template)
    template.requests.close
    assert_equal 0, template.wait.exitstatus
    assert_equal ["done"], runner.job("Echo").keys
    runner.socket.close
  end

  def test_the_end_of_its_master_does_not_end_it
    template = start(template: true)
    template.socket.close
    template.requests.send("garbage", 0) # which it cannot report
    assert_equal ["done"], forked(template).job("Echo").keys
  end

  def test_the_end_of_the_socket_ends_a_forked_runner
    template = start(template: true)
    runner = forked(template)
    Tempfile.create do |file|
      runner.send_job("Busy", file.path, "loop")
      eventually("begins") { !File.zero?(file.path) }
      pid = File.read(file.path).to_i
      runner.socket.close
      eventually("gone") { !alive?(pid) }
    end
  end

  def test_term_ends_a_runner_whatever_its_job_rescues
    runner = forked(start(template: true))
    Tempfile.create do |file|
      runner.send_job("Busy", file.path, "loop")
      eventually("begins") { !File.zero?(file.path) }
      pid = File.read(file.path).to_i
      Process.kill(:TERM, pid)
      eventually("gone") { !alive?(pid) }
      assert_nil runner.read
    end
  end

  def test_threads_and_signals_of_the_application_are_not_those_of_runners
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "app.rb"), <<~RUBY)
        trap("USR1") { }
        Thread.new { sleep }.name = "metrics"
        Thread.new { sleep }
        require "active_record/connection_adapters/reaper"
        class Threads; def self.perform; raise Thread.list.map(&:name).inspect; end; end
        class Signalled; def self.perform; Process.kill(:USR1, Process.pid); sleep; end; end
      RUBY
      reaper = File.join(dir, "active_record/connection_adapters/reaper.rb")
      FileUtils.mkdir_p(File.dirname(reaper))
      File.write(reaper, 'Thread.new { sleep }; Thread.new { sleep }.name = "AR Pool Reaper"')
      template = start("-I", dir, "app", chdir: dir, template: true)
      assert_match(/has started threads \(metrics, \S*app.rb:3\)/, template.read["log"]["message"])
      runner = forked(template)
      refute_match(/metrics/, runner.job("Threads")["message"])
      assert_match(/SIGUSR1/, runner.job("Signalled")["message"])
    end
  end

  def test_ruby_without_warnings_says_why_a_runner_does_not_start
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "app.rb"), "require #{Peer.app('standin').inspect}\nResque.after_fork { raise 'no database' }")
      runner = forked(start("app", chdir: dir, template: true, env: { "RUBYOPT" => "-W0" }))
      assert_nil runner.hello
      assert_match(/no database \(RuntimeError\)/, runner.output)
    end
  end

  def test_a_hook_without_room_for_a_file_ends_it
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "app.rb"), <<~RUBY)
        require #{Peer.app("standin").inspect}
        Resque.before_fork do
          Process.setrlimit(:NOFILE, 0, Process.getrlimit(:NOFILE).last)
          File.open(File::NULL)
        end
      RUBY
      template = start("app", chdir: dir, template: true)
      assert_nil forked(template).hello
      assert_equal 71, template.wait.exitstatus
      assert_match(/cannot fork: Too many open files.*limit of open files is 0/, template.output)
    end
  end

  def test_at_exit_blocks_run_in_runners_if_they_are_asked_for
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "app.rb"), "at_exit { puts 'at_exit' }")
      template = start("app", chdir: dir, template: true)
      { {} => "", { RUN_AT_EXIT_HOOKS: "1" } => "at_exit\n" }.each do |env, said|
        runner = forked(template, env: env)
        runner.write(leave: true)
        assert_nil runner.read
        eventually("said") { runner.output == said }
      end
    end
  end

  def alive?(pid)
    Process.kill(0, pid)
    true
  rescue Errno::ESRCH
    false
  end
end

# frozen_string_literal: true

require "open3"
require_relative "helper"

class TestCommandLine < RunnerTest
  def run_it(*arguments, chdir: __dir__)
    Open3.capture3({ "RESQUED_FD" => nil }, RbConfig.ruby, Peer::EXE, *arguments, chdir: chdir)
  end

  def test_help_and_version
    out, _, status = run_it("--help")
    assert_match(/usage: resqued-runner/, out)
    assert status.success?
    out, = run_it("--version")
    assert_match(/\Aresqued-runner \d.*protocol 1/, out)
  end

  def test_by_hand_it_says_what_to_do
    _, err, status = run_it("config/environment")
    assert_equal 64, status.exitstatus
    assert_match(/resqued work --runner 'resqued-runner config\/environment'/, err)
    _, err, status = run_it("--what")
    assert_match(/invalid option: --what/, err)
    assert_equal 64, status.exitstatus
  end

  def test_files_that_are_not_there
    Dir.mktmpdir do |dir|
      peer = start("config/nothing", chdir: dir)
      assert_nil peer.hello
      assert_equal 64, peer.wait.exitstatus
      assert_match(%r{config/nothing is neither a file in #{dir}}, peer.output)
      peer = start("", chdir: dir) # an empty name
      refute_equal 0, peer.wait.exitstatus
    end
  end

  def test_without_arguments
    Dir.mktmpdir do |dir|
      peer = Peer.new(chdir: dir)
      assert_equal 64, peer.wait.exitstatus
      assert_match(/neither config\/environment.rb nor a Rakefile; say what loads/, peer.output)
      File.write(File.join(dir, "Rakefile"), <<~RUBY)
        namespace(:resque) { task(:setup) { class FromRake; def self.perform; puts "from rake"; end; end } }
      RUBY
      peer = Peer.new(chdir: dir)
      @peers << peer
      assert_equal "Rakefile", peer.hello["app"]
      assert_equal({ "done" => 1 }, peer.job("FromRake"))
      Dir.mkdir(File.join(dir, "config"))
      File.write(File.join(dir, "config/environment.rb"), "class FromEnvironment; def self.perform; end; end")
      peer = Peer.new(chdir: dir)
      @peers << peer
      assert_equal({ "done" => 1 }, peer.job("FromEnvironment"))
    end
  end

  def test_an_application_that_does_not_load_says_why
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "app.rb"), "raise 'no database'")
      peer = start("app", chdir: dir)
      assert_nil peer.hello
      assert_equal 1, peer.wait.exitstatus
      assert_match(/no database \(RuntimeError\)/, peer.output)
    end
  end
end

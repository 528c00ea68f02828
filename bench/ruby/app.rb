# The class of the jobs that runners perform. BALLAST is how many MiB the application takes, BOOT
# how long it boots, in seconds.
$ballast = "x" * (ENV.fetch("BALLAST", "0").to_i << 20)
sleep(ENV.fetch("BOOT", "0").to_f)

class Noop
  def self.perform(*); end
end

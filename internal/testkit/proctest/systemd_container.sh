# systemd_container.sh boots a real systemd as PID 1 of namespaces of its own, on a throw-away
# copy of this machine's file system: an overlay whose changes live in a tmpfs
# that goes away with the mount namespace. It needs root and installs nothing.
#
#   CGROUP  a new, empty cgroup v2 directory: the root of the container's tree
#   DIR     an empty directory
#   FILES   a tree that is copied over the container's root
set -e
echo $$ >"$CGROUP/cgroup.procs"
export DIR FILES
exec unshare --kill-child -p -f -m -u -i -n -C --propagation private sh -ec '
	mount -t tmpfs container "$DIR"
	mkdir "$DIR/upper" "$DIR/work" "$DIR/root"
	mount -t overlay container -o "lowerdir=/,upperdir=$DIR/upper,workdir=$DIR/work" "$DIR/root"
	cd "$DIR/root"

	# Nothing of this machine starts in the container, and nothing in the container reaches
	# for kernel modules or for kernel file systems.
	rm -rf etc/fstab etc/systemd/system/*.wants
	for unit in modprobe@.service systemd-modules-load.service systemd-sysctl.service \
		sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount \
		sys-fs-fuse-connections.mount dev-hugepages.mount systemd-tmpfiles-clean.timer; do
		ln -sf /dev/null "etc/systemd/system/$unit"
	done
	: >etc/machine-id
	cp -R "$FILES/." .

	mount -t proc proc proc
	# sysctls are those of the one shared kernel.
	mount --bind proc/sys proc/sys
	mount -o remount,bind,ro proc/sys
	mount -t sysfs -o ro sysfs sys
	mount -t cgroup2 cgroup2 sys/fs/cgroup
	mount -t tmpfs tmpfs tmp
	for dir in run dev; do mount -t tmpfs -o mode=755 tmpfs "$dir"; done
	for dev in null zero full random urandom tty; do
		touch "dev/$dev"
		mount --bind "/dev/$dev" "dev/$dev"
	done
	mkdir dev/pts dev/shm old
	mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
	ln -s pts/ptmx dev/ptmx
	ip link set lo up
	pivot_root . old
	# LoadCredential= needs a shared root: services get mount namespaces of their own.
	exec chroot . sh -c "umount -l /old; rmdir /old; mount --make-rshared /
		exec env -i container=resqued-systemd PATH=/usr/sbin:/usr/bin:/sbin:/bin \
			/lib/systemd/systemd --unit=basic.target"
'

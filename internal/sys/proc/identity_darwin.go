package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func place() (string, error) {
	boot, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return "", fmt.Errorf("kern.bootsessionuuid: %w", err)
	}
	return bootName(boot, "", ""), nil
}

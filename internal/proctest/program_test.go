package proctest_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/proctest"
)

func TestAProgramIsNotBusyWhereOthersAreBorn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 25 {
				path := filepath.Join(dir, strconv.Itoa(100*i+n))
				proctest.WriteProgram(t, path, []byte("#!/bin/true\n"))
				if err := exec.Command(path).Run(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	require.False(t, t.Failed())
}

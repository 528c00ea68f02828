package proctest_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

func TestAProgramIsNotBusyWhereOthersAreBorn(t *testing.T) {
	testlevel.Integration(t)
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

package app

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Probing()) }
